"""One function body as a graph, with properties for quick comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnx_subgraph.matching.numbering import plain_name, plain_operator
from onnx_subgraph.matching.view import View
from onnx_subgraph.operators.randomness import RANDOM

if TYPE_CHECKING:
    import onnx

NEUTRAL = frozenset(
    (
        *("Identity", "Cast", "CastLike", "Concat", "Expand", "Flatten", "Pad", "Reshape"),
        *("Slice", "Squeeze", "Transpose", "Unsqueeze"),
    )
)
"""Operators of a body that may change nothing, depending on shapes and types; they may be missing in the graph."""
SLIGHT = frozenset({"Identity", "Cast", "CastLike"})
"""Operators that prove little about a body."""
OF_SHAPES = frozenset({"Shape", "Size"})
"""Operators that use only the shape of their input."""


class Body:
    """A function body: its formal inputs, its results, and which of its values depend on more than shapes.

    `operators`, which rules out most bodies, is read from the protobuf. The graph is made on first use.
    """

    def __init__(self, proto: onnx.FunctionProto) -> None:
        self._proto = proto

    @cached_property
    def _function(self) -> ir.Function:
        return ir.serde.deserialize_function(self._proto)

    @property
    def inputs(self) -> Sequence[ir.Value]:
        """The formal inputs of the operator."""
        return self._function.inputs

    @property
    def outputs(self) -> Sequence[ir.Value]:
        """The requested results."""
        return self._function.outputs

    @cached_property
    def _places(self) -> dict[ir.Value, int]:
        return {value: index for index, value in enumerate(self.inputs)}

    def place(self, value: ir.Value) -> int | None:
        """The index of the operator's input that `value` is, or None."""
        return self._places.get(value)

    @cached_property
    def _nodes(self) -> tuple[tuple[str, Sequence[str], Sequence[str]], ...]:
        """The operator, what is read and what is computed, for each node. A protobuf gives each of them slowly."""
        return tuple((node.op_type, _names_read(node), list(node.output)) for node in self._proto.node)

    @cached_property
    def _static(self) -> frozenset[str]:
        """The names of `statics`."""
        found: set[str] = set()
        for operator, read, made in self._nodes:
            if operator in OF_SHAPES or found.issuperset(read):
                found.update(made)
        return frozenset(found)

    @cached_property
    def statics(self) -> frozenset[ir.Value]:
        """The values that depend only on constants and the shapes of the inputs."""
        return frozenset(value for node in self._function for value in node.outputs if value.name in self._static)

    @cached_property
    def _counted(self) -> tuple[onnx.NodeProto, ...]:
        """The nodes behind the first result, without those that prove little."""
        makers = {name: index for index, (_, _, made) in enumerate(self._nodes) for name in made}
        found: set[int] = set()
        queue = [self._proto.output[0]]
        while queue:
            name = queue.pop()
            index = makers.get(name)
            if index is not None and index not in found and name not in self._static:
                found.add(index)
                queue += self._nodes[index][1]
        return tuple(self._proto.node[index] for index in sorted(found) if self._nodes[index][0] not in SLIGHT)

    def __len__(self) -> int:
        """The number of nodes behind the first result, without those that prove little."""
        return len(self._counted)

    @cached_property
    def operators(self) -> frozenset[str]:
        """The operators that a graph must have to contain this body."""
        plain = (plain_name(n.op_type, n.domain, len(n.input)) for n in self._counted if n.op_type not in NEUTRAL)
        return frozenset(plain)

    @cached_property
    def ends(self) -> frozenset[str]:
        """The possible last operators."""
        found: set[str] = set()
        node = self.outputs[0].producer()
        while node is not None:
            found.add(plain_operator(node))
            source = node.inputs[0] if node.op_type in NEUTRAL and node.inputs else None
            node = None if source is None else source.producer()
        return frozenset(found - SLIGHT)


@lru_cache(maxsize=1 << 10)
def stored(value: ir.Value) -> np.ndarray | None:
    """The elements of a `Constant` of a body, also behind casts; None for any other value."""
    node = value.producer()
    while node is not None and node.op_type in SLIGHT and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    tensor = ir.convenience.get_const_tensor(node.outputs[0]) if node is not None and node.op_type == "Constant" else None
    return None if tensor is None or tensor.dtype == ir.DataType.STRING else tensor.numpy()


def is_static(view: View, value: ir.Value) -> bool:
    """Whether a value of a graph depends only on constants and the shapes of its inputs."""
    known: dict[ir.Value, bool] = view.shared("static values", dict)
    stack = [value]
    while stack:
        current = stack.pop()
        if current in known:
            continue
        node = view.producer(current)
        if view.constants.is_constant(current):
            known[current] = True
        elif node is None or node.domain or node.op_type in RANDOM:
            known[current] = False
        elif node.op_type in OF_SHAPES:
            known[current] = True
        else:
            read = _read(node)
            first = next((v for v in read if not known.get(v, False)), None)  # most values have an operand that decides
            if first is None or first in known:
                known[current] = bool(read) and first is None
            else:
                stack += [current, first]
    return known[value]


def _names_read(node: onnx.NodeProto) -> list[str]:
    """As `_read`, for a protobuf node."""
    return [*filter(None, node.input[:1] if node.op_type == "CastLike" else node.input)]


def _read(node: ir.Node) -> list[ir.Value]:
    """The operands of a node whose elements or shape matter; of a CastLike only the first."""
    operands: Iterable[ir.Value | None] = node.inputs[:1] if node.op_type == "CastLike" else node.inputs
    return [v for v in operands if v is not None]
