"""Prefilter: whether the operators behind a value allow it to equal a term, without bindings; cached.

Most candidates fail because of their structure. The check without names and constants is a yes or no that stays valid while the
graph does not change. So it is cached by structure and value, and patterns with the same operators share it. The matcher itself
then tries few values in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import combinations, islice
from typing import TypeVar

import onnx_ir as ir

from onnx_subgraph.language.recipe import UNCHANGED, ranked
from onnx_subgraph.matching import layout
from onnx_subgraph.matching.chain import MOST_FACTORINGS, Factorings, Heads
from onnx_subgraph.matching.equalities import (
    ASSOCIATIVE,
    COMMUTATIVE,
    LINEAR,
    PRODUCT_OPERATORS,
    REARRANGING,
    SUM_OPERATORS,
    SWAPPING,
    Identity,
    orders,
    standing_for,
)
from onnx_subgraph.matching.expansion import Factoring
from onnx_subgraph.matching.lookthrough import LookThrough
from onnx_subgraph.matching.recipe import parse_recipe
from onnx_subgraph.matching.remembered import remembered
from onnx_subgraph.matching.structure import Absent, Alternatives, Anything, Applied, Form, Items, Structure, Word
from onnx_subgraph.matching.view import View, Virtual

T = TypeVar("T")
Target = ir.Value | Virtual
Question = Callable[[ir.Value], T]
"""A cached predicate or function of a value."""

MOST_OPERANDS = 64
"""Maximum number of operands of nested associative operators that are visited."""


class Prefilter:
    """The values of one view that may have given structures, for patterns with the same look-through.

    question: structure → predicate: whether a value may have it; any true answer is yes. alternatives: structure → function: the
    indices of alternatives that a value may have. chains: sum or product → function: the factorings of a value with this
    structure; constants count as items if the structure has no constant. variants: form → function: the factorings of a value
    that fit but for their items; chains with the same form share them.
    """

    def __init__(self, look: LookThrough) -> None:
        self.view = look.view
        self.look = look
        self.factorings = {is_product: Factorings(look, is_product=is_product) for is_product in (False, True)}
        self.question = remembered(self._question)
        self.alternatives = remembered(self._alternatives)
        self.chains = remembered(self._chains)
        self.variants = remembered(self._variants)
        self._cut: dict[Structure, list[ir.Value]] = {}

    def cut_for(self, structures: Iterable[Structure]) -> Iterable[ir.Value]:
        """The values for which factorings were cut off and none fitted, for one of these structures."""
        return dict.fromkeys(v for s in dict.fromkeys(structures) for v in self._cut.get(s, ())) if self._cut else ()

    def _question(self, structure: Structure) -> Question[object]:
        match structure:
            case Applied():
                return remembered(self._applied(structure))
            case Items():
                return self.chains(structure)
            case Alternatives():
                return self.alternatives(structure)
            case Anything(constant=None):
                return lambda value: True
            case Anything(constant=constant):
                is_constant = self.view.constants.is_constant
                return lambda value: is_constant(value) is constant
            case Word():
                return remembered(lambda value: self._is_word(structure, value))
            case Absent():
                return lambda value: False

    def _alternatives(self, structure: Structure) -> Question[tuple[int, ...]]:
        assert isinstance(structure, Alternatives)
        question, alternatives, identity = self.question, structure.alternatives, self.look.identity

        def ask(value: ir.Value) -> tuple[int, ...]:
            likely = headed_by(structure, identity(value))
            return tuple([index for index in likely if question(alternatives[index])(value)])

        return remembered(ask)

    def _is_word(self, structure: Word, value: ir.Value) -> bool:
        if structure.recipe == UNCHANGED:
            last = self.view.producer(value)
            if last is None or last.domain or last.op_type not in REARRANGING:
                return False
            return self.view.through(value)[0] is not value or len(layout.source_ranks(self.view, value, "rearrange")) > 1
        node = self.look.through(value).producer
        if node is None or node.domain or node.op_type not in layout.PRODUCERS[structure.word]:
            return False
        if value.shape is None or not structure.recipe:
            return True
        rank = value.shape.rank()
        recipe = parse_recipe(ranked(structure.recipe, rank))
        return rank == len(recipe.right) and len(recipe.left) in layout.source_ranks(self.view, value, structure.word)

    def _applied(self, structure: Applied) -> Question[bool]:
        question, arguments, operators = self.question, structure.arguments, structure.operators
        telling = [(i, argument) for i, argument in enumerate(arguments[: structure.aligned]) if not is_free(argument)]

        def are_aligned(inputs: Sequence[ir.Value | None]) -> bool:
            for index, argument in telling:
                if index < len(inputs) and (value := inputs[index]) is not None and not question(argument)(value):
                    return False
            return True

        def ask(value: ir.Value) -> bool:
            node = self.look.through(value).producer
            identity = None if node is None else self.view.meaning(node, operators)
            if node is None or identity not in operators:
                return False
            if identity[1] in COMMUTATIVE:
                operands = self._operands(node) if identity[1] in ASSOCIATIVE else node.inputs
                return all(any(v is not None and asked(v) for v in operands) for asked in map(question, arguments))
            if identity in SWAPPING:
                return any(map(are_aligned, orders(identity, node.inputs)))
            return are_aligned(node.inputs)

        return ask

    def _operands(self, node: ir.Node) -> list[ir.Value]:
        """The operands of an associative operator, including those of nested calls of the same operator."""
        found: list[ir.Value] = []
        pending = [node]
        while pending and len(found) < MOST_OPERANDS:
            for operand in pending.pop().inputs:
                if operand is not None:
                    found.append(operand)
                    inner = self.look.through(operand).producer
                    if inner is not None and self.view.identity[inner] == self.view.identity[node]:
                        pending.append(inner)
        return found

    def _variants(self, form: Form) -> Question[Sequence[Factoring]]:
        factorings = self.factorings[form.is_product]
        return remembered(lambda value: variants(factorings, form, value))

    def _chains(self, wanted: Structure) -> Question[tuple[Factoring, ...]]:
        assert isinstance(wanted, Items)
        required, may, seen_as = required_heads(wanted), self._may(wanted), self.variants(wanted.form)
        factorings, operators, identity = self.factorings[wanted.form.is_product], heads(wanted), self.look.identity
        telling = [item for item in wanted.items if not is_free(item[0])]  # the exponents of a factoring are those of the form

        def fits(factoring: Factoring) -> bool:
            for asked in telling:
                for item in factoring.items:
                    if may(asked, item):
                        break
                else:
                    return False
            return True

        def ask(value: ir.Value) -> tuple[Factoring, ...]:
            if operators is not None and identity(value) not in operators:
                return ()
            # Each required operator must compute an item of `value`. This is checked before factorings are computed.
            heads = factorings.heads(value) if required else None
            if heads is not None and any(map(heads.isdisjoint, required)):
                return ()
            seen = seen_as(value)
            fitting = tuple(filter(fits, seen))
            if len(seen) >= MOST_FACTORINGS and not fitting:
                self._cut.setdefault(wanted, []).append(value)
            return fitting

        return remembered(ask)

    def _may(self, wanted: Items) -> Callable[[tuple[Structure, float], tuple[Target, float]], object]:
        """Whether an item of a factoring may be a wanted one. An addend may be the negative of a wanted item."""
        question = self.question

        def may(one: tuple[Structure, float], item: tuple[Target, float]) -> object:
            if one[1] != item[1]:
                return not wanted.form.is_product
            return isinstance(item[0], Virtual) or question(one[0])(item[0])

        return may


def is_free(structure: Structure) -> bool:
    """Whether every value has this structure."""
    return isinstance(structure, Anything) and structure.constant is None


@cache
def heads(structure: Structure) -> Heads | None:
    """The operators that can compute a value with this structure; None where any operator, or none, can."""
    match structure:
        case Applied(operators=operators):
            return standing_for(operators)
        case Items(form=form, items=items):
            own = _PRODUCTS if form.is_product else SUM_OPERATORS
            alone = heads(items[0][0]) if form.is_empty else own  # a chain without a node of its own is its item
            return None if alone is None else alone | own
        case Alternatives(alternatives=alternatives):
            each = [heads(alternative) for alternative in alternatives]
            return None if None in each else frozenset().union(*(one for one in each if one is not None))
        case Word(word=word, recipe=recipe) if recipe != UNCHANGED:
            return frozenset(("", operator) for operator in layout.PRODUCERS[word] | REARRANGING)
        case _:
            return None


@cache
def required_heads(wanted: Items) -> tuple[Heads, ...]:
    """The `heads` of the items that cannot be any value. An addend may also be the negative of a wanted item."""
    each = dict.fromkeys(heads(item) for item, _ in wanted.items)
    return tuple(found if wanted.form.is_product else found | _PRODUCTS for found in each if found is not None)


@cache
def headed_by(structure: Alternatives, identity: Identity | None) -> tuple[int, ...]:
    """The indices of the alternatives that an operator can compute; None for a value that no operator computes."""
    each = map(heads, structure.alternatives)
    return tuple(index for index, operators in enumerate(each) if operators is None or identity in operators)


_PRODUCTS = PRODUCT_OPERATORS | {("", operator) for operator in LINEAR}


def variants(factorings: Factorings, wanted: Form, value: ir.Value) -> list[Factoring]:
    """The factorings with the wanted number of items, and for a product with the wanted exponents.

    If the form has no constant, a factoring's constants are ordinary items. If it has a literal, some of them may be: those that
    the literal does not stand for. If it has a named constant, there must be one.
    """
    source = factorings.look.through(value).value
    if not (wanted.is_empty or factorings.expansions.of(source) or factorings.expansions.alone(source)):
        return []
    count, neutral = wanted.length, factorings.expansions.neutral
    seen: list[Factoring] = []
    for factoring in factorings(value, wanted.most, count):
        items, constant, scalars, *_ = factoring
        missing = count - len(items)
        found: Iterable[Factoring] = ()
        if not missing:
            found = () if wanted.needs_scalar and not scalars and constant == neutral else (factoring,)
        elif not wanted.has_scalar and (missing == len(scalars) or (0 < missing < len(scalars) and not wanted.is_silent)):
            chosen = islice(combinations(scalars, missing), MOST_FACTORINGS)
            found = (_with_scalars(factorings.view, factoring, some, product=wanted.is_product) for some in chosen)
        seen += [one for one in found if not wanted.is_product or one.powers == wanted.powers]
    if wanted.has_scalar:  # A scale binds all scalars. So factorings that include those inside the operands come first.
        seen.sort(key=lambda factoring: -len(factoring.nodes))
    return seen


def _with_scalars(view: View, factoring: Factoring, chosen: Sequence[tuple[ir.Value, float]], *, product: bool) -> Factoring:
    """The factoring with some of its constants as ordinary items."""
    kept = factoring.constant
    for scalar, power in chosen:
        number = view.scalar(scalar)
        assert number is not None
        kept = kept / number.number**power if product else kept - power * number.number
    return Factoring((*factoring.items, *chosen), kept, (), factoring.nodes, factoring.tolerance)
