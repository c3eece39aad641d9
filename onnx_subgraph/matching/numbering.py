"""Value numbering: find values of a graph that are the same computation of the same values, however it is written.

Two nodes are equal if their operators, static arguments and operands are. A static argument with its default value counts as
absent. An axis counts from the back where the rank is known. An attribute equals an input of the same name. Constants are
compared by their elements. The operands of a sum or product are unordered. Random and unknown operators, and those with nested
graphs, equal nothing, because they may give different results for the same inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import cache, lru_cache, partial
from math import prod
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from onnx_subgraph.language.axis import numbered
from onnx_subgraph.matching.remembered import remembered
from onnx_subgraph.model.attributes import plain_value
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.operators import Schema, counts_in_result, is_axis, is_elementwise, is_ordered
from onnx_subgraph.operators.names import KNOWN_DOMAINS
from onnx_subgraph.operators.randomness import RANDOM

if TYPE_CHECKING:
    import numpy as np

EXCHANGEABLE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"})
"""Operators whose two operands can be swapped without changing any bit of the result."""
NOOP = "noop_with_empty_axes"
"""An attribute of reductions that means nothing if they are given axes."""
_COMPUTED, _STORED = 16, 4096
"""Maximum number of elements of a constant that is compared by its elements: of a computed one, and of a stored one."""


class Numbering:
    """The numbers of the values of one graph; congruent values have equal numbers.

    schema: the schema of a node, None for an unknown operator. through: the value behind operators that pass their input on.
    repeats: whether a node gives the same result each time, where its operator does not decide this. beside: the numbering of
    another graph, to compare the values of both.
    """

    def __init__(
        self,
        constants: Constants,
        schema: Callable[[ir.Node], Schema | None],
        through: Callable[[ir.Value], ir.Value] = lambda value: value,
        repeats: Callable[[ir.Node], bool] = lambda node: node.domain in KNOWN_DOMAINS,
        beside: Numbering | None = None,
    ) -> None:
        self._repeats = repeats
        self._schema = schema
        self._through = through
        self._numbers: dict[ir.Value, int] = {}
        self._keys: dict[Hashable, int] = {} if beside is None else beside._keys
        self._common: dict[ir.Node, Hashable | None] = {}
        self._content = remembered(partial(content, constants=constants))

    def add(self, node: ir.Node) -> Hashable | None:
        """Number the results of a node. Returns the key that equal nodes share; None where the node equals no other."""
        if node in self._common:
            return self._common[node]
        graph, common, through = node.graph, self._common, self._through
        pending = [node]
        while pending:  # Operands first. Not recursive: chains can be longer than Python's recursion limit.
            current = pending[-1]
            inputs = [through(v).producer() for v in current.inputs if v is not None]
            unknown = [n for n in inputs if n is not None and n not in common and n.graph is graph]
            if unknown:
                pending += unknown
            else:
                pending.pop()
                self._number(current)
        return self._common[node]

    def assume(self, value: ir.Value, number: int) -> None:
        """Give a value the number of a value in another graph, which it represents."""
        self._numbers[value] = number

    def leave(self, node: ir.Node) -> None:
        """Make the results of a node unequal to all other values."""
        self._common.setdefault(node, None)

    def of(self, value: ir.Value) -> int:
        """The number of a value."""
        source = self._through(value)
        known = self._numbers.get(source)
        if known is None:
            node = source.producer()
            if node is not None and node not in self._common:
                self.add(node)
                known = self._numbers.get(source)
        if known is None:
            known = self._numbers[source] = self._keys.setdefault(self._content(source) or source, len(self._keys))
        return known

    def _number(self, node: ir.Node) -> None:
        key = self._common[node] = self._key(node)
        for index, output in enumerate(node.outputs):
            if key is not None and output not in self._numbers and self._through(output) is output:
                held = self._content(output)
                self._numbers[output] = self._keys.setdefault((key, index) if held is None else held, len(self._keys))

    def _key(self, node: ir.Node) -> Hashable | None:
        schema = self._schema(node)
        if schema is None or node.op_type in RANDOM or not self._repeats(node):
            return None
        if node.op_type == "Constant" and (held := self._content(node.outputs[0])) is not None:
            return held
        statics = self._statics(node, schema)
        if statics is None:
            return None
        fixed = [position for position, name in _axis_inputs(schema) if name in statics]
        inputs = [-1 if v is None or i in fixed else self._operand(v, node) for i, v in enumerate(node.inputs)]
        while inputs and inputs[-1] == -1:
            inputs.pop()
        if len(inputs) == 2 and not node.domain and plain_operator(node) in EXCHANGEABLE:
            inputs.sort()
        elif node.op_type == "CastLike" and not node.domain:
            inputs = inputs[:1]
        given = tuple(sorted((name, value) for name, value in statics.items() if value is not None)) if statics else ()
        results = len(node.outputs) if schema.outputs and schema.outputs[-1].variadic else 0
        return (node.domain, plain_operator(node), node.overload, given, tuple(inputs), results)

    def _operand(self, value: ir.Value, node: ir.Node) -> int:
        """The number of an operand.

        A one-element constant has one number for every rank that does not raise the rank of the result.
        """
        held = self._content(value) if is_elementwise(node.op_type, node.domain) else None
        if held is None or not held[1] or any(d != 1 for d in held[1]):
            return self.of(value)
        others = (v.shape.rank() for v in node.inputs if v is not None and v is not value and v.shape is not None)
        if len(held[1]) > max(others, default=0):
            return self.of(value)
        return self._keys.setdefault((held[0], (), held[2]), len(self._keys))

    def _statics(self, node: ir.Node, schema: Schema) -> Mapping[str, Hashable] | None:
        """The static arguments by name, None for a default value; None where one cannot be compared."""
        found: dict[str, Hashable] = {}
        if node.op_type == "CastLike" and not node.domain:
            dtype = node.outputs[0].dtype
            if dtype is None:
                return None
            found["to"] = int(dtype)
        for name, attribute in node.attributes.data.items():
            value = _hashable(attribute)
            if value is None:
                return None
            found[name] = value
        for position, name in _axis_inputs(schema):
            operand = node.inputs[position] if position < len(node.inputs) else None
            if operand is not None and (held := self._content(operand)) is not None and is_short(operand):
                found[name] = _axes(held)
        if found.get("axes") not in (None, ()):
            found.pop(NOOP, None)
        rank = axes_rank(node) if found else None
        for name, value in found.items():
            spec = schema.attributes.get(name)
            default: Any = None if spec is None else spec.default
            if is_axis(name):
                value, default = (numbered(v, rank, ordered=is_ordered(node.op_type)) for v in (value, default))
            found[name] = None if default is not None and value == default else (type(value).__name__, value)
        return found


def plain_operator(node: ir.Node) -> str:
    """The operator of a node, or an equivalent simpler one: Add for a Sum of two, Cast for CastLike to a known type."""
    operator = node.op_type
    return plain_name(operator, node.domain, len(node.inputs)) if operator in _WITH_PLAIN else operator


_WITH_PLAIN = frozenset({"CastLike", "Sum"})
"""The operators that `plain_name` may give another name."""


def plain_name(operator: str, domain: str, operands: int) -> str:
    """As `plain_operator`, for an operator with this number of operands."""
    if operator == "CastLike" and not domain:
        return "Cast"
    return "Add" if operator == "Sum" and operands == 2 and not domain else operator


def formal(schema: Schema, position: int) -> str:
    """The name of the formal input at a position; "" where there is none, and for a variadic input."""
    return schema.inputs[position].name if position < len(schema.inputs) and not schema.inputs[position].variadic else ""


@lru_cache(maxsize=1024)
def _axis_inputs(schema: Schema) -> tuple[tuple[int, str], ...]:
    """The positions and names of the inputs that are axes."""
    names = (formal(schema, position) for position in range(len(schema.inputs)))
    return tuple((position, name) for position, name in enumerate(names) if is_axis(name))


def axes_rank(node: ir.Node) -> int | None:
    """The rank of the value whose axes `node` numbers; None where it is unknown."""
    value = node.outputs[0] if counts_in_result(node.op_type) else (node.inputs[0] if node.inputs else None)
    return None if value is None or value.shape is None else value.shape.rank()


def _axes(held: tuple[str, tuple[int, ...], bytes]) -> Hashable:
    import numpy as np

    array = np.frombuffer(held[2], dtype=held[0]).reshape(held[1])
    return int(array) if array.ndim == 0 else tuple(int(a) for a in array.reshape(-1))


def _hashable(attribute: ir.Attr) -> Hashable | None:
    """The value of an attribute; None for a reference, a graph, or a tensor of many elements."""
    if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
        tensor: ir.TensorProtocol = attribute.value  # `as_tensor` is slower: it checks the protocol
        if tensor.size > _COMPUTED or tensor.dtype == ir.DataType.STRING:
            return None
        return (tensor.dtype.name, tuple(tensor.shape.numpy()), tensor.tobytes())
    value: Hashable | None = plain_value(attribute)
    return value


def content(value: ir.Value, constants: Constants, most: int = _STORED) -> tuple[str, tuple[int, ...], bytes] | None:
    """A key for the elements of a small constant; None for any other value.

    most: maximum number of elements of a stored constant.
    """
    if not constants.is_constant(value):
        return None
    producer = value.producer()
    stored = producer is None or producer.op_type == "Constant"
    if not _is_small(value, most if stored else min(most, _COMPUTED)):
        return None
    array = constants.array(value)
    if array is None or array.dtype.hasobject:  # the bytes of an object array are addresses
        return None
    return (_name(array.dtype), array.shape, array.tobytes())


@cache
def _name(dtype: np.dtype[Any]) -> str:
    """The name of a type, which numpy makes slowly. Unlike the kind, it distinguishes narrow floats."""
    return dtype.name


def is_short(value: ir.Value) -> bool:
    """Whether a constant is short enough to be a list of axes."""
    return _is_small(value, _COMPUTED)


def _is_small(value: ir.Value, most: int) -> bool:
    shape = value.shape
    if shape is None:
        return False
    dims = shape.dims
    return all(isinstance(d, int) for d in dims) and prod(dims) <= most  # type: ignore[operator]
