"""match(term, value, state): every way in which a value of a graph equals a term.

Each kind of term has its own short method. A matcher yields states and reports failures to a recorder; it changes nothing. Sums
and products are compared by their factorings (`chain`), layout by its normal form (`layout`), attributes and constants by their
meaning (`attributes`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import onnx_ir as ir

from onnx_subgraph.facts import Number, element_type
from onnx_subgraph.language import term as syntax
from onnx_subgraph.matching import attributes, layout
from onnx_subgraph.matching.assignment import assigned, most_specific_first
from onnx_subgraph.matching.equalities import is_associative, orders
from onnx_subgraph.matching.expansion import Factoring
from onnx_subgraph.matching.failure import LONGER, SILENT, SLIGHTLY, Kind, Recorder
from onnx_subgraph.matching.lookthrough import LookThrough
from onnx_subgraph.matching.normal import (
    BROADCASTING,
    Chain,
    Choice,
    Constant,
    Layout,
    Name,
    Normal,
    NormalPattern,
    Nothing,
    Operation,
    counts,
    structure_of,
)
from onnx_subgraph.matching.numbering import axes_rank
from onnx_subgraph.matching.prefilter import Prefilter, Question
from onnx_subgraph.matching.reasons import (
    another_node,
    another_operator,
    another_result,
    another_value,
    constant_of_rank,
    no_value,
    other_inputs,
    words,
)
from onnx_subgraph.matching.recipe import Mismatch
from onnx_subgraph.matching.remembered import remembered
from onnx_subgraph.matching.state import NODE, State
from onnx_subgraph.matching.structure import Structure
from onnx_subgraph.matching.view import View, Virtual, close
from onnx_subgraph.operators.names import qualified

Target = ir.Value | Virtual
Structured = Operation | Chain | Choice | Layout
_FREE = object()
MOST_STEPS = 10_000
"""Maximum number of calls of `match` for one root; then the search there is abandoned. Few roots need a hundred."""


class GivenUpError(Exception):
    """The search for one root took more than `MOST_STEPS` steps."""


class Matcher:
    """Matches the terms of one pattern with the values of one view; reports failures to `recorder`.

    The prefilter and the handling of wrong constants are separate methods, so that `onnx_subgraph.matching.explorer` can override
    them to find reasons.
    """

    def __init__(self, view: View, normal: NormalPattern, recorder: Recorder = SILENT) -> None:
        self.view = view
        self.normal = normal
        self.recorder = recorder
        self.mixed = normal.pattern.mixed_precision
        self.finite = "finite" in normal.pattern.assumes and "IsNaN" not in syntax.operators_of(normal.pattern.match)
        self.look = LookThrough.of(view, casts=self.mixed, guards=self.finite)
        self.prefilter: Prefilter = view.shared(("prefilter", self.look), lambda: Prefilter(self.look))
        self.steps = 0
        self.structure = remembered(self._structure)
        self._question = remembered(self._asked)
        self._negative = remembered(_once)
        self._structured: dict[type, Callable[[Any, Target, State], Iterable[State]]] = {
            Operation: self._operation,
            Choice: self._choice,
            Layout: self._layout,
            Chain: self._chain,
        }
        self._matching: dict[type, Callable[[Any, Target, State], Iterable[State]]] = {
            Name: self._name,
            Constant: self._literal,
            Nothing: self._literal,
            **dict.fromkeys(self._structured, self.tried),
        }

    # Prefilter

    def _structure(self, term: Normal) -> Structure:
        return structure_of(term, self.normal.constant, self.normal.structures)

    def _asked(self, term: Normal) -> Question[object]:
        return self.prefilter.question(self.structure(term))

    def plausible(self, term: Normal, value: Target) -> bool:
        """Whether the operators behind `value` allow it to equal `term`."""
        return isinstance(value, Virtual) or bool(self._question(term)(value))

    may = plausible  # whether to try `value` with `term`

    def tried(self, term: Structured, value: Target, state: State) -> Iterable[State]:
        """`structured`, if the prefilter allows a match."""
        return self._structured[type(term)](term, value, state) if self.plausible(term, value) else ()

    def open(self, term: Choice, value: Target) -> Sequence[int]:
        """The indices of the alternatives to try with `value`."""
        if isinstance(value, Virtual):
            return range(len(term.alternatives))
        return self.prefilter.alternatives(self.structure(term))(value)

    def seen_as(self, term: Chain, value: ir.Value, constant: float, state: State) -> Iterable[Factoring]:
        """The factorings of `value` to try with the items of `term`. constant: the constant that `term` requires."""
        return self.prefilter.chains(self.structure(term))(value)

    def with_another_constant(self, term: Chain, value: ir.Value, factoring: Factoring, constant: float, state: State) -> None:
        """Called for a factoring whose constant is not the one that `term` requires."""

    # Terms

    def match(self, term: Normal, value: Target, state: State) -> Iterable[State]:
        """The states in which `value` equals `term`, starting from `state`. Raises GivenUpError."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise GivenUpError
        return self._matching[type(term)](term, value, state)

    def structured(self, term: Structured, value: Target, state: State) -> Iterable[State]:
        """`match` for a term with parts."""
        return self._structured[type(term)](term, value, state)

    def _choice(self, term: Choice, value: Target, state: State) -> Iterator[State]:
        for index in self.open(term, value):
            start = self._without(term.term, state) if index and isinstance(term.term, syntax.Variable) else state
            for found in self.match(term.alternatives[index], value, start) if start is not None else ():
                yield found.choose(id(term.term), index)

    def _without(self, variable: syntax.Variable, state: State) -> State | None:
        """The state with an optional name absent; None where it is bound to a value."""
        if state.bindings.get(variable.name) is not None:
            return None
        return state.bind(variable.name, None).choose(id(variable), 1)

    def _literal(self, term: Constant | Nothing, value: Target, state: State) -> Iterable[State]:
        written = term.value if isinstance(term, Constant) else None
        if written is not None and type(value) is ir.Value and attributes.equals_literal(self.view, written, value):
            return (state,)
        number = float(written) if isinstance(written, int | float) else None
        self.recorder.fail(Kind.TERM, state, term.span, value, term, numbers=None if number is None else (number, None))
        return ()

    def _name(self, term: Name, value: Target, state: State) -> Iterable[State]:
        if term.name == "_":
            return (state,)
        bound = state.bindings.get(term.name, _FREE)
        if bound is not _FREE:
            if self._is_same(bound, value):
                return (state,)
            self.recorder.fail(Kind.SAME, state, term.span, value, said=lambda: another_value(term.name, bound, value))
            return ()
        if term.definition is not None:
            return self._defined(term, term.definition, value, state)
        if isinstance(value, Virtual):
            self.recorder.fail(Kind.VALUE, state, term.span, value, said=no_value(term.name, value))
            return ()
        constant = self.normal.constant.get(term.name)
        if constant is not None and self.view.constants.is_constant(value) is not constant:
            wanted = f"a {'constant' if constant else 'computed value'} for {term.name}"
            self.recorder.fail(Kind.CONSTANT if constant else Kind.VALUE, state, term.span, value, said=(wanted, "", ""))
            return ()
        plain = self.view.through(value)[0]
        behind = self.look.through(value).value if self.mixed else plain
        states = (state.bind(term.name, plain),)
        return states if behind is plain else (state.bind(term.name, behind), *states)

    def _defined(self, term: Name, definition: Normal, value: Target, state: State) -> Iterator[State]:
        for found in self.match(definition, value, state):
            # A part of a node is not a value of the graph: it matches, but no name can be bound to it.
            yield found.bind(term.name, value) if type(value) is ir.Value else found

    def _is_same(self, bound: object, value: Target) -> bool:
        if isinstance(value, Virtual):
            return False
        if type(bound) is not ir.Value:
            number = self.view.scalar(value)
            return isinstance(bound, int | float) and number is not None and close(number.number, float(bound), number.tolerance)
        return self.view.same(bound, value) or (
            self.mixed and self.view.same(self.look.through(bound).value, self.look.through(value).value)
        )

    def _operation(self, term: Operation, value: Target, state: State) -> Iterable[State]:
        node, identity, inputs, passed = self._applied(value, term.operators)
        if node is None or identity not in term.operators:
            self.recorder.fail(Kind.TERM, state, term.span, value, term)
            return ()
        named = self._identified(term, node, identity, value, state)
        if named is None:
            return ()
        state = named.visit((*passed, node), term.span)
        outcome = attributes.match_static(self.view, term.term, node, identity, inputs, state)
        if isinstance(outcome, Mismatch):
            self.recorder.fail(Kind.STATIC, state.further(-SLIGHTLY), outcome.span or term.span, value, said=outcome.said)
            return ()
        after, positional = outcome
        for name in term.axes:
            after = after.bind(("axes", name), axes_rank(node))
        return self._operands(term, identity, positional, value, after)

    def _identified(self, term: Operation, node: ir.Node, identity: tuple[str, str], value: Target, state: State) -> State | None:
        """The state with the node and operator of `term` bound; None where other ones are bound already."""
        if type(value) is ir.Value:
            index = self.look.through(value).value.index()
            if index != term.index:
                said = another_result(term, index)
                self.recorder.fail(Kind.RESULT, state, term.span, value, said=said)
                return None
        if term.assignment >= 0:
            key = ("node", term.assignment)
            if state.bindings.get(key, node) is not node:
                self.recorder.fail(Kind.SAME, state, term.span, value, said=lambda: another_node(term))
                return None
            state = state.bind(key, node)
        if capture := term.term.capture:
            name = qualified(identity)
            known = state.bindings.get(capture, name)
            if known != name:
                self.recorder.fail(Kind.SAME, state, term.span, value, said=lambda: another_operator(capture, known, name))
                return None
            state = state.bind(capture, name)
        if len(term.term.operators) > 1:
            state = state.choose(id(term.term), term.term.operators.index(syntax.Operator(identity[1], identity[0])))
        return state

    def _operands(
        self, term: Operation, identity: tuple[str, str], operands: attributes.Inputs, value: Target, state: State
    ) -> Iterator[State]:
        """The states in which the operands equal the arguments, in every grouping and order that the operator allows."""
        domain, operator = identity
        counted = False
        for grouped, inner in self._groupings(identity, operands, counts(term.arguments)):
            counted = True
            within = state.visit(inner, term.span)
            for order in orders(identity, grouped):
                if operator in BROADCASTING and not domain and self._raises_rank(term.arguments, order):
                    ranks = [n.rank for v in order if type(v) is ir.Value and (n := self.view.scalar(v)) is not None]
                    self.recorder.fail(Kind.RANK, within, term.span, value, said=constant_of_rank(max(ranks, default=0)))
                else:
                    yield from self._arguments(term.arguments, order, within)
        if not counted:
            said = other_inputs(term, len(operands))
            self.recorder.fail(Kind.INPUTS, state.further(-SLIGHTLY), term.span, value, said=said)

    def _groupings(
        self, identity: tuple[str, str], operands: attributes.Inputs, wanted: range, start: int = 0
    ) -> Iterator[tuple[attributes.Inputs, tuple[ir.Node, ...]]]:
        """The operands grouped into a number in `wanted`, with the inner nodes: Max(Max(a, b), c) has three."""
        if len(operands) in wanted:
            yield operands, ()
        if len(operands) >= wanted[-1] or not is_associative((identity,)):
            return
        for index in range(start, len(operands)):
            operand = operands[index]
            if type(operand) is not ir.Value:
                continue
            _, passed, node = self.look.through(operand)
            if node is not None and (node.domain, node.op_type) == identity:
                opened = (*operands[:index], *node.inputs, *operands[index + 1 :])
                for found, inner in self._groupings(identity, opened, wanted, index):
                    yield found, (*passed, node, *inner)

    def _raises_rank(self, terms: Sequence[Normal], values: Sequence[Target | None]) -> bool:
        """Whether a literal or captured number matches a constant whose rank would raise the rank of the result."""
        for position, (term, value) in enumerate(zip(terms, values, strict=True)):
            if not (isinstance(term, Constant) or (isinstance(term, Name) and term.name in self.normal.statics)):
                continue
            number = self.view.scalar(value) if type(value) is ir.Value else None
            if number is None or number.rank == 0:
                continue
            others = [v for i, v in enumerate(values) if i != position and type(v) is ir.Value]
            if not any(v.shape is not None and number.rank <= v.shape.rank() for v in others):
                return True
        return False

    def _applied(
        self, value: Target, wanted: Collection[tuple[str, str]]
    ) -> tuple[ir.Node | None, tuple[str, str], tuple[ir.Value | Virtual | None, ...], tuple[ir.Node, ...]]:
        """The node behind `value`, the operator that it is matched as, its inputs, and the skipped nodes."""
        if isinstance(value, Virtual):
            return value.node, ("", value.operator), value.inputs, ()
        _, passed, node = self.look.through(value)
        if node is None:
            return None, ("", ""), (), passed
        return node, self.view.meaning(node, wanted), tuple(node.inputs), passed

    def _arguments(self, terms: tuple[Normal, ...], values: tuple[Target | None, ...], state: State) -> Iterator[State]:
        """Match all arguments, structured ones first, to find a mismatch early."""
        values = (*values, *(None,) * (len(terms) - len(values)))
        return self._further_arguments([(terms[index], values[index]) for index in most_specific_first(terms)], 0, state)

    def _further_arguments(self, pairs: Sequence[tuple[Normal, Target | None]], position: int, state: State) -> Iterator[State]:
        while position < len(pairs):
            found = self._argument(*pairs[position], state)
            position += 1
            if type(found) is not tuple or len(found) != 1:
                for reached in found:
                    yield from self._further_arguments(pairs, position, reached)
                return
            state = found[0]  # the common case: a name has one way to match
        yield state

    def _argument(self, term: Normal, value: Target | None, state: State) -> Iterable[State]:
        """The states in which an operand, or an omitted input, equals an argument."""
        optional = term.optional if type(term) is Name else None
        if value is not None:
            found = self.match(term, value, state)
            return found if optional is None else (reached.choose(id(optional), 0) for reached in found)
        if optional is not None:
            without = self._without(optional, state)
            return () if without is None else (without,)
        if isinstance(term, Nothing) or (isinstance(term, Name) and term.name == "_"):
            return (state,)
        said = (words(term), "an omitted input", "give the input that is left out")
        self.recorder.fail(Kind.INPUTS, state, term.span, None, said=said)
        return ()

    # Chains

    def _chain(self, term: Chain, value: Target, state: State, factor: float = 1.0) -> Iterator[State]:
        """The states in which `value` = factor * term. For a sum, factor is 1."""
        constant = term.constant * factor
        if isinstance(value, Virtual):
            start = self._without(term.optional, state) if term.optional is not None else state if term.scalar is None else None
            if term.is_product and len(term.items) == 1 and start is not None and close(constant, 1.0):
                yield from self.match(term.items[0][0], value, start)
            return
        for factoring in self.seen_as(term, value, constant, state):
            after = self._constant(term, value, factoring, constant, state)
            if after is None:
                self.with_another_constant(term, value, factoring, constant, state)
                continue
            yield from assigned(self, term, factoring.items, after.visit(factoring.nodes, term.span))

    def _constant(self, term: Chain, value: ir.Value, factoring: Factoring, constant: float, state: State) -> State | None:
        """The state in which the constant of this factoring of `value` is the pattern's; None where it differs."""
        if term.optional is not None and not factoring.scalars and close(factoring.constant, constant, factoring.tolerance):
            return self._without(term.optional, state)
        if term.scalar is not None:
            state = state if term.optional is None else state.choose(id(term.optional), 0)
            rest = factoring.constant / constant if term.is_product else factoring.constant - constant
            bound = state.bindings.get(term.scalar, _FREE)
            if bound is _FREE:
                rank = max((number.rank for v, _ in factoring.scalars if (number := self.view.scalar(v)) is not None), default=0)
                facts = Number(rest, element_type(value), (1,) * rank)
                return state.bind(term.scalar, rest).bind(("facts", term.scalar), facts)
            known = self.view.scalar(bound).number if type(bound) is ir.Value and self.view.scalar(bound) else bound  # type: ignore[union-attr]
            return state if isinstance(known, int | float) and close(float(known), rest, factoring.tolerance) else None
        return state if close(factoring.constant, constant, factoring.tolerance) else None

    def negated(self, term: Chain | Name | Operation, value: Target, state: State) -> Iterator[State]:
        """The states in which `value` is the negative of `term`."""
        return self._chain(self._negative(term), value, state, factor=-1.0)

    # Layout

    def _layout(self, term: Layout, value: Target, state: State) -> Iterator[State]:
        for outcome in layout.match(self.view, term, value, state):
            if isinstance(outcome, Mismatch):
                # A chain counts as one node, whatever its length; the longest one is the reason.
                partly = state.further(NODE - SLIGHTLY + LONGER * outcome.reached if outcome.reached else 0)
                self.recorder.fail(Kind.RANK if outcome.of_rank else Kind.LAYOUT, partly, term.span, value, said=outcome.said)
                continue
            source, bound, nodes = outcome
            inner = State({**state.bindings, **bound}, state.nodes, state.rank, state.chosen).visit(nodes, term.span)
            yield from self.match(term.source, source, inner)


def _once(term: Chain | Name | Operation) -> Chain:
    """A term as a product with one factor."""
    return term if isinstance(term, Chain) and term.is_product else Chain(True, 1.0, ((term, 1.0),), None, term.span)
