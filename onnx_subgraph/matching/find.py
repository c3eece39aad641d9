"""find(): every match of every pattern in a model, and for every candidate that failed how far it got.

All graphs are searched: the main one, the bodies of If, Loop and Scan, and model-local functions. Each pattern starts from its
anchors, climbs to the values that could be its root, and matches from there down. Nothing is changed.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_subgraph.language.pattern import Expression, Pattern
from onnx_subgraph.language.sentence import UnknownFact, evaluate
from onnx_subgraph.matching.anchors import Anchor, Level, Start, choose, climb, climbed, paths_to
from onnx_subgraph.matching.exploring import rank_raiser
from onnx_subgraph.matching.facts import Facts, Number, static
from onnx_subgraph.matching.growing import regions_of
from onnx_subgraph.matching.interior import live_reader, own_nodes, provided_values
from onnx_subgraph.matching.match import Match, NearMiss
from onnx_subgraph.matching.matcher import Matcher
from onnx_subgraph.matching.normal import Name, Normal, NormalPattern, Operation, Product, Sum
from onnx_subgraph.matching.normalise import normalise
from onnx_subgraph.matching.reasons import (
    SLIGHTLY,
    Failure,
    false_sentence,
    near_miss,
    not_read,
    read_elsewhere,
    unknown_sentence,
)
from onnx_subgraph.matching.state import EMPTY, State
from onnx_subgraph.matching.veils import is_float_cast
from onnx_subgraph.matching.view import View
from onnx_subgraph.model.constants import Constants

OWN_DOMAIN = "onnx_subgraph"
"""The domain of fused operators that carry their definition; the definitions are not searched again."""
ENOUGH = 2
"""A candidate that matched this many nodes got past its anchor, and leaves a near miss."""
ABSENT = 1 << 32
"""What an operator that the graph does not have costs as an anchor, where another one is wanted."""


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


class Found:
    """What `find` found: `matches` in the order of patterns and of the graph, and `near_misses`.

    Why a candidate failed is worked out when `near_misses` is first read; the graph must still be as it was then.
    """

    def __init__(self, matches: tuple[Match, ...], misses: tuple[RawMiss, ...], refused: tuple[NearMiss, ...] = ()) -> None:
        self.matches = matches
        self._misses = misses
        self._refused = refused  # the regions that were not kept

    @cached_property
    def near_misses(self) -> tuple[NearMiss, ...]:
        """The furthest failure of each candidate that got past its anchor and is part of no match of its pattern."""
        explorers: dict[tuple[int, int], Matcher] = {}
        with _no_collection():
            explored = ((miss, failure) for miss in self._misses if (failure := _explored(miss, explorers)) is not None)
            told = _once(explored)
            return (*self._refused, *(near_miss(m.normal.pattern, m.view, m.node, failure) for m, failure in told))


def _once(explored: Iterable[tuple[RawMiss, Failure]]) -> Iterator[tuple[RawMiss, Failure]]:
    """Each place once: where all of a pattern matched from two anchors and a condition failed, the larger match tells."""
    found = list(explored)
    wholes = [(m.normal, failure.nodes) for m, failure in found if failure.nodes]
    for miss, failure in found:
        mine = set(failure.nodes)
        if not any(normal is miss.normal and mine < set(other) for normal, other in wholes if mine):
            yield miss, failure


Consumers = Callable[[ir.Value], Iterable[ir.Node]]
_NORMAL: dict[int, tuple[Pattern, NormalPattern]] = {}


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
    with _no_collection():
        for graph, owner, opsets in searched(model):
            view = View(graph, constants, opsets, owner)
            counts = {identity: len(nodes) for identity, nodes in view.by_operator.items()}
            for normal in normals:
                _search(view, normal, counts, matches, misses, thorough=thorough, asked=asked)
            for pattern in patterns:
                if pattern.grow is not None:
                    regions, not_kept = regions_of(view, pattern)
                    matches += regions
                    refused += not_kept
    return Found(tuple(matches), tuple(misses), tuple(refused))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Matching makes many small immutable values and no cycles; the collector would walk the whole graph again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():
                gc.freeze()  # what was made counts as old, so that the collector does not walk it all at once now
                gc.unfreeze()
            gc.enable()


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
) -> None:
    assert normal.primary.definition is not None
    start = choose(normal.primary, lambda operators: sum(counts.get(identity, 0) for identity in operators))
    if not start.cost:
        if asked:
            misses.extend(_unlikely(view, normal, _present(normal, counts), set()))
        return
    matcher = Matcher(view, normal)
    consumers = consumers_of(matcher)
    roots_done: dict[ir.Value, bool] = {}
    failed: list[RawMiss] = []
    mine: list[Match] = []
    for anchor in start.anchors:
        for node in _anchored(view, anchor):
            found_any = False
            values = [v for v in node.outputs if matcher.plausible(anchor.term, v)]
            for root in _roots(matcher, anchor, values, consumers):
                if root not in roots_done:
                    match = first_match(matcher, root, consumers)
                    roots_done[root] = match is not None
                    if match is not None:
                        mine.append(match)
                found_any |= roots_done[root]
            if values and not found_any:
                failed.append(RawMiss(view, normal, anchor, node, thorough))
    covered = {node for match in mine for node in match.nodes}
    misses.extend(m for m in failed if m.node not in covered)
    if thorough:
        start = _present(normal, counts) if asked and not mine else start
        misses.extend(_unlikely(view, normal, start, covered | {m.node for m in failed}))
    matches.extend(_largest(mine))


def _present(normal: NormalPattern, counts: Mapping[Any, int]) -> Start:
    """The rarest anchors of a pattern that the graph has."""
    return choose(normal.primary, lambda operators: sum(counts.get(identity, 0) for identity in operators) or ABSENT)


def _unlikely(view: View, normal: NormalPattern, start: Start, known: set[ir.Node]) -> Iterator[RawMiss]:
    """Candidates that begin at an anchor of the pattern, whatever stands around it."""
    for anchor in start.anchors:
        for node in _anchored(view, anchor):
            if node not in known:
                yield RawMiss(view, normal, anchor, node, thorough=True)


def _explored(miss: RawMiss, explorers: dict[tuple[int, int], Matcher]) -> Failure | None:
    """How far a failed candidate gets when nothing is passed over; None where it is not far."""
    key = (id(miss.view), id(miss.normal))
    matcher = explorers.get(key)
    if matcher is None:
        matcher = explorers[key] = Matcher(miss.view, miss.normal, exploring=True)
    consumers = consumers_of(matcher)
    matcher.forget()
    values = [v for v in miss.node.outputs if miss.thorough or matcher.plausible(miss.anchor.term, v)]
    for root in _roots(matcher, miss.anchor, values, consumers):
        first_match(matcher, root, consumers)
    if miss.thorough:
        _climb_and_fail(matcher, miss.anchor, values, consumers)
    failure = matcher.last_failure()
    telling = ENOUGH if isinstance(miss.anchor.term, Product | Sum) or not miss.thorough else 1
    return failure if failure is not None and failure.depth + SLIGHTLY >= telling else None


def _climb_and_fail(matcher: Matcher, anchor: Anchor, values: Sequence[ir.Value], consumers: Consumers) -> None:
    """Match what is larger and larger around an anchor; the first part of the pattern that does not is where it fails."""
    depth, term, matched = 0.0, anchor.term, set[ir.Node]()
    for level, reached in climbed(values, anchor, consumers):
        before = matcher.last_failure()
        matcher.forget()
        above = level.term if level is not None else anchor.term
        found = next((s for v in reversed(reached) for s in matcher.match(above, v, EMPTY)), None)
        failure = matcher.last_failure()
        if found is None and not reached and level is not None:
            failure = _unread(depth, term, level, values, consumers)
        if found is None:
            if failure is not None and "rank " in failure.expected:
                failure = rank_raiser(matcher, matched) or failure
            if failure is not None:
                failure = failure.at(max(failure.depth, depth + SLIGHTLY))
            matcher.furthest = failure if before is None or (failure is not None and failure.depth > before.depth) else before
            return
        matcher.furthest, depth, term, matched = before, found.depth, above, found.matched()
        values = list(reached)


def _unread(depth: float, term: Normal, level: Level, values: Sequence[ir.Value], consumers: Consumers) -> Failure | None:
    """What the pattern wants to read a part that is there, does not."""
    if not values:
        return None
    readers = " and ".join(dict.fromkeys(n.op_type for n in consumers(values[0]))) or "nothing"
    return Failure(depth, level.term.span, values[0], *not_read(values[0], level.term, readers))


def consumers_of(matcher: Matcher) -> Consumers:
    """Who reads a value, as this matcher sees it."""
    return _distant_consumers(matcher) if matcher.mixed or matcher.finite else matcher.view.consumers


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


def _roots(matcher: Matcher, anchor: Anchor, values: Sequence[ir.Value], consumers: Consumers) -> Iterable[ir.Value]:
    """The values that can be the root of the whole pattern when its anchor has these results."""
    roots = climb(values, anchor.path, consumers)
    if not matcher.mixed:
        return roots
    graph = matcher.view.graph
    casts = [u.node.outputs[0] for r in roots for u in r.uses() if u.node.graph is graph and _is_cast(u.node)]
    return (*roots, *(c for c in casts if c not in roots))


def _is_cast(node: ir.Node) -> bool:
    return node.op_type == "Cast" and not node.domain and is_float_cast(node)


def _distant_consumers(matcher: Matcher) -> Consumers:
    """The consumers of a value, those behind the casts and guards that this pattern looks through included."""
    known: dict[ir.Value, tuple[ir.Node, ...]] = matcher.view.shared(("consumers", matcher.mixed, matcher.finite), dict)

    def consumers(value: ir.Value) -> tuple[ir.Node, ...]:
        found = known.get(value)
        if found is None:
            readers = matcher.view.consumers(value)
            veils = (
                node for node in readers if node.op_type in ("Cast", "Where") and node in matcher.through(node.outputs[0])[1]
            )
            behind = (reader for veil in veils for reader in consumers(veil.outputs[0]))
            found = known[value] = (*readers, *behind)
        return found

    return consumers


def first_match(matcher: Matcher, root: ir.Value, consumers: Consumers) -> Match | None:
    """The first way in which `root` is the pattern's primary result, every other result and every sentence included."""
    normal = matcher.normal
    for state in matcher.match(normal.primary, root, EMPTY):
        for complete in _other_roots(matcher, list(normal.others), state, consumers):
            accepted = _accept(matcher, complete)
            if accepted is not None:
                return accepted
    return None


