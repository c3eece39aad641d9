"""find(): every match of every pattern in a model, and for every candidate that failed how far it got.

All graphs are searched: the main one, the bodies of If, Loop and Scan, and model-local functions. Each pattern starts from its
anchors, climbs to the values that could be its root, and matches from there down. Nothing is changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import onnx_ir as ir

from onnx_subgraph.collection import uncollected
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.anchors import ABSENT, Count, Start, choose, needs
from onnx_subgraph.matching.body.found import bodies_of
from onnx_subgraph.matching.candidates import RawMiss, anchored, candidates, explored, once
from onnx_subgraph.matching.chain import MOST_FACTORINGS
from onnx_subgraph.matching.explorer import Explorer
from onnx_subgraph.matching.grown import grown
from onnx_subgraph.matching.match import GivenUp, Match, NearMiss
from onnx_subgraph.matching.matcher import MOST_STEPS, GivenUpError, Matcher
from onnx_subgraph.matching.normal import NormalPattern
from onnx_subgraph.matching.normalise import normalise
from onnx_subgraph.matching.reasons import is_of_interest, near_miss
from onnx_subgraph.matching.view import View
from onnx_subgraph.matching.whole import first_match
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.local_functions import is_own
from onnx_subgraph.model.nested import graph_of, within

MOST_GIVEN_UP = 4
"""How many roots of one graph a pattern may give up before it is not searched for there any further."""


@dataclass(frozen=True, slots=True)
class _Searched:
    """What one pattern came to in one graph."""

    matches: tuple[Match, ...]
    parts: tuple[Match, ...]
    misses: tuple[RawMiss, ...]
    given_up: tuple[GivenUp, ...]


NOTHING = _Searched((), (), (), ())


class Found:
    """What `find` found: `matches` in the order of patterns and of the graph, `near_misses`, and where the search was bounded.

    parts: matches that are a part of another one of their pattern, for where that one can't be replaced.

    Why a candidate failed is worked out when `near_misses` is first read; the graph must still be as it was then.
    """

    def __init__(
        self,
        matches: tuple[Match, ...],
        misses: tuple[RawMiss, ...],
        refused: tuple[NearMiss, ...] = (),
        given_up: tuple[GivenUp, ...] = (),
        parts: tuple[Match, ...] = (),
    ) -> None:
        self.matches = matches
        self.parts = parts
        self.given_up = given_up
        self._misses = misses
        self._refused = refused  # the regions that were not kept

    @cached_property
    def near_misses(self) -> tuple[NearMiss, ...]:
        """The furthest failure of each candidate that got past its anchor and is part of no match of its pattern."""
        explorers: dict[tuple[int, int], Explorer] = {}
        with uncollected():
            found = ((miss, failure) for miss in self._misses if (failure := explored(miss, explorers)) is not None)
            telling = ((m, f) for m, f in once(found) if is_of_interest(m.normal.pattern, m.view, m.node, f))
            told = (near_miss(m.normal.pattern, m.view, m.node, failure) for m, failure in telling)
            return (*self._refused, *told)


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
    normals = [normalise(p) for p in patterns if p.is_formula]
    matches: list[Match] = []
    parts: list[Match] = []
    misses: list[RawMiss] = []
    refused: list[NearMiss] = []
    given_up: list[GivenUp] = []
    with uncollected():
        for graph, owner, opsets in searched_graphs(model):
            view = View(graph, constants, opsets, owner)
            for normal in normals:
                searched = _search(view, normal, thorough=thorough, asked=asked)
                matches += searched.matches
                parts += searched.parts
                misses += searched.misses
                given_up += searched.given_up
            for pattern in patterns:
                if pattern.grow is not None:
                    regions, not_kept = grown(view, pattern)
                    matches += regions
                    refused += not_kept
                elif pattern.bodies:
                    matches += bodies_of(view, pattern)
    return Found(tuple(matches), tuple(misses), tuple(refused), tuple(given_up), tuple(parts))


def searched_graphs(model: ir.Model) -> Iterator[tuple[ir.Graph, ir.Graph | ir.Function, dict[str, int]]]:
    """Every graph of the model that is searched, who owns it, and the opsets that hold in it."""
    owners: list[ir.Graph | ir.Function] = [model.graph, *(f for f in model.functions.values() if not is_own(f))]
    for owner in owners:
        outer = graph_of(owner)
        opsets = dict(owner.opset_imports) or dict(model.opset_imports)
        for graph in within(outer):
            yield graph, owner if graph is outer else graph, opsets


def _search(view: View, normal: NormalPattern, *, thorough: bool, asked: bool) -> _Searched:
    """One pattern in one graph: its matches, what nearly matches, and where the search was bounded."""
    counts = view.count
    if not asked and not all(map(counts, needs(normal.primary))):  # most patterns, in most functions
        return NOTHING
    start = choose(normal.primary, counts)
    if not start.cost:
        return _Searched((), (), tuple(_unlikely(view, normal, _present(normal, counts), set())) if asked else (), ())
    matcher = Matcher(view, normal)
    attempts = _Attempts(matcher)
    failed = [
        RawMiss(view, normal, anchor, candidate.node, thorough)
        for anchor in start.anchors
        for candidate in candidates(matcher, anchor)
        if not attempts.match(candidate.roots)
    ]
    matches, parts = _by_size(attempts.matches)
    covered = {node for match in attempts.matches for node in match.nodes}
    misses = [m for m in failed if m.node not in covered]
    if thorough:
        start = _present(normal, counts) if asked and not matches else start
        misses += _unlikely(view, normal, start, covered | {m.node for m in failed})
    steps = _STEPS if len(attempts.given_up) < MOST_GIVEN_UP else _STEPS_AND_NO_MORE
    cut = (v for v in matcher.prefilter.cut_for(normal.structures.values()) if view.producer(v) not in covered)
    given_up = [*((v, steps) for v in attempts.given_up), *((v, _FACTORINGS) for v in cut)]
    bounded = tuple(_given_up(normal, value, reason) for value, reason in given_up)
    return _Searched(tuple(matches), tuple(parts), tuple(misses), bounded)


class _Attempts:
    """The roots at which one pattern was tried, each once."""

    def __init__(self, matcher: Matcher) -> None:
        self.matches: list[Match] = []
        self.given_up: list[ir.Value] = []
        self._matcher = matcher
        self._matched: dict[ir.Value, bool] = {}

    def match(self, roots: Iterable[ir.Value]) -> bool:
        """Whether the pattern matches at one of these values; all are tried."""
        for root in roots:
            if root not in self._matched and len(self.given_up) < MOST_GIVEN_UP:
                self._matched[root] = self._try(root)
        return any(self._matched.get(root, False) for root in roots)

    def _try(self, root: ir.Value) -> bool:
        try:
            match = first_match(self._matcher, root)
        except GivenUpError:
            self.given_up.append(root)
            return False
        if match is not None:
            self.matches.append(match)
        return match is not None


_STEPS = f"the search here was given up after {MOST_STEPS} steps"
_STEPS_AND_NO_MORE = f"{_STEPS}, and after {MOST_GIVEN_UP} such places the rest of the graph was not searched"
_FACTORINGS = f"there are more than {MOST_FACTORINGS} ways to group what stands here, and only so many were tried"


def _given_up(normal: NormalPattern, value: ir.Value, reason: str) -> GivenUp:
    node = value.producer()
    return GivenUp(normal.pattern.id, (value.name if node is None else node.name or value.name) or "", reason)


def _present(normal: NormalPattern, counts: Count) -> Start:
    """The rarest anchors of a pattern that the graph has."""
    return choose(normal.primary, lambda operators: counts(operators) or ABSENT)


def _unlikely(view: View, normal: NormalPattern, start: Start, known: set[ir.Node]) -> Iterator[RawMiss]:
    """Candidates that begin at an anchor of the pattern, whatever stands around it."""
    for anchor in start.anchors:
        for node in anchored(view, anchor):
            if node not in known:
                yield RawMiss(view, normal, anchor, node, thorough=True)


def _by_size(matches: list[Match]) -> tuple[list[Match], list[Match]]:
    """The matches of one pattern, and those that are a part of another one of it: `n * scale` inside `n * scale + bias`."""
    at: dict[ir.Node, list[set[ir.Node]]] = defaultdict(list)
    for match in matches:
        nodes = set(match.nodes)
        for node in nodes:
            at[node].append(nodes)
    whole: list[Match] = []
    parts: list[Match] = []
    for match in matches:
        mine = set(match.nodes)
        if any(mine < other for other in at[match.nodes[0]]):
            parts.append(replace(match, part=True))
        else:
            whole.append(match)
    return whole, parts
