"""One function body as a graph, and what can be said of it before it is held against another one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
import onnx_ir as ir

from onnx_subgraph.matching.numbering import plain_operator
from onnx_subgraph.matching.view import View
from onnx_subgraph.operators.randomness import RANDOM

NEUTRAL = frozenset(
    (
        *("Identity", "Cast", "CastLike", "Concat", "Expand", "Flatten", "Pad", "Reshape"),
        *("Slice", "Squeeze", "Transpose", "Unsqueeze"),
    )
)
"""Operators of a body that may change nothing, depending on shapes and types: the graph may do without them."""
SLIGHT = frozenset({"Identity", "Cast", "CastLike"})
"""Operators that say little about a body."""
OF_SHAPES = frozenset({"Shape", "Size"})
"""Operators that ask nothing of their input but its shape."""


class Body:
    """A function body: its formal inputs, its results, and which of its values depend on more than shapes."""

    def __init__(self, function: ir.Function) -> None:
        self.inputs = tuple(function.inputs)
        self.outputs = tuple(function.outputs)
        self._places = {value: index for index, value in enumerate(self.inputs)}
        self._function = function

    def place(self, value: ir.Value) -> int | None:
        """Which input of the operator `value` is."""
        return self._places.get(value)

    @cached_property
    def statics(self) -> frozenset[ir.Value]:
        """The values that are known once the shapes of the inputs are."""
        found: set[ir.Value] = set()
        for node in self._function:
            if node.op_type in OF_SHAPES or all(v in found for v in _read(node)):
                found.update(node.outputs)
        return frozenset(found)

    @cached_property
    def counted(self) -> tuple[ir.Node, ...]:
        """The nodes behind the first result that say something."""
        found: dict[ir.Node, None] = {}
        queue = [self.outputs[0]]
        while queue:
            value = queue.pop()
            node = value.producer()
            if node is not None and node not in found and value not in self.statics:
                found[node] = None
                queue += _read(node)
        return tuple(n for n in found if n.op_type not in SLIGHT)

    @cached_property
    def operators(self) -> frozenset[str]:
        """The operators without which a graph does not have this body."""
        return frozenset(plain_operator(n) for n in self.counted if n.op_type not in NEUTRAL)

    @cached_property
    def ends(self) -> frozenset[str]:
        """The operators of which one stands at the end."""
        found: set[str] = set()
        node = self.outputs[0].producer()
        while node is not None:
            found.add(plain_operator(node))
            source = node.inputs[0] if node.op_type in NEUTRAL and node.inputs else None
            node = None if source is None else source.producer()
        return frozenset(found - SLIGHT)


def stored(value: ir.Value) -> np.ndarray | None:
    """What a `Constant` of a body holds, with casts after it or not; None for any other value."""
    node = value.producer()
    while node is not None and node.op_type in SLIGHT and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    tensor = ir.convenience.get_const_tensor(node.outputs[0]) if node is not None and node.op_type == "Constant" else None
    return None if tensor is None or tensor.dtype == ir.DataType.STRING else tensor.numpy()


def is_static(view: View, value: ir.Value) -> bool:
    """Whether a value of a graph is known once the shapes of its inputs are."""
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
            pending = [v for v in read if v not in known]
            if pending:
                stack += [current, *pending]
            else:
                known[current] = bool(read) and all(known[v] for v in read)
    return known[value]


def _read(node: ir.Node) -> list[ir.Value]:
    """The operands of whose elements a node asks, or whose shape."""
    operands: Iterable[ir.Value | None] = node.inputs[:1] if node.op_type == "CastLike" else node.inputs
    return [v for v in operands if v is not None]
