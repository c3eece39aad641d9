"""Whether the structure behind a value leaves a chance that it equals a term: operators only, no bindings, each answer once.

Most candidates fail for their structure. Asking that alone, without names and constants, is a yes or no that never changes while
the graph stands, so it is remembered for each term and value, and the matcher proper sees few values in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil

import onnx_ir as ir

from onnx_subgraph.language.recipe import UNCHANGED
from onnx_subgraph.matching import layout
from onnx_subgraph.matching.assignment import can_be_assigned
from onnx_subgraph.matching.chain import MOST_FRONTS, Front, Fronts
from onnx_subgraph.matching.normal import (
    ASSOCIATIVE,
    COMMUTATIVE,
    Choice,
    Constant,
    Layout,
    Name,
    Normal,
    NormalPattern,
    Nothing,
    Operation,
    Product,
    Sum,
    is_empty,
)
from onnx_subgraph.matching.view import View, Virtual

Target = ir.Value | Virtual
Through = Callable[[ir.Value], tuple[ir.Value, tuple[ir.Node, ...]]]


MOST_OPERANDS = 64
"""A bound on the operands of nested associative operators that are looked at."""


class Plausibility:
    """The structure of one view, held against the terms of one pattern."""

    def __init__(self, view: View, normal: NormalPattern, fronts: Fronts) -> None:
        self.view = view
        self.constant = normal.constant
        self.fronts = fronts
        self._known: dict[tuple[int, ir.Value], bool] = {}
        self.cut: list[ir.Value] = []  # the values of which not every front was looked at, in vain
        self._chains: dict[tuple[int, ir.Value], tuple[Front, ...]] = {}
        self._assignable: dict[tuple[int, ir.Value], tuple[Front, ...]] = {}

    def __call__(self, term: Normal, value: Target) -> bool:
        """Whether `value` may equal `term`."""
        while isinstance(term, Name) and term.definition is not None:
            term = term.definition
        if isinstance(value, Virtual):
            return True
        if isinstance(term, Name):
            constant = self.constant.get(term.name)
            return constant is None or self.view.constants.is_constant(value) is constant
        key = (id(term), value)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._ask(term, value)
        return known

    def _ask(self, term: Normal, value: ir.Value) -> bool:
        if isinstance(term, Operation):
            return self._operation(term, value)
        if isinstance(term, Product | Sum):
            return bool(self.chains(term, value))
        if isinstance(term, Choice):
            return any(self(alternative, value) for alternative in term.alternatives)
        if isinstance(term, Nothing):
            return False
        if isinstance(term, Constant):
            return self.view.constants.is_constant(value)
        assert isinstance(term, Layout)
        if term.term.recipe == UNCHANGED:
            last = self.view.producer(value)
            return last is not None and not last.domain and last.op_type in layout.OPERATORS
        node = self.view.producer(self.fronts.through(value)[0])
        if node is None or node.domain or node.op_type not in layout.PRODUCERS[term.term.word]:
            return False
        if value.shape is None or not term.term.recipe:
            return True
        return value.shape.rank() == len(layout.parse_recipe(term.term.recipe).right)

    def _operation(self, term: Operation, value: ir.Value) -> bool:
        node = self.view.producer(self.fronts.through(value)[0])
        if node is None:
            return False
        identity = (node.domain, node.op_type)
        if identity not in term.operators:
            return node.op_type == "Gemm" and ("", "MatMul") in term.operators and len(node.inputs) == 2
        inputs, arguments = node.inputs, term.arguments
        if node.op_type in COMMUTATIVE:
            operands = self._operands(node) if node.op_type in ASSOCIATIVE else inputs
            return all(any(v is not None and self(a, v) for v in operands) for a in arguments)
        # A keyword may take an input from between the positional ones; the first is always the first.
        aligned = len(arguments) if not term.term.keywords else 1
        return all(v is None or self(a, v) for a, v in zip(arguments[:aligned], inputs, strict=False))

    def _operands(self, node: ir.Node) -> list[ir.Value]:
        """The operands of an associative operator, those of its operands that are the same operator among them."""
        found: list[ir.Value] = []
        pending = [node]
        while pending and len(found) < MOST_OPERANDS:
            for operand in pending.pop().inputs:
                if operand is not None:
                    found.append(operand)
                    inner = self.view.producer(self.fronts.through(operand)[0])
                    if inner is not None and (inner.domain, inner.op_type) == (node.domain, node.op_type):
                        pending.append(inner)
        return found

    def chains(self, term: Product | Sum, value: ir.Value) -> tuple[Front, ...]:
        """The fronts of `value`, constants as items where the pattern speaks of none, that have the structure of `term`."""
        key = (id(term), value)
        known = self._chains.get(key)
        if known is None:
            seen = tuple(variants(self.view, self.fronts, term, value))
            known = self._chains[key] = tuple(f for f in seen if self._fits(term, f))
            if len(seen) >= MOST_FRONTS and not known and value not in self.cut:
                self.cut.append(value)
        return known

    def assignable(self, term: Product | Sum, value: ir.Value) -> tuple[Front, ...]:
        """Those of `chains` in which every item of the term can have an item of its own."""
        key = (id(term), value)
        known = self._assignable.get(key)
        if known is None:
            known = self._assignable[key] = tuple(f for f in self.chains(term, value) if self._is_assignable(term, f))
        return known

    def _is_assignable(self, term: Product | Sum, front: Front) -> bool:
        items = _items(term)
        return len(items) < 3 or can_be_assigned(items, front.items, lambda t, i: self._may(term, items[t], front.items[i]))

    def _fits(self, term: Product | Sum, front: Front) -> bool:
        return all(any(self._may(term, wanted, item) for item in front.items) for wanted in _items(term))

    def _may(self, term: Product | Sum, wanted: tuple[Normal, float], item: tuple[Target, float]) -> bool:
        """Whether an item of a front may be this item of the term; an addend may be the negative of what is wanted."""
        return self(wanted[0], item[0]) if wanted[1] == item[1] else isinstance(term, Sum)


def _items(term: Product | Sum) -> tuple[tuple[Normal, float], ...]:
    return term.factors if isinstance(term, Product) else term.addends


def variants(view: View, fronts: Fronts, term: Product | Sum, value: ir.Value) -> Iterator[Front]:
    """The fronts with as many items, and for a product the same exponents, as the term has.

    Where the pattern speaks of no constant, a front's constants are ordinary items; a constant that it names must be there.
    """
    source = fronts.through(value)[0]
    if not is_empty(term) and (view.product(source) if isinstance(term, Product) else view.sum(source)) is None:
        return
    if isinstance(term, Product):
        items, neutral, silent = term.factors, 1.0, term.coefficient == 1.0
        found = fronts.product(value, sum(max(1, ceil(abs(power))) for _, power in items), len(items))
    else:
        items, neutral, silent = term.addends, 0.0, term.constant == 0.0
        found = fronts.sum(value, len(items), len(items))
    if term.scalar is not None:  # a scale takes all the scalars that there are, those inside the operands first
        found = tuple(sorted(found, key=lambda front: -len(front.nodes)))
    powers = tuple(sorted(power for _, power in items)) if isinstance(term, Product) else None
    for front in found:
        if len(front.items) == len(items) and (powers is None or front.powers == powers):
            if term.scalar is None or front.scalars or front.constant != neutral:
                yield front
        elif front.scalars and term.scalar is None and silent and len(front.items) + len(front.scalars) == len(items):
            whole = _with_scalars(view, front, product=powers is not None)
            if powers is None or whole.powers == powers:
                yield whole


def _with_scalars(view: View, front: Front, *, product: bool) -> Front:
    """The front with its constants as ordinary items."""
    kept = front.constant
    for scalar, power in front.scalars:
        number = view.scalar(scalar)
        assert number is not None
        kept = kept / number.number**power if product else kept - power * number.number
    return Front((*front.items, *front.scalars), kept, (), front.nodes, front.tolerance)
