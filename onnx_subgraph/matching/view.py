"""What the matcher asks about one graph, with caches: sources, readers, constants, congruence.

A view does not change the graph, and is discarded when the graph changes. Two values are *congruent* if they are the same
computation of the same values (exporters compute a mean twice; `onnx_subgraph.matching.numbering`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from math import isfinite
from typing import Any

import onnx_ir as ir

from onnx_subgraph.facts import Facts
from onnx_subgraph.matching.equalities import GEMM, MATCHED_AS, PLAIN, Identity
from onnx_subgraph.matching.interior import Order
from onnx_subgraph.matching.numbering import EXCHANGEABLE, Numbering, is_short, plain_operator
from onnx_subgraph.matching.remembered import remembered
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.transparent import PASSING, passed_on
from onnx_subgraph.model.unrounded import NARROW, unrounded
from onnx_subgraph.operators import Schema, history, is_standard, latest_opset, schema

TOLERANCE = {ir.DataType.FLOAT16: 6e-4, ir.DataType.BFLOAT16: 5e-3}
"""Relative error that rounding to the type may give a stored constant."""
ROUNDED = 2e-5
"""Relative error for wider types, from exporters' rounding: 1.4142 is 1e-5 off the root of two; 1.42 is a different number."""


def close(a: float, b: float, tolerance: float = 0.0) -> bool:
    """Whether two constants are equal up to the given or default rounding error. An infinity only equals itself."""
    return a == b or (isfinite(a) and isfinite(b) and abs(a - b) <= max(tolerance, 1e-6) * max(abs(a), abs(b), 1e-30))


DEEP = 4
"""How many operators behind two values are compared before value numbering."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A one-element constant: its number, its stored rank, and the relative error that it may have."""

    number: float
    rank: int
    tolerance: float


@dataclass(frozen=True, slots=True)
class Virtual:
    """A value that no node of the graph computes by itself: the product inside a Gemm, or a MatMul without its scale."""

    operator: str
    inputs: tuple[ir.Value | Virtual, ...]
    node: ir.Node


Operands = Sequence["ir.Value | None"]


def is_plain_gemm(node: ir.Node) -> bool:
    """Whether a Gemm is a @ b + c: no transposition, no scale."""
    return all(attribute.value == PLAIN.get(name, 0) for name, attribute in node.attributes.items())


def pooled_axes(node: ir.Node) -> tuple[int, ...]:
    """The axes over which a GlobalAveragePool takes the mean; none where the rank is not known."""
    value = node.inputs[0]
    return () if value is None or value.shape is None else tuple(range(2, value.shape.rank()))


