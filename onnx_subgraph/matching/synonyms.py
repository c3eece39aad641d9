"""Synonyms of a term: `1 / (1 + Exp(-x))` for `Sigmoid(x)`, from the table; `x * (0.5 + 0.5 * t)` for `0.5 * x * (1 + t)`.

The latter moves a factor into a sum that contains a number.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import frexp, prod
from typing import NamedTuple

from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.syntax import parse_term
from onnx_subgraph.language.term import Apply, Chain, Literal, Operator, Term, Variable, mapped
from onnx_subgraph.matching.equalities import SYNONYMS


class Written(NamedTuple):
    """The formulas that equal a call, with its arguments. where: the condition for them, or None."""

    formulas: tuple[Term, ...]
    where: Expression | None


class _Row(NamedTuple):
    call: Apply
    formulas: tuple[Term, ...]
    where: str


def written(call: Term) -> Written | None:
    """The synonyms of a term; None where it has none.

    The argument terms are reused, not copied, because alternatives are identified by object identity.
    """
    if isinstance(call, Chain):
        return _distributed(call)
    if not isinstance(call, Apply) or call.capture or call.rest or len(call.operators) != 1:
        return None
    for row in _rows().get(call.operators[0], ()):
        values = _unified(row.call, call)
        if values is not None:
            formulas = tuple(_substituted(formula, values, call) for formula in row.formulas)
            return Written(formulas, _sentence(row.where, values, call))
    return None


def _distributed(product: Chain) -> Written | None:
    """Move a power of two into the only sum of a product that contains a number. This does not change any rounding."""
    if product.operator != "*":
        return None
    sums = [t for t, inverse in product.items if isinstance(t, Chain) and t.operator == "+" and not inverse and _has_number(t)]
    numbers = [(number, inverse) for t, inverse in product.items if (number := number_of(t))]
    factor = prod(1 / number if inverse else number for number, inverse in numbers)
    if len(sums) != 1 or factor == 1 or frexp(abs(factor))[0] != 0.5:
        return None
    scaled = replace(sums[0], items=tuple((_times(factor, t), inverse) for t, inverse in sums[0].items))
    items = tuple((scaled if t is sums[0] else t, inverse) for t, inverse in product.items if number_of(t) is None)
    if items[0][1]:
        items = ((Literal(1.0), False), *items)
    return Written((replace(product, items=items) if len(items) > 1 else scaled,), None)


def _times(factor: float, term: Term) -> Term:
    number = number_of(term)
    if number is not None:
        return Literal(factor * number)
    items = term.items if isinstance(term, Chain) and term.operator == "*" else ((term, False),)
    return Chain("*", ((Literal(factor), False), *items))


def _has_number(total: Chain) -> bool:
    return any(number_of(term) is not None for term, _ in total.items)


def number_of(term: Term) -> float | None:
    """The number that a literal says; None for any other term."""
    if not isinstance(term, Literal) or not isinstance(term.value, int | float) or isinstance(term.value, bool):
        return None
    return float(term.value)


@cache
def _rows() -> Mapping[Operator, tuple[_Row, ...]]:
    found: dict[Operator, tuple[_Row, ...]] = {}
    for row in SYNONYMS:
        call = parse_term(row.call)
        assert isinstance(call, Apply)
        read = _Row(call, tuple(map(parse_term, row.formulas)), row.where)
        found[call.operators[0]] = (*found.get(call.operators[0], ()), read)
    return found


def _unified(row: Apply, call: Apply) -> dict[str, Term] | None:
    """The values of a row's names in a call; None where the row does not fit the call."""
    given = dict(call.keywords)
    if len(row.arguments) != len(call.arguments) or not (row.rest or len(given) == len(row.keywords)):
        return None
    values: dict[str, Term] = {}
    pairs = [*zip(row.arguments, call.arguments, strict=True), *((term, given.get(name)) for name, term in row.keywords)]
    for wanted, there in pairs:
        if there is None or (isinstance(there, Variable) and there.optional):
            return None
        if isinstance(wanted, Variable):
            values[wanted.name] = there
        elif wanted != there:
            return None
    return values


def _substituted(term: Term, values: Mapping[str, Term], call: Apply) -> Term:
    if isinstance(term, Variable):
        return values[term.name]
    made = replace(mapped(term, lambda inner: _substituted(inner, values, call)), span=call.span)
    if isinstance(made, Apply) and made.rest:
        return replace(made, keywords=(*made.keywords, *call.keywords), rest=None)
    if isinstance(made, Chain) and made.operator == "*" and made.items[0] == (Literal(1.0), False) and not made.items[1][1]:
        return made.items[1][0] if len(made.items) == 2 else replace(made, items=made.items[1:])  # simplify 1 * x
    return made


def _sentence(text: str, values: Mapping[str, Term], call: Apply) -> Expression | None:
    """A sentence about the names of a row, rewritten for the terms of the call."""
    if not text:
        return None
    words = " ".join(str(values[word]) if word in values else word for word in text.split())
    return Expression(words, ast.parse(words, mode="eval").body, call.span)
