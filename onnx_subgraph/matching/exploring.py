"""Failures that are looked for only when somebody asks for the reason: what would have matched but for one thing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_subgraph.matching.chain import Front
from onnx_subgraph.matching.normal import Operation, Product, Sum
from onnx_subgraph.matching.reasons import applied, describe, words
from onnx_subgraph.matching.state import State
from onnx_subgraph.matching.view import Virtual

if TYPE_CHECKING:
    from onnx_subgraph.matching.matcher import Matcher

RANK = "a constant of no higher rank than the value it meets"
SCALAR = "store the constant as a scalar, of rank 0"


def fail_for_rank(
    matcher: Matcher, state: State, term: Operation, value: ir.Value | Virtual, order: Sequence[ir.Value | Virtual | None]
) -> None:
    """An operand of `term` is a constant that gives the result a rank of its own."""
    ranks = [n.rank for v in order if isinstance(v, ir.Value) and (n := matcher.view.scalar(v)) is not None and n.rank]
    matcher.fail(state, term.span, value, RANK, f"a constant of rank {max(ranks, default=0)}", SCALAR)


def fail_for_items(matcher: Matcher, state: State, term: Product | Sum, value: ir.Value, constant: float, *, known: bool) -> None:
    """The chain of `value` has other items than `term`: one in the place of a constant, another exponent, or another number of them.

    known: whether it can be seen with as many items as well.
    """
    items = term.factors if isinstance(term, Product) else term.addends
    fronts = _fronts(matcher, term, value, len(items) + 2)
    for front in fronts:
        for item, rest in _without_one(front):
            for reached in matcher.assign(tuple(items), rest, state.visit(front.nodes), isinstance(term, Product)):
                _fail_for_constant(matcher, reached, term, item, constant)
                break
    if known:
        return
    if isinstance(term, Product) and len(items) == 1:
        for front in fronts:
            if len(front.items) == 1 and front.nodes and front.items[0][1] != items[0][1]:
                matcher.fail(state, term.span, value, f"the exponent {items[0][1]:.6g}", f"{front.items[0][1]:.6g}")
                return
    matcher.fail(state, term.span, value, words(term), applied(matcher.view, value))


def _fail_for_constant(matcher: Matcher, state: State, term: Product | Sum, item: ir.Value | Virtual, constant: float) -> None:
    number = matcher.view.scalar(item) if isinstance(item, ir.Value) else None
    if number is not None:
        matcher.fail(state, term.span, item, RANK, f"{number.number:.6g} of rank {number.rank}", SCALAR)
        return
    expected = f"a constant for {term.scalar}" if term.scalar is not None else f"the constant {constant:.6g}"
    matcher.fail(state, term.span, item, expected, describe(matcher.view, item))


def _fronts(matcher: Matcher, term: Product | Sum, value: ir.Value, limit: int) -> tuple[Front, ...]:
    return matcher.fronts.product(value, limit) if isinstance(term, Product) else matcher.fronts.sum(value, limit)


def _without_one(front: Front) -> Iterator[tuple[ir.Value | Virtual, tuple[tuple[ir.Value | Virtual, float], ...]]]:
    """An item that may stand in the place of a constant, of one element or a constant of a high rank; and the others."""
    for position, (item, _) in enumerate(front.items):
        if isinstance(item, ir.Value) and item.shape is not None and all(d == 1 for d in item.shape):
            yield item, front.items[:position] + front.items[position + 1 :]
