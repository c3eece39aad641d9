"""Complete a match: find all results of a pattern, evaluate every `let` and sentence, and check that the inside is private."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import onnx_ir as ir

from onnx_subgraph.facts import AxisFacts
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.sentence import UnknownFact, asks_presence, definition, evaluate
from onnx_subgraph.matching.anchors import Anchor, climb, paths_to
from onnx_subgraph.matching.failure import Kind
from onnx_subgraph.matching.interior import is_closed, live_reader, own_nodes
from onnx_subgraph.matching.lookthrough import is_float_cast
from onnx_subgraph.matching.match import Match
from onnx_subgraph.matching.matcher import Matcher
from onnx_subgraph.matching.normal import Name, Operation
from onnx_subgraph.matching.reasons import false_sentence, read_elsewhere, unknown_sentence
from onnx_subgraph.matching.state import EMPTY, WHOLE, State
from onnx_subgraph.matching.view import View


def roots_of(matcher: Matcher, anchor: Anchor, values: Sequence[ir.Value]) -> Iterable[ir.Value]:
    """The values that can be the root of the whole pattern if its anchor has these results."""
    roots = climb(values, anchor.path, matcher.look)
    if not matcher.mixed:
        return roots
    graph = matcher.view.graph
    casts = [u.node.outputs[0] for r in roots for u in r.uses() if u.node.graph is graph and _is_cast(u.node)]
    return (*roots, *(c for c in casts if c not in roots))


def _is_cast(node: ir.Node) -> bool:
    return node.op_type == "Cast" and not node.domain and is_float_cast(node)


def first_match(matcher: Matcher, root: ir.Value) -> Match | None:
    """The first match with `root` as the primary result, including all other results and sentences.

    Raises GivenUpError where it is not found within `MOST_STEPS`.
    """
    normal, matcher.steps = matcher.normal, 0
    for state in matcher.match(normal.primary, root, EMPTY):
        for complete in _other_roots(matcher, list(normal.others), state):
            accepted = _accept(matcher, complete)
            if accepted is not None:
                return accepted
    return None


def _other_roots(matcher: Matcher, others: list[Name], state: State) -> Iterator[State]:
    """The states in which the results that the primary one does not reach are matched, too."""
    if not others:
        yield state
        return
    name = others[0]
    if _is_omitted(matcher, name, state):
        yield from _other_roots(matcher, others[1:], state)
        return
    taken = {id(v) for n, v in state.bindings.items() if isinstance(n, str) and type(v) is ir.Value}
    candidates: dict[ir.Value, None] = {}
    for bound, value in state.bindings.items():
        if isinstance(bound, str) and type(value) is ir.Value:
            for path in paths_to(name, bound):
                candidates.update(climb([value], path, matcher.look))
    for candidate in candidates:
        if id(candidate) not in taken and matcher.view.producer(candidate) is not None:
            for found in matcher.match(name, candidate, state):
                yield from _other_roots(matcher, others[1:], found)


def _is_omitted(matcher: Matcher, name: Name, state: State) -> bool:
    """Whether `name` is an optional result that the matched node does not have."""
    node = state.bindings.get(("node", name.assignment))
    if type(node) is not ir.Node or not isinstance(name.definition, Operation):
        return False
    index, schema = name.definition.index, matcher.view.schema(node)
    if index < len(node.outputs) and node.outputs[index].name:
        return False
    return schema is not None and index < len(schema.outputs) and schema.outputs[index].optional


def _accept(matcher: Matcher, state: State) -> Match | None:
    """The match, if every `let` has a value, every sentence is true, and the inside is private; else None."""
    bindings = _Bindings(matcher, state)
    normal = matcher.normal
    true = (
        all(bindings.holds(sentence) for key, sentence in normal.written.items() if state.chosen.get(key))
        and all(map(bindings.holds, normal.first))
        and all(bindings.define(name, expression) for name, expression in normal.pattern.let)
        and all(map(bindings.holds, normal.last))
    )
    return _with_private_inside(matcher, state, bindings.values) if true else None


class _Bindings:
    """The bindings of a match, as names for sentences; `let` adds names."""

    def __init__(self, matcher: Matcher, state: State) -> None:
        self.values: dict[str, Any] = {n: v for n, v in state.bindings.items() if type(n) is str}
        self._matcher = matcher
        self._state = state
        self._root = self.values.get(matcher.normal.primary.name)

    def __call__(self, name: str) -> object:
        """The facts of what a name is bound to."""
        value, bindings = self.values.get(name), self._state.bindings
        if type(value) is not ir.Value:
            return value if value is None else bindings.get(("facts", name), value)
        if ("axes", name) in bindings:
            return AxisFacts(self._matcher.view.constants, value, bindings["axes", name])
        return self._matcher.view.facts(value)

    def holds(self, sentence: Expression) -> bool:
        """Whether a sentence is true."""
        try:
            true, unknown = bool(evaluate(sentence, self)), None
        except UnknownFact as fact:
            true, unknown = False, fact.with_traceback(None)  # the frames would keep the graph alive
        if not true and not asks_presence(sentence):
            self._fail(f"`{sentence}`", sentence, lambda: self._said(sentence, unknown))
        return true

    def _said(self, sentence: Expression, unknown: UnknownFact | None) -> tuple[str, str]:
        if unknown:
            return unknown_sentence(sentence, unknown)
        return false_sentence(sentence, self, self.values, dict(self._matcher.normal.pattern.let))

    def define(self, name: str, expression: Expression) -> bool:
        """Bind a name of `let` to its value. Returns whether it has one."""
        try:
            self.values[name] = definition(expression, self)
        except UnknownFact as fact:
            unknown = fact.with_traceback(None)
            expected = f"`{expression}`" if name == expression.text else f"`{name} = {expression}`"  # a condition names itself
            self._fail(expected, expression, lambda: unknown_sentence(expression, unknown))
            return False
        return True

    def _fail(self, expected: str, sentence: Expression, why: Callable[[], tuple[str, str]]) -> None:
        recorder, state = self._matcher.recorder, self._state
        said = lambda: (expected, *why())  # noqa: E731
        recorder.fail(Kind.SENTENCE, state.further(WHOLE), sentence.span, self._root, said=said, nodes=state.matched)


def _with_private_inside(matcher: Matcher, state: State, bindings: dict[str, Any]) -> Match | None:
    """The match, if no node that stays reads a value inside it; else None."""
    pattern, view = matcher.normal.pattern, matcher.view
    nodes = tuple(sorted(filter(view.position.__contains__, state.matched()), key=view.position.__getitem__))
    rest = {key[1]: value for key, value in state.bindings.items() if isinstance(key, tuple) and key[0] == "rest"}
    roots = {n: bindings[n] for n in pattern.match.names if type(bindings.get(n)) is ir.Value}
    bound = [v for v in bindings.values() if type(v) is ir.Value]
    provided = frozenset(value for name, value in roots.items() if name in matcher.normal.provided)
    shared = [v for n in pattern.shares if type(v := bindings.get(n)) is ir.Value]
    doubles: dict[ir.Value, ir.Value] = {}
    gone: set[ir.Node] = set()
    closed = is_closed(nodes, provided)  # the common case
    nodes = nodes if closed else own_nodes(nodes, provided, shared, bound, view.constants, view.order)
    while not closed and (reader := live_reader(nodes, provided, bound, gone, view.order)) is not None:
        again = _doubles(view, reader[1], provided)
        if again:
            doubles.update(again)
            gone.update(node for double in again if (node := double.producer()) is not None)
            continue
        value, user = reader
        span = state.span_of(value.producer())
        matcher.recorder.fail(
            Kind.READ_ELSEWHERE,
            state.further(WHOLE),
            span,
            value,
            said=lambda: read_elsewhere(view, value, user),  # noqa: B023
            nodes=state.matched,
        )
        return None
    return Match(pattern, view.owner, bindings, rest, roots, nodes, state.chosen, doubles=doubles, visited=tuple(state.visited()))


def _doubles(view: View, node: ir.Node | None, provided: Collection[ir.Value]) -> dict[ir.Value, ir.Value]:
    """Result of a node → the equal value that the match provides; {} where the node must stay.

    All readers of a result must come after the value that replaces it.
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