class View:
    """One graph (the main graph, a nested body, or a function's), with cached analyses for the matcher."""

    def __init__(self, graph: ir.Graph, constants: Constants, opsets: dict[str, int], owner: ir.Graph | ir.Function) -> None:
        self.graph = graph
        self.owner = owner
        self.constants = constants
        self.opsets = opsets
        self.nodes = tuple(graph)
        self.position = {node: i for i, node in enumerate(self.nodes)}
        self.identity = {node: (node.domain, node.op_type) for node in self.nodes}
        self.by_operator: dict[Identity, list[ir.Node]] = defaultdict(list)
        for node, identity in self.identity.items():
            self.by_operator[identity].append(node)
        self.count = remembered(self._count)
        producers = {value: node for node in self.nodes for value in node.outputs}
        self.producer: Callable[[ir.Value], ir.Node | None] = producers.get
        """The node of this graph that computes a value; None for inputs, initializers and captured values."""
        self.through = remembered(self._through)
        self.scalar = remembered(self._scalar)
        self.consumers = remembered(self._consumers)
        self.facts = remembered(partial(Facts, constants))
        self._are_congruent = cache(self._compare)
        self._shared: dict[Hashable, Any] = {}
        self._schema = remembered(self._schema_of)

    def shared(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """A value shared by several patterns: returned from the cache, or made and cached."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    def _count(self, operators: frozenset[Identity]) -> int:
        """The number of nodes with one of these operators."""
        return sum(len(self.by_operator.get(identity, ())) for identity in operators)

    def schema(self, node: ir.Node) -> Schema | None:
        """The schema of `node` at the opset of this graph, None for an unknown operator.

        An operator from a later opset has its first schema: onnxruntime loads LayerNormalization at any opset.
        """
        return self._schema((node.domain, node.op_type))

    def _schema_of(self, identity: Identity) -> Schema | None:
        domain, operator = identity
        opset = self.opsets.get(domain, 1)
        first = history(operator, domain)[-1:]
        early = first[0] if first and first[0].since_version > opset else None
        return schema(operator, domain, opset) or early

    def is_settled(self, node: ir.Node) -> bool:
        """Whether attributes of `node` that its schema lacks can be ignored: true for standard operators at a released opset."""
        return not node.domain and self.opsets.get("", 1) <= latest_opset() and is_standard(node.op_type)

    def _through(self, value: ir.Value) -> tuple[ir.Value, tuple[ir.Node, ...]]:
        """The value behind Identity, inference Dropout and other transparent nodes, and those nodes of this graph."""
        node = value.producer()
        if node is None or node.op_type not in PASSING or (end := self.constants.see_through(value)) is value:
            return value, ()
        passed = []
        while value is not end and (node := self.producer(value)) is not None:
            passed.append(node)
            inner = passed_on(self.constants, value)
            assert inner is not None
            value = inner
        return value, tuple(passed)

    def _scalar(self, value: ir.Value) -> Scalar | None:
        """`value` as a one-element constant number, or None."""
        if value.shape is not None and any(not isinstance(dim, int) or dim != 1 for dim in value.shape):
            return None
        if not self.constants.is_constant(value):
            return None
        array = self.constants.array(value)
        if array is None or array.size != 1 or array.dtype.kind in "SUO":
            return None
        tolerance = TOLERANCE.get(value.dtype, ROUNDED) if value.dtype is not None else ROUNDED
        exact = unrounded(self.constants, value) if value.dtype in NARROW else None
        return Scalar(float(array.reshape(-1)[0]) if exact is None else exact, array.ndim, tolerance)

    def meaning(self, node: ir.Node, wanted: Collection[Identity]) -> Identity:
        """The operator that a node is matched as: MatMul for a plain Gemm without addend, ReduceMean for a GlobalAveragePool.

        It is the node's own operator if that is wanted.
        """
        identity = (node.domain, node.op_type)
        other = MATCHED_AS.get(identity)
        if other is None or identity in wanted:
            return identity
        is_other = len(node.inputs) == 2 and is_plain_gemm(node) if node.op_type == GEMM else bool(pooled_axes(node))
        return other if is_other else identity

    @cached_property
    def order(self) -> Order:
        """The order of this graph."""
        return Order.of(self.position)

    @cached_property
    def numbering(self) -> Numbering:
        """The value numbers of this graph, computed on demand."""
        return Numbering(self.constants, self.schema, remembered(lambda value: self.through(value)[0]))

    def same(self, a: ir.Value, b: ir.Value) -> bool:
        """Whether `a` and `b` are congruent."""
        return a is b or self._are_congruent(a, b)

    def _compare(self, a: ir.Value, b: ir.Value) -> bool:
        a, b = self.through(a)[0], self.through(b)[0]
        return a is b or (self._may_be_congruent(a, b) and self.numbering.of(a) == self.numbering.of(b))

    def _may_be_congruent(self, a: ir.Value, b: ir.Value, depth: int = DEEP) -> bool:
        """Whether the operators behind two values allow them to be congruent. Nearly all pairs differ after a few nodes."""
        a, b = self.through(a)[0], self.through(b)[0]
        if a is b or depth == 0:
            return True
        first, second = self.producer(a), self.producer(b)
        if self.constants.is_constant(a):
            return self.constants.is_constant(b) and self._may_hold_the_same(a, b)
        if first is None or second is None:
            return False
        if plain_operator(first) != plain_operator(second) or first.domain != second.domain or a.index() != b.index():
            return False
        return self._may_read_the_same(first.inputs, second.inputs, depth - 1) or (
            plain_operator(first) in EXCHANGEABLE and self._may_read_the_same(first.inputs, second.inputs[::-1], depth - 1)
        )

    def _may_hold_the_same(self, a: ir.Value, b: ir.Value) -> bool:
        """Whether two constants may be equal. Short ones may be axes, which have two equal numberings."""
        stored = a.producer() is None and b.producer() is None
        return not stored or is_short(a) or self.numbering.of(a) == self.numbering.of(b)

    def _may_read_the_same(self, first: Operands, second: Operands, depth: int) -> bool:
        pairs = zip(first, second, strict=False)
        return all(a is None or b is None or self._may_be_congruent(a, b, depth) for a, b in pairs)

    def _consumers(self, value: ir.Value) -> tuple[ir.Node, ...]:
        """The nodes of this graph that read `value`, directly or through transparent nodes, without repetition."""
        found: list[ir.Node] = []
        seen: set[ir.Node] = set()
        pending = [value]
        while pending:
            for usage in pending.pop().uses():
                node = usage.node
                if node in seen or node not in self.position:
                    continue
                seen.add(node)
                if usage.idx == 0 and self.through(node.outputs[0])[0] is not node.outputs[0]:
                    pending.append(node.outputs[0])
                else:
                    found.append(node)
        return tuple(found)
