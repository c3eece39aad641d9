"""find(): every match of every pattern in a model, and for every candidate that failed how far it got.

All graphs are searched: the main one, the bodies of If, Loop and Scan, and model-local functions. Each pattern starts from its
anchors, climbs to the values that could be its root, and matches from there down. Nothing is changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import onnx_ir as ir

from onnx_subgraph.collection import uncollected
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.anchors import Anchor, Identity, Start, choose, needs
from onnx_subgraph.matching.candidates import RawMiss, explored, once
from onnx_subgraph.matching.chain import MOST_FRONTS
from onnx_subgraph.matching.growing import regions_of
from onnx_subgraph.matching.match import GivenUp, Match, NearMiss
from onnx_subgraph.matching.matcher import MOST_STEPS, GivenUpError, Matcher
from onnx_subgraph.matching.normal import NormalPattern
from onnx_subgraph.matching.normalise import normalise
from onnx_subgraph.matching.reasons import is_of_interest, near_miss
from onnx_subgraph.matching.view import View
from onnx_subgraph.matching.whole import consumers_of, first_match, roots_of
from onnx_subgraph.model.constants import Constants

OWN_DOMAIN = "onnx_subgraph"
"""The domain of fused operators that carry their definition; the definitions are not searched again."""
ABSENT = 1 << 32
"""What an operator that the graph does not have costs as an anchor, where another one is wanted."""


MOST_GIVEN_UP = 4
"""How many roots of one graph a pattern may give up before it is not searched for there any further."""


class Found:
    """What `find` found: `matches` in the order of patterns and of the graph, `near_misses`, and where the search was bounded.

    Why a candidate failed is worked out when `near_misses` is first read; the graph must still be as it was then.
    """

    def __init__(
        self,
        matches: tuple[Match, ...],
        misses: tuple[RawMiss, ...],
        refused: tuple[NearMiss, ...] = (),
        given_up: tuple[GivenUp, ...] = (),
    ) -> None:
        self.matches = matches
        self.given_up = given_up
        self._misses = misses
        self._refused = refused  # the regions that were not kept

    @cached_property
    def near_misses(self) -> tuple[NearMiss, ...]:
        """The furthest failure of each candidate that got past its anchor and is part of no match of its pattern."""
        explorers: dict[tuple[int, int], Matcher] = {}
        with uncollected():
            found = ((miss, failure) for miss in self._misses if (failure := explored(miss, explorers)) is not None)
            telling = ((m, f) for m, f in once(found) if is_of_interest(m.normal.pattern, m.view, m.node, f))
            told = (near_miss(m.normal.pattern, m.view, m.node, failure) for m, failure in telling)
            return (*self._refused, *told)


_NORMAL: dict[int, tuple[Pattern, NormalPattern]] = {}


_NEEDS: dict[int, tuple[NormalPattern, tuple[frozenset[Identity], ...]]] = {}


def _needs_of(normal: NormalPattern) -> tuple[frozenset[Identity], ...]:
    """The `needs` of a pattern, worked out once for each pattern object."""
    known = _NEEDS.get(id(normal))
    if known is None or known[0] is not normal:
        known = _NEEDS[id(normal)] = (normal, needs(normal.primary))
    return known[1]


def normal_of(pattern: Pattern) -> NormalPattern:
    """The normal form of a pattern, made once for each pattern object."""
    known = _NORMAL.get(id(pattern))
    if known is None or known[0] is not pattern:
        known = _NORMAL[id(pattern)] = (pattern, normalise(pattern))
    return known[1]


def find(
    model: ir.Model,
    patterns: Sequence[Pattern],
    *,
    constants: Constants | None = None,
    thorough: bool = False,
    asked: bool = False,
) -> Found:
    """All matches and near misses of `patterns` in `model`, whose values have inferred shapes (`infer_shapes`).

    thorough: look for near misses also where the operators alone speak against a match. asked: whether somebody asks about these
    patterns, and wants to hear of places that lack even the operator that tells one from all others.
    """
    constants = constants or Constants(model)
    normals = [normal_of(p) for p in patterns if p.grow is None]
    matches: list[Match] = []
    misses: list[RawMiss] = []
    refused: list[NearMiss] = []
    given_up: list[GivenUp] = []
    with uncollected():
        for graph, owner, opsets in searched(model):
            view = View(graph, constants, opsets, owner)
            counts = {identity: len(nodes) for identity, nodes in view.by_operator.items()}
            for normal in normals:
                given_up += _search(view, normal, counts, matches, misses, thorough=thorough, asked=asked)
            for pattern in patterns:
                if pattern.grow is not None:
                    regions, not_kept = regions_of(view, pattern)
                    matches += regions
                    refused += not_kept
    return Found(tuple(matches), tuple(misses), tuple(refused), tuple(given_up))


def searched(model: ir.Model) -> Iterator[tuple[ir.Graph, ir.Graph | ir.Function, dict[str, int]]]:
    """Every graph of the model that is searched, who owns it, and the opsets that hold in it."""
    owners: list[ir.Graph | ir.Function] = [model.graph, *(f for f in model.functions.values() if f.domain != OWN_DOMAIN)]
    for owner in owners:
        outer = owner.graph if isinstance(owner, ir.Function) else owner
        opsets = dict(owner.opset_imports) or dict(model.opset_imports)
        for graph in (outer, *outer.subgraphs()):
            yield graph, owner if graph is outer else graph, opsets


def _search(
    view: View,
    normal: NormalPattern,
    counts: Mapping[Any, int],
    matches: list[Match],
    misses: list[RawMiss],
    *,
    thorough: bool,
    asked: bool,
) -> list[GivenUp]:
    """Add the matches of one pattern in one graph, and what nearly matches; where the search was bounded."""
    assert normal.primary.definition is not None
    if not asked and any(map(counts.keys().isdisjoint, _needs_of(normal))):  # most patterns, in most functions
        return []
    start = choose(normal.primary, lambda operators: sum(counts.get(identity, 0) for identity in operators))
    if not start.cost:
        if asked:
            misses.extend(_unlikely(view, normal, _present(normal, counts), set()))
        return []
    matcher = Matcher(view, normal)
    consumers = consumers_of(matcher)
    roots_done: dict[ir.Value, bool] = {}
    given_up: list[ir.Value] = []
    failed: list[RawMiss] = []
    mine: list[Match] = []
    for anchor in start.anchors:
        for node in _anchored(view, anchor):
            found_any = False
            values = [v for v in node.outputs if matcher.plausible(anchor.term, v)]
            for root in roots_of(matcher, anchor, values, consumers):
                if root not in roots_done and len(given_up) < MOST_GIVEN_UP:
                    try:
                        match = first_match(matcher, root, consumers)
                    except GivenUpError:
                        match = None
                        given_up.append(root)
                    roots_done[root] = match is not None
                    if match is not None:
                        mine.append(match)
                found_any |= roots_done.get(root, False)
            if values and not found_any:
                failed.append(RawMiss(view, normal, anchor, node, thorough))
    covered = {node for match in mine for node in match.nodes}
    misses.extend(m for m in failed if m.node not in covered)
    if thorough:
        start = _present(normal, counts) if asked and not mine else start
        misses.extend(_unlikely(view, normal, start, covered | {m.node for m in failed}))
    matches.extend(_largest(mine))
    return [
        *(_given_up(normal, v, _STEPS if len(given_up) < MOST_GIVEN_UP else _STEPS_AND_NO_MORE) for v in given_up),
        *(_given_up(normal, v, _FRONTS) for v in matcher.plausible.cut if view.producer(v) not in covered),
    ]


_STEPS = f"the search here was given up after {MOST_STEPS} steps"
_STEPS_AND_NO_MORE = f"{_STEPS}, and after {MOST_GIVEN_UP} such places the rest of the graph was not searched"
_FRONTS = f"there are more than {MOST_FRONTS} ways to group what stands here, and only so many were tried"


def _given_up(normal: NormalPattern, value: ir.Value, reason: str) -> GivenUp:
    node = value.producer()
    return GivenUp(normal.pattern.id, (value.name if node is None else node.name or value.name) or "", reason)


def _present(normal: NormalPattern, counts: Mapping[Any, int]) -> Start:
    """The rarest anchors of a pattern that the graph has."""
    return choose(normal.primary, lambda operators: sum(counts.get(identity, 0) for identity in operators) or ABSENT)


def _unlikely(view: View, normal: NormalPattern, start: Start, known: set[ir.Node]) -> Iterator[RawMiss]:
    """Candidates that begin at an anchor of the pattern, whatever stands around it."""
    for anchor in start.anchors:
        for node in _anchored(view, anchor):
            if node not in known:
                yield RawMiss(view, normal, anchor, node, thorough=True)


def _largest(matches: list[Match]) -> Iterator[Match]:
    """The matches of one pattern that are not a part of another one of it: `n * scale` inside `n * scale + bias`."""
    at: dict[ir.Node, list[set[ir.Node]]] = defaultdict(list)
    for match in matches:
        nodes = set(match.nodes)
        for node in nodes:
            at[node].append(nodes)
    for match in matches:
        mine = set(match.nodes)
        if not any(mine < other for other in at[match.nodes[0]]):
            yield match


def _anchored(view: View, anchor: Anchor) -> Iterator[ir.Node]:
    for identity in sorted(anchor.operators):
        yield from view.by_operator.get(identity, ())
