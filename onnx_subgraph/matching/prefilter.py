"""Whether the structure behind a value leaves a chance that it equals a term: operators only, no bindings, each answer once.

Most candidates fail for their structure. Asking that alone, without names and constants, is a yes or no that never changes while
the graph stands, so it is remembered for each structure and value: patterns that ask for the same operators share it, and the
matcher proper sees few values in vain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import onnx_ir as ir

from onnx_subgraph.language.recipe import UNCHANGED
from onnx_subgraph.matching import layout
from onnx_subgraph.matching.assignment import can_be_assigned
from onnx_subgraph.matching.chain import MOST_FACTORINGS, Factoring, Factorings, Heads
from onnx_subgraph.matching.equalities import (
    ASSOCIATIVE,
    COMMUTATIVE,
    LINEAR,
    PRODUCT_OPERATORS,
    SUM_OPERATORS,
    SWAPPING,
    Identity,
    orders,
    standing_for,
)
from onnx_subgraph.matching.rearrangement import OPERATORS
from onnx_subgraph.matching.recipe import parse_recipe
from onnx_subgraph.matching.structure import ANYTHING, Absent, Alternatives, Anything, Applied, Items, Structure, Word
from onnx_subgraph.matching.view import View, Virtual

Target = ir.Value | Virtual

MOST_OPERANDS = 64
"""A bound on the operands of nested associative operators that are looked at."""


class Prefilter:
    """Structures held against the values of one view, as one kind of pattern sees them."""

    def __init__(self, factorings: Factorings) -> None:
        self.view = factorings.view
        self.look = factorings.look
        self.factorings = factorings
        self.alternatives = cache(self._alternatives)
        self.chains = cache(self._chains)
        self.assignable = cache(self._assignable)
        self._known = cache(self._ask)
        self._cut: dict[Structure, list[ir.Value]] = {}

    def __call__(self, structure: Structure, value: Target) -> bool:
        """Whether `value` may have this structure."""
        return structure is ANYTHING or isinstance(value, Virtual) or self._known(structure, value)

    def cut_for(self, structures: Iterable[Structure]) -> Iterable[ir.Value]:
        """The values of which not every factoring was looked at, in vain, for one of these structures."""
        return dict.fromkeys(v for s in dict.fromkeys(structures) for v in self._cut.get(s, ())) if self._cut else ()

    def _ask(self, structure: Structure, value: ir.Value) -> bool:
        match structure:
            case Applied():
                return self._applied(structure, value)
            case Items():
                return bool(self.chains(structure, value))
            case Alternatives():
                return bool(self.alternatives(structure, value))
            case Anything(constant=constant):
                return constant is None or self.view.constants.is_constant(value) is constant
            case Word():
                return self._word(structure, value)
            case Absent():
                return False

    def _alternatives(self, structure: Alternatives, value: ir.Value) -> tuple[int, ...]:
        """Which of the alternatives `value` may have."""
        node = self.look.through(value).producer
        likely = headed_by(structure, None if node is None else (node.domain, node.op_type))
        return tuple([index for index in likely if self(structure.alternatives[index], value)])

    def _word(self, structure: Word, value: ir.Value) -> bool:
        if structure.recipe == UNCHANGED:
            last = self.view.producer(value)
            if last is None or last.domain or last.op_type not in OPERATORS:
                return False
            return self.view.through(value)[0] is not value or len(layout.source_ranks(self.view, value, "rearrange")) > 1
        node = self.look.through(value).producer
        if node is None or node.domain or node.op_type not in layout.PRODUCERS[structure.word]:
            return False
        if value.shape is None or not structure.recipe:
            return True
        recipe = parse_recipe(structure.recipe)
        ranks = layout.source_ranks(self.view, value, structure.word)
        return value.shape.rank() == len(recipe.right) and len(recipe.left) in ranks

    def _applied(self, structure: Applied, value: ir.Value) -> bool:
        node = self.look.through(value).producer
        if node is None:
            return False
        identity = (node.domain, node.op_type)
        if identity not in structure.operators:  # it may stand for one of them, if it is not their sum with something
            return identity in standing_for(structure.operators) and len(node.inputs) == 2
        inputs, arguments = node.inputs, structure.arguments
        if node.op_type in COMMUTATIVE:
            operands = self._operands(node) if node.op_type in ASSOCIATIVE else inputs
            return all(any(v is not None and self(a, v) for v in operands) for a in arguments)
        if identity in SWAPPING:
            return any(self._aligned(structure, order) for order in orders(identity, inputs))
        return self._aligned(structure, inputs)

    def _aligned(self, structure: Applied, inputs: Sequence[ir.Value | None]) -> bool:
        """Whether the inputs may be the arguments in this order."""
        arguments = structure.arguments
        return all(v is None or self(a, v) for a, v in zip(arguments[: structure.aligned], inputs, strict=False))

    def _operands(self, node: ir.Node) -> list[ir.Value]:
        """The operands of an associative operator, those of its operands that are the same operator among them."""
        found: list[ir.Value] = []
        pending = [node]
        while pending and len(found) < MOST_OPERANDS:
            for operand in pending.pop().inputs:
                if operand is not None:
                    found.append(operand)
                    inner = self.look.through(operand).producer
                    if inner is not None and (inner.domain, inner.op_type) == (node.domain, node.op_type):
                        pending.append(inner)
        return found

    def _chains(self, wanted: Items, value: ir.Value) -> tuple[Factoring, ...]:
        """The factorings of `value`, constants as items where nothing is said of constants, that have this structure."""
        if not self._has_heads(wanted, value):
            return ()
        seen = variants(self.factorings, wanted, value)
        fitting = tuple([f for f in seen if self._fits(wanted, f)])
        if len(seen) >= MOST_FACTORINGS and not fitting:
            self._cut.setdefault(wanted, []).append(value)
        return fitting

    def _has_heads(self, wanted: Items, value: ir.Value) -> bool:
        """Whether each item that is wanted of certain operators can be an item of `value`, before any factoring is grown."""
        required = required_heads(wanted)
        if not required:
            return True
        heads = self.factorings.heads(value, wanted.is_product)
        return heads is None or not any(map(heads.isdisjoint, required))

    def _assignable(self, wanted: Items, value: ir.Value) -> tuple[Factoring, ...]:
        """Those of `chains` in which every item that is wanted can have an item of its own."""
        items, found = wanted.items, self.chains(wanted, value)
        if len(items) < 3:
            return found
        may = lambda term, item: self._may(wanted, term, item)  # noqa: E731
        return tuple(factoring for factoring in found if can_be_assigned(items, factoring.items, may))

    def _fits(self, wanted: Items, factoring: Factoring) -> bool:
        return all(any(self._may(wanted, one, item) for item in factoring.items) for one in wanted.items)

    def _may(self, wanted: Items, one: tuple[Structure, float], item: tuple[Target, float]) -> bool:
        """Whether an item of a factoring may be this one of those wanted; an addend may be the negative of what is wanted."""
        return self(one[0], item[0]) if one[1] == item[1] else not wanted.is_product


@cache
def heads(structure: Structure) -> Heads | None:
    """The operators one of which computes what has this structure; None where it may be any, or none."""
    match structure:
        case Applied(operators=operators):
            return standing_for(operators)
        case Items(is_product=is_product, is_empty=False):
            return _PRODUCTS if is_product else SUM_OPERATORS
        case Alternatives(alternatives=alternatives):
            each = [heads(alternative) for alternative in alternatives]
            return None if None in each else frozenset().union(*(one for one in each if one is not None))
        case Word(word=word, recipe=recipe) if recipe != UNCHANGED:
            return frozenset(("", operator) for operator in layout.PRODUCERS[word] | OPERATORS)
        case _:
            return None


@cache
def required_heads(wanted: Items) -> tuple[Heads, ...]:
    """The `heads` of those items that can't be just any value; an addend may also be the negative of what is wanted."""
    each = dict.fromkeys(heads(item) for item, _ in wanted.items)
    return tuple(found if wanted.is_product else found | _PRODUCTS for found in each if found is not None)


