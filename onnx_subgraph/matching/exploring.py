"""Failures that are looked for only when somebody asks for the reason: what would have matched but for one thing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_subgraph.matching.assignment import assigned
from onnx_subgraph.matching.chain import Front
from onnx_subgraph.matching.normal import BROADCASTING, Operation, Product, Sum
from onnx_subgraph.matching.reasons import Failure, applied, describe, spelled, words
from onnx_subgraph.matching.state import State
from onnx_subgraph.matching.view import Virtual

if TYPE_CHECKING:
    from onnx_subgraph.matching.matcher import Matcher

LONGER = 0.01
"""How much deeper a chain fails for each of its nodes."""
RANK = "a constant of no higher rank than the value it meets"
SCALAR = "store the constant as a scalar, of rank 0"


def fail_for_rank(
    matcher: Matcher, state: State, term: Operation, value: ir.Value | Virtual, order: Sequence[ir.Value | Virtual | None]
) -> None:
    """An operand of `term` is a constant that gives the result a rank of its own."""
    ranks = [n.rank for v in order if isinstance(v, ir.Value) and (n := matcher.view.scalar(v)) is not None and n.rank]
    matcher.fail(state, term.span, value, RANK, f"a constant of rank {max(ranks, default=0)}", SCALAR)


def rank_raiser(matcher: Matcher, nodes: Collection[ir.Node]) -> Failure | None:
    """The value from outside that gives matched nodes a higher rank than what it meets there: a mask with an axis too many."""
    for node in sorted(nodes, key=matcher.view.position.__getitem__):
        ranks = {v: v.shape.rank() for v in node.inputs if v is not None and v.shape is not None}
        inner = [rank for v, rank in ranks.items() if v.producer() in nodes]
        outer = [v for v, rank in ranks.items() if v.producer() not in nodes and inner and rank > max(inner)]
        if node.op_type in BROADCASTING and outer:
            value, most = outer[0], max(inner)
            found, change = f"`{value.name}` of rank {ranks[value]}", f"let `{value.name}` have rank {most} at most"
            return Failure(0, matcher.spans.get(node), node.outputs[0], f"rank {most} at most", found, change)
    return None


def fail_for_items(matcher: Matcher, state: State, term: Product | Sum, value: ir.Value, constant: float, *, known: bool) -> None:
    """The chain of `value` has other items than `term`: one in the place of a constant, another exponent, more or fewer.

    known: whether it can be seen with as many items as well.
    """
    items = term.factors if isinstance(term, Product) else term.addends
    fronts = _fronts(matcher, term, value, len(items) + 2)
    for front in fronts:
        for item, rest in _without_one(front):
            for reached in assigned(matcher, items, rest, state.visit(front.nodes), isinstance(term, Product)):
                _fail_for_constant(matcher, reached, term, item, constant)
                break
    if known:
        return
    if isinstance(term, Product) and len(items) == 1:
        for front in fronts:
            if len(front.items) == 1 and front.nodes and front.items[0][1] != items[0][1]:
                matcher.fail(state, term.span, value, f"the exponent {items[0][1]:.6g}", f"{front.items[0][1]:.6g}")
                return
    largest = max(fronts, key=lambda front: len(front.nodes), default=None)
    if largest is None or not largest.nodes:
        matcher.fail(state, term.span, value, words(term), applied(matcher.view, value))
        return
    wanted = words(term)
    if isinstance(term, Product) and len(largest.items) == len(items):
        wanted += f" with the exponents {', '.join(f'{power:g}' for _, power in items)}"
    # The longest of several chains that all fail at once is the one that the pattern is about.
    place = state.deeper(LONGER * len(largest.nodes))
    matcher.fail(place, term.span, value, wanted, spelled(largest, product=isinstance(term, Product)))


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
