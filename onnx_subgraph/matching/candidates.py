"""Candidates that failed: explored again when somebody asks why, until it is known how far each one gets and where it ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnx_subgraph.matching.anchors import Anchor, Level, climbed
from onnx_subgraph.matching.exploring import rank_raiser
from onnx_subgraph.matching.matcher import GivenUpError, Matcher
from onnx_subgraph.matching.normal import NormalPattern, Product, Sum
from onnx_subgraph.matching.reasons import SLIGHTLY, Failure, not_read
from onnx_subgraph.matching.state import EMPTY
from onnx_subgraph.matching.view import View
from onnx_subgraph.matching.whole import Consumers, consumers_of, first_match, roots_of

ENOUGH = 2
"""A candidate that matched this many nodes got past its anchor, and leaves a near miss."""


@dataclass(frozen=True, slots=True)
class RawMiss:
    """A candidate that failed past its anchor, before anybody asks why.

    thorough: whether it is to be explored also where its operators alone speak against it, and upwards from its anchor.
    """

    view: View
    normal: NormalPattern
    anchor: Anchor
    node: ir.Node
    thorough: bool = False


def explored(miss: RawMiss, explorers: dict[tuple[int, int], Matcher]) -> Failure | None:
    """How far a failed candidate gets when nothing is passed over; None where it is not far."""
    key = (id(miss.view), id(miss.normal))
    matcher = explorers.get(key)
    if matcher is None:
        matcher = explorers[key] = Matcher(miss.view, miss.normal, exploring=True)
    consumers = consumers_of(matcher)
    matcher.forget()
    values = [v for v in miss.node.outputs if miss.thorough or matcher.plausible(miss.anchor.term, v)]
    try:
        for root in roots_of(matcher, miss.anchor, values, consumers):
            first_match(matcher, root, consumers)
        if miss.thorough:
            matcher.steps = 0
            _climb_and_fail(matcher, miss.anchor, values, consumers)
    except GivenUpError:
        pass  # how far it got until then is the reason
    failure = matcher.last_failure()
    telling = ENOUGH if isinstance(miss.anchor.term, Product | Sum) or not miss.thorough else 1
    return failure if failure is not None and failure.depth + SLIGHTLY >= telling else None


def _climb_and_fail(matcher: Matcher, anchor: Anchor, values: Sequence[ir.Value], consumers: Consumers) -> None:
    """Match what is larger and larger around an anchor; the first part of the pattern that does not is where it fails."""
    depth, matched = 0.0, set[ir.Node]()
    for level, reached in climbed(values, anchor, consumers):
        before = matcher.last_failure()
        matcher.forget()
        above = level.term if level is not None else anchor.term
        found = next((s for v in reversed(reached) for s in matcher.match(above, v, EMPTY)), None)
        failure = matcher.last_failure()
        if found is None and not reached and level is not None:
            failure = _unread(depth, level, values, matcher.view, consumers)
        if found is None:
            if failure is not None and "rank " in failure.expected:
                failure = rank_raiser(matcher, matched) or failure
            if failure is not None:
                failure = failure.at(max(failure.depth, depth + SLIGHTLY))
            matcher.furthest = failure if before is None or (failure is not None and failure.depth > before.depth) else before
            return
        matcher.furthest, depth, matched = before, found.depth, found.matched()
        values = list(reached)


def _unread(depth: float, level: Level, values: Sequence[ir.Value], view: View, consumers: Consumers) -> Failure | None:
    """What the pattern wants to read a part that is there, does not."""
    if not values:
        return None
    nested = (u.node for u in values[0].uses() if u.node.graph is not view.graph)
    names = [*(n.op_type for n in consumers(values[0])), *(f"{n.op_type} in a nested body" for n in nested)]
    names += ["the outputs of the graph"] if values[0].is_graph_output() else []
    readers = " and ".join(dict.fromkeys(names)) or "nothing"
    return Failure(depth, level.term.span, values[0], *not_read(values[0], level.term, readers))


def _deepest(explored: Iterable[tuple[RawMiss, Failure]]) -> list[tuple[RawMiss, Failure]]:
    """Of the alternatives of a pattern that start at one node, those that came furthest."""
    found = list(explored)
    deepest: dict[tuple[int, ir.Node], float] = {}
    for miss, failure in found:
        key = (id(miss.normal), miss.node)
        deepest[key] = max(failure.depth, deepest.get(key, failure.depth))
    return [(m, failure) for m, failure in found if failure.depth == deepest[id(m.normal), m.node]]


def once(explored: Iterable[tuple[RawMiss, Failure]]) -> Iterator[tuple[RawMiss, Failure]]:
    """Each place once: where all of a pattern matched from two anchors and a condition failed, the larger match tells."""
    found = _deepest(explored)
    wholes = [(m.normal, failure.nodes) for m, failure in found if failure.nodes]
    for miss, failure in found:
        mine = set(failure.nodes)
        if not any(normal is miss.normal and mine < set(other) for normal, other in wholes if mine):
            yield miss, failure
