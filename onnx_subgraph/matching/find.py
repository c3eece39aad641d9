"""find(): every match of every pattern in a model, and the reasons of candidates that failed.

Searches all graphs: the main graph, the bodies of If, Loop and Scan, and model-local functions. Each pattern starts at its
anchors, climbs to the values that could be its root, and matches downwards from there. The model is not changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import onnx_ir as ir

from onnx_subgraph.collection import uncollected
from onnx_subgraph.errors import UsageError
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.anchors import ABSENT, Count, Start, choose, needs
from onnx_subgraph.matching.body.found import bodies_of
from onnx_subgraph.matching.candidates import RawMiss, anchored, candidates, explored, once
from onnx_subgraph.matching.chain import MOST_FACTORINGS
from onnx_subgraph.matching.explorer import Explorer
from onnx_subgraph.matching.failure import Failure
from onnx_subgraph.matching.grown import grown
from onnx_subgraph.matching.match import GivenUp, Match, NearMiss
from onnx_subgraph.matching.matcher import MOST_STEPS, GivenUpError, Matcher
from onnx_subgraph.matching.normal import NormalPattern
from onnx_subgraph.matching.normalise import normalise
from onnx_subgraph.matching.reasons import is_of_interest, near_miss
from onnx_subgraph.matching.seen import seen_lines
from onnx_subgraph.matching.view import View
from onnx_subgraph.matching.whole import first_match
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.local_functions import is_own
from onnx_subgraph.model.nested import graph_of, within
from onnx_subgraph.model.shapes import infer_shapes, is_inferred

MOST_GIVEN_UP = 4
"""After this many abandoned roots in one graph, the search for the pattern in the graph ends."""


@dataclass(frozen=True, eq=False)
class Found:
    """The result of `find`: `matches` in the order of patterns and of the graph, `near_misses`, and where the search was bounded.

    parts: matches inside another match of the same pattern, used if the larger one cannot be replaced. misses: failed candidates.
    Their reasons are computed when `near_misses` is first read; the graph must not have changed by then. told: near misses whose
    reasons are known, such as regions that were not kept.
    """

    matches: tuple[Match, ...] = ()
    parts: tuple[Match, ...] = ()
    misses: tuple[RawMiss, ...] = ()
    told: tuple[NearMiss, ...] = ()
    given_up: tuple[GivenUp, ...] = ()

    @classmethod
    def together(cls, several: Iterable[Found]) -> Found:
        """Several results as one. The graph must not have changed in between."""
        each = zip(*((f.matches, f.parts, f.misses, f.told, f.given_up) for f in several), strict=True)
        return cls(*(tuple(chain.from_iterable(one)) for one in each))

    def after(self, near_misses: Iterable[NearMiss]) -> Found:
        """This result with earlier near misses in front of its own, each once."""
        return replace(self, misses=(), told=tuple(dict.fromkeys((*near_misses, *self.near_misses))))

    @cached_property
    def near_misses(self) -> tuple[NearMiss, ...]:
        """The furthest failure of each candidate that got past its anchor and is not inside a match of its pattern."""
        explorers: dict[tuple[int, int], Explorer] = {}
        with uncollected():
            found = ((miss, failure) for miss in self.misses if (failure := explored(miss, explorers)) is not None)
            telling = ((m, f) for m, f in once(found) if is_of_interest(m.normal.pattern, m.view, m.node, f))
            told = (_told(miss, failure) for miss, failure in telling)
            return (*self.told, *told)


def _told(miss: RawMiss, failure: Failure) -> NearMiss:
    """The near miss in words; with the lines that matched, if the search was thorough."""
    told = near_miss(miss.normal.pattern, miss.view, miss.node, failure)
    return replace(told, lines=seen_lines(miss.view, failure.visited)) if miss.thorough else told


def find(
    model: ir.Model,
    patterns: Sequence[Pattern],
    *,
    constants: Constants | None = None,
    thorough: bool = False,
    asked: bool = False,
    parts: bool = True,
    wanted: Callable[[Pattern], bool] = lambda _: True,
) -> Found:
    """All matches and near misses of `patterns` in `model`. Infers the types and shapes of its values if nobody did.

    thorough: also report near misses that the operators alone rule out. asked: the user asks about these patterns; also report
    places without the rarest operator of a pattern. parts: also look for matches inside a match of the same pattern. wanted:
    whether to search for a pattern; only asked where the graph has the operators that the pattern needs. Raises UsageError for a
    model that is not of onnx_ir.
    """
    _check_type(model)
    if not is_inferred(model):
        infer_shapes(model)
    constants = constants or Constants(model)
    found: list[Found] = []
    with uncollected():
        for graph, owner, opsets in searched_graphs(model):
            view = View(graph, constants, opsets, owner)
            likely = [p for p in patterns if (asked or all(map(view.count, p.needs))) and wanted(p)]
            found += (_search(view, p, thorough=thorough, asked=asked, parts=parts) for p in likely if p.is_formula)
            for pattern in likely:
                if pattern.grow is not None:
                    regions, not_kept = grown(view, pattern)
                    found.append(Found(tuple(regions), told=tuple(not_kept)))
                elif pattern.bodies:
                    found.append(Found(tuple(bodies_of(view, pattern))))
    return Found.together(found)


def _check_type(model: object) -> None:
    if not isinstance(model, ir.Model):
        hint = "give one of onnx_ir, such as onnx_ir.load(path) or onnx_ir.from_proto(model)"
        raise UsageError(f"the model to search is of type {type(model).__name__}, not of onnx_ir", hint=hint)


def searched_graphs(model: ir.Model) -> Iterator[tuple[ir.Graph, ir.Graph | ir.Function, dict[str, int]]]:
    """Every graph that is searched, with its owner and opsets."""
    owners: list[ir.Graph | ir.Function] = [model.graph, *(f for f in model.functions.values() if not is_own(f))]
    for owner in owners:
        outer = graph_of(owner)
        opsets = dict(owner.opset_imports) or dict(model.opset_imports)
        for graph in within(outer):
            yield graph, owner if graph is outer else graph, opsets


def _search(view: View, pattern: Pattern, *, thorough: bool, asked: bool, parts: bool) -> Found:
    """Search one graph for one pattern: matches, failed candidates, and where the search was bounded."""
    counts = view.count
    normal = normalise(pattern)
    if not asked and not all(map(counts, needs(normal.primary))):
        return Found()
    start = choose(normal.primary, counts)
    if not start.cost:
        return Found(misses=tuple(_unlikely(view, normal, _present(normal, counts), set())) if asked else ())
    matcher = Matcher(view, normal)
    attempts = _Attempts(matcher)
    found = [(anchor, candidate) for anchor in start.anchors for candidate in candidates(matcher, anchor)]
    if not parts:
        attempts.match_outer(root for _, candidate in found for root in candidate.roots)
    failed = [RawMiss(view, normal, anchor, c.node, thorough) for anchor, c in found if not attempts.match(c.roots)]
    matches, inner = _by_size(attempts.matches)
    covered = {node for match in attempts.matches for node in match.nodes}
    misses = [m for m in failed if m.node not in covered]
    if thorough:
        start = _present(normal, counts) if asked and not matches else start
        misses += _unlikely(view, normal, start, covered | {m.node for m in failed})
    steps = _STEPS if len(attempts.given_up) < MOST_GIVEN_UP else _STEPS_AND_NO_MORE
    cut = (v for v in matcher.prefilter.cut_for(normal.structures.values()) if view.producer(v) not in covered)
    given_up = [*((v, steps) for v in attempts.given_up), *((v, _FACTORINGS) for v in cut)]
    bounded = tuple(_given_up(normal, value, reason) for value, reason in given_up)
    return Found(tuple(matches), tuple(inner), tuple(misses), given_up=bounded)


class _Attempts:
    """The roots at which one pattern was tried; each is tried once."""

    def __init__(self, matcher: Matcher) -> None:
        self.matches: list[Match] = []
        self.given_up: list[ir.Value] = []
        self._matcher = matcher
        self._matched: dict[ir.Value, bool] = {}

    def match(self, roots: Collection[ir.Value]) -> bool:
        """Try all these values as roots. Returns whether the pattern matches at one of them."""
        matched = self._matched
        for root in roots:
            if root not in matched and len(self.given_up) < MOST_GIVEN_UP:
                matched[root] = self._try(root)
        return any(map(matched.get, roots))

    def match_outer(self, roots: Iterable[ir.Value]) -> None:
        """Try these values as roots, the last of the graph first, except those inside a match."""
        position = self._matcher.view.position
        computed = {root: node for root in roots if (node := root.producer()) is not None}
        inside: set[ir.Node] = set()
        for root, node in sorted(computed.items(), key=lambda pair: -position[pair[1]]):
            if node in inside:
                self._matched[root] = True
            elif self.match((root,)):
                inside.update(self.matches[-1].nodes)

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
    """The cheapest anchors of a pattern among operators that the graph has."""
    return choose(normal.primary, lambda operators: counts(operators) or ABSENT)


def _unlikely(view: View, normal: NormalPattern, start: Start, known: set[ir.Node]) -> Iterator[RawMiss]:
    """Candidates at the anchors of a pattern, without the prefilter."""
    for anchor in start.anchors:
        for node in anchored(view, anchor):
            if node not in known:
                yield RawMiss(view, normal, anchor, node, thorough=True)


def _by_size(matches: list[Match]) -> tuple[list[Match], list[Match]]:
    """Split the matches of one pattern into maximal ones and those inside another: `n * scale` inside `n * scale + bias`."""
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
