"""Value numbering: which values of a graph are the same computation of the same values, however it is spelled.

Two nodes are equal where operator, static arguments and operands are. A static argument at its default is none; an axis counts
from the back where the rank is known; an attribute is an input of the same name; constants are equal by what they hold; the
operands of a sum or product have no order. Operators that draw numbers, that nobody knows, or that have bodies are equal to
nothing: they may give two answers to one question.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from math import prod
from typing import Any

import onnx_ir as ir

from onnx_subgraph.language.axis import numbered
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.operators import Schema, counts_in_result, is_axis, is_ordered
from onnx_subgraph.operators.randomness import RANDOM

KNOWN_DOMAINS = frozenset({"", "ai.onnx.ml", "com.microsoft"})
"""The domains whose operators we know: none of them does more than to give its results, or remembers a run."""
EXCHANGEABLE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"})
"""Operators whose two operands may change places, to the last bit of the result."""
_COMPUTED, _STORED = 16, 4096
"""The most elements of a constant that is compared by what it holds: of a computed one, and of a stored one."""


class Numbering:
    """The numbers of the values of one graph: equal numbers for values that are congruent.

    schema: of a node, None for an unknown operator. through: the value behind what hands its input on unchanged. repeats: whether
    a node gives the same answer each time, where its operator does not say otherwise.
    """

    def __init__(
        self,
        constants: Constants,
        schema: Callable[[ir.Node], Schema | None],
        through: Callable[[ir.Value], ir.Value] = lambda value: value,
        repeats: Callable[[ir.Node], bool] = lambda node: node.domain in KNOWN_DOMAINS,
    ) -> None:
        self._repeats = repeats
        self._constants = constants
        self._schema = schema
        self._through = through
        self._numbers: dict[ir.Value, int] = {}
        self._keys: dict[Hashable, int] = {}

    def add(self, node: ir.Node) -> Hashable | None:
        """Number the results of a node, and give what it has in common with its equals; None where it has none.

        Its operands come from outside the graph, or were added before.
        """
        key = self._key(node)
        for index, output in enumerate(node.outputs):
            if key is not None and output not in self._numbers and self._through(output) is output:
                self._numbers[output] = self._keys.setdefault((key, index), len(self._keys))
        return key

    def of(self, value: ir.Value) -> int:
        """The number of a value."""
        source = self._through(value)
        known = self._numbers.get(source)
        if known is None:
            known = self._numbers[source] = self._keys.setdefault(content(source, self._constants) or source, len(self._keys))
        return known

    def _key(self, node: ir.Node) -> Hashable | None:
        schema = self._schema(node)
        if schema is None or node.op_type in RANDOM or not self._repeats(node):
            return None
        statics = self._statics(node, schema)
        if statics is None:
            return None
        inputs = [-1 if v is None or formal(schema, i) in statics else self.of(v) for i, v in enumerate(node.inputs)]
        while inputs and inputs[-1] == -1:
            inputs.pop()
        if len(inputs) == 2 and node.op_type in EXCHANGEABLE and not node.domain:
            inputs.sort()
        given = tuple(sorted((name, value) for name, value in statics.items() if value is not None))
        results = len(node.outputs) if schema.outputs and schema.outputs[-1].variadic else 0
        return (node.domain, node.op_type, node.overload, given, tuple(inputs), results)

    def _statics(self, node: ir.Node, schema: Schema) -> Mapping[str, Hashable] | None:
        """The static arguments by name, those at their default as None; None where one can't be compared."""
        rank = axes_rank(node)
        found: dict[str, Hashable] = {}
        for name, attribute in node.attributes.items():
            value = _hashable(attribute)
            if value is None:
                return None
            found[name] = value
        for position, operand in enumerate(node.inputs):
            name = formal(schema, position)
            if operand is not None and is_axis(name) and (held := content(operand, self._constants, _COMPUTED)) is not None:
                found[name] = _axes(held)
        for name, value in found.items():
            spec = schema.attributes.get(name)
            default: Any = None if spec is None else spec.default
            if is_axis(name):
                value, default = (numbered(v, rank, ordered=is_ordered(node.op_type)) for v in (value, default))
            found[name] = None if default is not None and value == default else (type(value).__name__, value)
        return found


def formal(schema: Schema, position: int) -> str:
    """The name of the formal input at a position; "" where there is none, and of each of a variadic one."""
    return schema.inputs[position].name if position < len(schema.inputs) and not schema.inputs[position].variadic else ""


def axes_rank(node: ir.Node) -> int | None:
    """The rank that axes of `node` count in; None where it is not known."""
    value = node.outputs[0] if counts_in_result(node.op_type) else (node.inputs[0] if node.inputs else None)
    return None if value is None or value.shape is None else value.shape.rank()


def _axes(held: tuple[str, tuple[int, ...], bytes]) -> Hashable:
    import numpy as np

    array = np.frombuffer(held[2], dtype=held[0]).reshape(held[1])
    return int(array) if array.ndim == 0 else tuple(int(a) for a in array.reshape(-1))


def _hashable(attribute: ir.Attr) -> Hashable | None:
    """What an attribute says; None where it is a reference, a graph, or a tensor of many elements."""
    if attribute.is_ref():
        return None
    if attribute.type == ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        if tensor.size > _COMPUTED or tensor.dtype == ir.DataType.STRING:
            return None
        return (tensor.dtype.name, tuple(tensor.shape.numpy()), tensor.tobytes())
    if attribute.type in _OPAQUE:
        return None
    value = attribute.value
    return tuple(value) if isinstance(value, list | tuple) else value


def content(value: ir.Value, constants: Constants, most: int = _STORED) -> tuple[str, tuple[int, ...], bytes] | None:
    """A key for what a small constant holds; None for any other value. most: how many elements a stored one may have."""
    producer = value.producer()
    stored = producer is None or producer.op_type == "Constant"
    if not _is_small(value, most if stored else min(most, _COMPUTED)) or not constants.is_constant(value):
        return None
    array = constants.array(value)
    if array is None or array.dtype.hasobject:  # the bytes of strings are where they lie
        return None
    return (array.dtype.name, array.shape, array.tobytes())  # the name tells narrow floats apart, which are all of one kind


def _is_small(value: ir.Value, most: int) -> bool:
    shape = value.shape
    if shape is None:
        return False
    dims = shape.dims
    return all(isinstance(d, int) for d in dims) and prod(dims) <= most  # type: ignore[operator]


_OPAQUE = frozenset(
    {
        ir.AttributeType.GRAPH,
        ir.AttributeType.GRAPHS,
        ir.AttributeType.TENSORS,
        ir.AttributeType.SPARSE_TENSOR,
        ir.AttributeType.SPARSE_TENSORS,
        ir.AttributeType.TYPE_PROTO,
        ir.AttributeType.TYPE_PROTOS,
    }
)