def _other_roots(matcher: Matcher, others: list[Name], state: State, consumers: Consumers) -> Iterator[State]:
    """The states in which the results that the primary one does not reach have been found as well."""
    if not others:
        yield state
        return
    name = others[0]
    if _is_omitted(matcher, name, state):
        yield from _other_roots(matcher, others[1:], state, consumers)
        return
    taken = {id(v) for n, v in state.bindings.items() if isinstance(n, str) and isinstance(v, ir.Value)}
    candidates: dict[ir.Value, None] = {}
    for bound, value in state.bindings.items():
        if isinstance(bound, str) and isinstance(value, ir.Value):
            for path in paths_to(name, bound):
                candidates.update(climb([value], path, consumers))
    for candidate in candidates:
        if id(candidate) not in taken and matcher.view.producer(candidate) is not None:
            for found in matcher.match(name, candidate, state):
                yield from _other_roots(matcher, others[1:], found, consumers)


def _is_omitted(matcher: Matcher, name: Name, state: State) -> bool:
    """Whether `name` is an optional result that the node which matched does not have."""
    node = state.bindings.get(("node", name.assignment))
    if not isinstance(node, ir.Node) or not isinstance(name.definition, Operation):
        return False
    index, schema = name.definition.index, matcher.view.schema(node)
    if index < len(node.outputs) and node.outputs[index].name:
        return False
    return schema is not None and index < len(schema.outputs) and schema.outputs[index].optional


