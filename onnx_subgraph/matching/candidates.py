"""Candidates: where a pattern may match, and for a failed one how far it got and why it failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import onnx_ir as ir

from onnx_subgraph.matching.anchors import Anchor, Level, climbed
from onnx_subgraph.matching.explorer import Explorer
from onnx_subgraph.matching.failure import SLIGHTLY, Failure, Kind
from onnx_subgraph.matching.lookthrough import LookThrough
from onnx_subgraph.matching.matcher import GivenUpError, Matcher
from onnx_subgraph.matching.normal import Chain, NormalPattern
from onnx_subgraph.matching.reasons import not_read
from onnx_subgraph.matching.state import EMPTY
from onnx_subgraph.matching.structure import Structure
from onnx_subgraph.matching.view import View
from onnx_subgraph.matching.whole import first_match, roots_of

ENOUGH = 2
"""A candidate that matched this many nodes got past its anchor and is a near miss."""


class Candidate(NamedTuple):
    """A possible anchor node, and the values that can then be the root of the pattern."""

    node: ir.Node
    roots: tuple[ir.Value, ...]


def anchored(view: View, anchor: Anchor) -> Iterator[ir.Node]:
    """The nodes with the anchor's operators."""
    for identity in sorted(anchor.operators):
        yield from view.by_operator.get(identity, ())


def candidates(matcher: Matcher, anchor: Anchor) -> tuple[Candidate, ...]:
    """The candidates at an anchor. Patterns with the same structure share them."""
    root, wanted = matcher.structure(matcher.normal.primary), matcher.structure(anchor.term)
    path = tuple((level.operators, level.steps, level.optional) for level in anchor.path)
    key = ("candidates", root, wanted, anchor.operators, path, matcher.look)
    found: tuple[Candidate, ...] = matcher.view.shared(key, lambda: tuple(_candidates(matcher, anchor, root, wanted)))
    return found


def _candidates(matcher: Matcher, anchor: Anchor, root: Structure, wanted: Structure) -> Iterator[Candidate]:
    is_anchor, is_root = matcher.prefilter.question(wanted), matcher.prefilter.question(root)
    is_known = matcher.view.constants.is_known
    for node in anchored(matcher.view, anchor):
        values = [v for v in node.outputs if is_anchor(v) and not is_known(v)]  # `simplify` stores what is known
        if values:
            yield Candidate(node, tuple(filter(is_root, roots_of(matcher, anchor, values))))


class RawMiss(NamedTuple):
    """A failed candidate, before its reason is known.

    thorough: explore it even if its operators rule out a match, and also upwards from its anchor.
    """

    view: View
    normal: NormalPattern
    anchor: Anchor
    node: ir.Node
    thorough: bool = False


def explored(miss: RawMiss, explorers: dict[tuple[int, int], Explorer]) -> Failure | None:
    """The furthest failure of a candidate, without the prefilter; None where it did not get far."""
    key = (id(miss.view), id(miss.normal))
    explorer = explorers.get(key)
    if explorer is None:
        explorer = explorers[key] = Explorer(miss.view, miss.normal)
    explorer.furthest.take()
    values = [v for v in miss.node.outputs if miss.thorough or explorer.plausible(miss.anchor.term, v)]
    try:
        for root in roots_of(explorer, miss.anchor, values):
            first_match(explorer, root)
        if miss.thorough:
            explorer.steps = 0
            _climb_and_fail(explorer, miss.anchor, values)
    except GivenUpError:
        pass  # the furthest failure so far is the reason
    failure = explorer.furthest.take()
    telling = ENOUGH if isinstance(miss.anchor.term, Chain) or not miss.thorough else 1
    return failure if failure is not None and failure.matched >= telling else None


def _climb_and_fail(explorer: Explorer, anchor: Anchor, values: Sequence[ir.Value]) -> None:
    """Match larger and larger parts of the pattern around an anchor. The first part that does not match is the reason."""
    state = EMPTY
    record = explorer.furthest
    for level, reached in climbed(values, anchor.path, explorer.look):
        before = record.take()
        above = level.term if level is not None else anchor.term
        found = next((s for v in reversed(reached) for s in explorer.match(above, v, EMPTY)), None)
        failure = record.take()
        record.put_back(before)
        if found is not None:
            state, values = found, list(reached)
            continue
        if not reached and level is not None:
            failure = _unread(state.rank, level, values, explorer.look)
        if failure is not None and failure.kind is Kind.RANK:
            failure = explorer.raised_rank(state) or failure
        if failure is not None:
            least = state.rank + SLIGHTLY
            deepest = failure.visited if failure.rank >= least else tuple(state.visited())
            record.again(replace(failure, rank=max(failure.rank, least), visited=deepest))
        return


def _unread(rank: int, level: Level, values: Sequence[ir.Value], look: LookThrough) -> Failure | None:
    """The failure of a part that matched, but is not read by the operator that the pattern requires."""
    if not values:
        return None
    nested = (u.node for u in values[0].uses() if u.node.graph is not look.view.graph)
    names = [*(n.op_type for n in look.consumers(values[0])), *(f"{n.op_type} in a nested body" for n in nested)]
    names += ["the outputs of the graph"] if values[0].is_graph_output() else []
    readers = " and ".join(dict.fromkeys(names)) or "nothing"
    return Failure(Kind.READER, rank, level.term.span, values[0], said=not_read(values[0], level.term, readers))


def _deepest(explored: Iterable[tuple[RawMiss, Failure]]) -> list[tuple[RawMiss, Failure]]:
    """For each pattern and node, the failures of those alternatives that got furthest."""
    found = list(explored)
    deepest: dict[tuple[int, ir.Node], int] = {}
    for miss, failure in found:
        key = (id(miss.normal), miss.node)
        deepest[key] = max(failure.rank, deepest.get(key, failure.rank))
    return [(m, failure) for m, failure in found if failure.rank == deepest[id(m.normal), m.node]]


def once(explored: Iterable[tuple[RawMiss, Failure]]) -> Iterator[tuple[RawMiss, Failure]]:
    """Report each place once. If a whole pattern matched from two anchors and a condition failed, keep the larger match."""
    found = _deepest(explored)
    wholes = [(m.normal, failure.nodes) for m, failure in found if failure.nodes]
    for miss, failure in found:
        mine = set(failure.nodes)
        if not any(normal is miss.normal and mine < set(other) for normal, other in wholes if mine):
            yield miss, failure
