"""A whole match: the root and every other result of a pattern, every `let` and every sentence, and an inside of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import onnx_ir as ir

from onnx_subgraph.language.pattern import Expression
from onnx_subgraph.language.sentence import UnknownFact, definition, evaluate
from onnx_subgraph.matching.anchors import Anchor, climb, paths_to
from onnx_subgraph.matching.facts import AxisFacts, Facts
from onnx_subgraph.matching.interior import live_reader, own_nodes, provided_values
from onnx_subgraph.matching.match import Match
from onnx_subgraph.matching.matcher import Matcher
from onnx_subgraph.matching.normal import Name, Operation
from onnx_subgraph.matching.reasons import false_sentence, read_elsewhere, unknown_sentence
from onnx_subgraph.matching.state import EMPTY, State
from onnx_subgraph.matching.veils import is_float_cast
from onnx_subgraph.matching.view import View

Consumers = Callable[[ir.Value], Iterable[ir.Node]]


def consumers_of(matcher: Matcher) -> Consumers:
    """Who reads a value, as this matcher sees it."""
    return _distant_consumers(matcher) if matcher.mixed or matcher.finite else matcher.view.consumers


def roots_of(matcher: Matcher, anchor: Anchor, values: Sequence[ir.Value], consumers: Consumers) -> Iterable[ir.Value]:
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
    """The first way in which `root` is the pattern's primary result, every other result and every sentence included.

    Raises GivenUpError where it is not found in `MOST_STEPS`.
    """
    normal, matcher.steps = matcher.normal, 0
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
        if isinstance(value, ir.Value):
            if ("axes", name) in state.bindings:
                return AxisFacts(view, value, state.bindings["axes", name])
            return view.shared(("facts", value), lambda: Facts(view, value))
        return state.bindings.get(("facts", name), value)

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
            bindings[name] = definition(expression, names)
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
    doubles: dict[ir.Value, ir.Value] = {}
    while (reader := live_reader(nodes, provided, bound, {n for v in doubles if (n := v.producer()) is not None})) is not None:
        again = _doubles(view, reader[1], provided)
        if again:
            doubles.update(again)
            continue
        matcher.fail(state.whole(), matcher.spans.get(reader[0].producer()), reader[0], *read_elsewhere(view, *reader))
        return None
    return Match(pattern, view.owner, bindings, rest, roots, nodes, state.chosen, doubles=doubles)


def _doubles(view: View, node: ir.Node | None, provided: Collection[ir.Value]) -> dict[ir.Value, ir.Value]:
    """The results of a node by the provided values that they are equal to; {} where one is equal to none, and is needed.

    Who reads a result must come after the value that shall stand for it.
    """
    found: dict[ir.Value, ir.Value] = {}
    if node is None or node not in view.position:
        return {}
    for output in node.outputs:
        equal = next((v for v in provided if view.same(v, output)), None)
        source = None if equal is None else equal.producer()
        if output.is_graph_output() or (source is None and output.uses()):
            return {}
        if equal is None or source is None or source is node:
            continue
        if any(view.position.get(user, -1) < view.position[source] for user, _ in output.uses()):
            return {}
        found[output] = equal
    return found