def _accept(matcher: Matcher, state: State) -> Match | None:
    """The match, when every `let` can be worked out and every sentence of `where` is true."""
    pattern, view = matcher.normal.pattern, matcher.view
    bindings: dict[str, Any] = {n: v for n, v in state.bindings.items() if isinstance(n, str)}
    root = bindings.get(matcher.normal.primary.name)

    def names(name: str) -> object:
        value = bindings.get(name)
        if value is None or isinstance(value, int | float | str | tuple):
            return value
        if isinstance(value, ir.Value):
            return view.shared(("facts", value), lambda: Facts(view, value))
        if isinstance(value, np.ndarray):
            return Number(static(value))
        return value

    def holds(sentence: Expression) -> bool:
        try:
            true, unknown = bool(evaluate(sentence, names)), ""
        except UnknownFact as fact:
            true, unknown = False, str(fact)
        if not true and matcher.exploring:
            found, change = unknown_sentence(sentence, unknown) if unknown else false_sentence(sentence, names, bindings)
            matcher.fail(state.whole(), sentence.span, root, f"`{sentence}`", found, change, nodes=state.matched())
        return true

    if not all(map(holds, matcher.normal.first)):
        return None
    for name, expression in pattern.let:
        try:
            bindings[name] = evaluate(expression, names)
        except UnknownFact as unknown:
            found, change = unknown_sentence(expression, str(unknown))
            matcher.fail(state.whole(), expression.span, root, f"`{name} = {expression}`", found, change, nodes=state.matched())
            return None
    if not all(holds(s) for s in pattern.where if s not in matcher.normal.first):
        return None
    nodes = tuple(sorted((n for n in state.matched() if n.graph is view.graph), key=view.position.__getitem__))
    rest = {key[1]: value for key, value in state.bindings.items() if isinstance(key, tuple) and key[0] == "rest"}
    roots = {n: bindings[n] for n in pattern.match.names if isinstance(bindings.get(n), ir.Value)}
    bound = [v for v in bindings.values() if isinstance(v, ir.Value)]
    provided = provided_values(roots, matcher.normal.provided)
    shared = [v for n in pattern.shares if isinstance(v := bindings.get(n), ir.Value)]
    nodes = own_nodes(nodes, provided, shared, bound)
    reader = live_reader(nodes, provided, bound)
    if reader is not None:
        matcher.fail(state.whole(), matcher.spans.get(reader[0].producer()), reader[0], *read_elsewhere(view, *reader))
        return None
    return Match(pattern, view.owner, bindings, rest, roots, nodes, state.chosen)