@cache
def headed_by(structure: Alternatives, identity: Identity | None) -> tuple[int, ...]:
    """Which of the alternatives may be what an operator computes; None is what none does."""
    each = map(heads, structure.alternatives)
    return tuple(index for index, operators in enumerate(each) if operators is None or identity in operators)


_PRODUCTS = PRODUCT_OPERATORS | {("", operator) for operator in LINEAR}


def variants(factorings: Factorings, wanted: Items, value: ir.Value) -> list[Factoring]:
    """The factorings with as many items as are wanted, and for a product with the same exponents.

    Where nothing is said of constants, a factoring's constants are ordinary items; a constant that has a name must be there.
    """
    view, source, is_product = factorings.view, factorings.look.through(value).value, wanted.is_product
    if not wanted.is_empty and view.expanded(source, product=is_product) is None:
        return []
    count, neutral = len(wanted.items), 1.0 if is_product else 0.0
    folded = not wanted.has_scalar and wanted.is_silent
    seen: list[Factoring] = []
    for factoring in factorings(value, wanted.most, count, product=is_product):
        items, constant, scalars, *_ = factoring
        if len(items) == count:
            if wanted.needs_scalar and not scalars and constant == neutral:
                continue
        elif folded and scalars and len(items) + len(scalars) == count:
            factoring = _with_scalars(view, factoring, product=is_product)
        else:
            continue
        if not is_product or factoring.powers == wanted.powers:
            seen.append(factoring)
    if wanted.has_scalar:  # a scale takes all the scalars that there are, those inside the operands first
        seen.sort(key=lambda factoring: -len(factoring.nodes))
    return seen


def _with_scalars(view: View, factoring: Factoring, *, product: bool) -> Factoring:
    """The factoring with its constants as ordinary items."""
    kept = factoring.constant
    for scalar, power in factoring.scalars:
        number = view.scalar(scalar)
        assert number is not None
        kept = kept / number.number**power if product else kept - power * number.number
    return Factoring((*factoring.items, *factoring.scalars), kept, (), factoring.nodes, factoring.tolerance)
