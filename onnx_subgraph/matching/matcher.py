"""match(term, value, state): every way in which a value of a graph is equal to a term.

The one noun is the term, the one verb is match; each kind of term has a method of a screen or less. A matcher yields states
and records the furthest failure; it changes nothing. Sums and products are compared front by front (`chain`), layout by its
normal form (`layout`), attributes and constants by their meaning (`attributes`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import permutations

import onnx_ir as ir

from onnx_subgraph.errors import Span
from onnx_subgraph.language import term as syntax
from onnx_subgraph.matching import attributes, exploring, layout
from onnx_subgraph.matching.assignment import assigned, specificity
from onnx_subgraph.matching.chain import Front, Fronts
from onnx_subgraph.matching.facts import Number, element_type
from onnx_subgraph.matching.normal import (
    ASSOCIATIVE,
    BROADCASTING,
    COMMUTATIVE,
    Choice,
    Constant,
    Layout,
    Name,
    Normal,
    NormalPattern,
    Nothing,
    Operation,
    Product,
    Sum,
    mentions,
)
from onnx_subgraph.matching.plausible import Plausibility, variants
from onnx_subgraph.matching.reasons import SLIGHTLY, Failure, counted_inputs, named, words
from onnx_subgraph.matching.state import State
from onnx_subgraph.matching.veils import guarded, is_float_cast
from onnx_subgraph.matching.view import View, Virtual, close

Target = ir.Value | Virtual
_FREE = object()
MOST_STEPS = 10_000
"""How often a term is held against a value for one root before the search there is given up; few need a hundred."""


class GivenUpError(Exception):
    """The search for one root took more than `MOST_STEPS` steps."""


class Matcher:
    """Matches the terms of one pattern against the values of one view.

    exploring: whether it is the reason of a failure that is wanted: then nothing is passed over for its structure, and a wrong
    constant is followed to see whether it is all that is wrong.
    """

    def __init__(self, view: View, normal: NormalPattern, *, exploring: bool = False) -> None:
        self.view = view
        self.normal = normal
        self.exploring = exploring
        self.mixed = normal.pattern.mixed_precision
        self.finite = "finite" in normal.pattern.assumes and "IsNaN" not in syntax.operators_of(normal.pattern.match)
        self.fronts: Fronts = view.shared((self.mixed, self.finite), lambda: Fronts(view, self.through))
        self.plausible = Plausibility(view, normal, self.fronts)
        self.steps = 0
        self.furthest: Failure | None = None
        self.spans: dict[ir.Node | None, Span | None] = {}  # where the pattern says what a node is; while exploring
        self._hopeless: dict[tuple[int, ir.Value], Failure | None] = {}
        self._names: dict[int, frozenset[object]] = {}
        self._fixed: dict[tuple[int, ir.Node], attributes.Inputs | attributes.Mismatch] = {}

    def fail(
        self,
        state: State,
        span: Span | None,
        value: Target | None,
        expected: str,
        found: str = "",
        change: str = "",
        nodes: Collection[ir.Node] = (),
    ) -> None:
        """Remember this failure when no other got further.

        found, change: left out, they are what stands at `value`, and to put what is expected in its place. nodes: all that
        matched, where only a condition failed.
        """
        if self.exploring and (self.furthest is None or state.depth > self.furthest.depth):
            self.furthest = Failure(state.depth, span, value, expected, found, change, nodes)

    def forget(self) -> None:
        """Start a new candidate: failures so far don't count."""
        self.furthest = None

    def last_failure(self) -> Failure | None:
        """The furthest failure since `forget`."""
        return self.furthest

    # Values

    def through(self, value: ir.Value) -> tuple[ir.Value, tuple[ir.Node, ...]]:
        """The value behind everything that this pattern looks through, and the nodes on the way."""
        source, passed = self.view.through(value)
        while self.mixed or self.finite:
            node = self.view.producer(source)
            if node is None or node.domain:
                break
            if self.mixed and node.op_type == "Cast" and is_float_cast(node):
                inner = node.inputs[0]
                guard: tuple[ir.Node, ...] = (node,)
            elif self.finite and node.op_type == "Where":
                inner, guard = guarded(self.view, node)
            else:
                break
            if inner is None:
                break
            source, more = self.view.through(inner)
            passed = (*passed, *guard, *more)
        return source, passed

    # Terms

    def match(self, term: Normal, value: Target, state: State) -> Iterable[State]:
        """The states in which `value` equals `term`, starting from `state`. Raises GivenUpError."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise GivenUpError
        if isinstance(term, Name):
            return self._name(term, value, state)
        if isinstance(term, Constant):
            return self._literal(term, value, state)
        if isinstance(term, Nothing):
            self.fail(state, term.span, value, words(term))
            return ()
        if self.exploring:
            return self._remembered(term, value, state)
        return self._structure(term, value, state) if self.plausible(term, value) else ()

    def _structure(self, term: Operation | Product | Sum | Choice | Layout, value: Target, state: State) -> Iterator[State]:
        if isinstance(term, Operation):
            return self._operation(term, value, state)
        if isinstance(term, Choice):
            return self._choice(term, value, state)
        return self._layout(term, value, state) if isinstance(term, Layout) else self._chain(term, value, state)

    def _remembered(self, term: Operation | Product | Sum | Choice | Layout, value: Target, state: State) -> Iterator[State]:
        """As `match`, but what fails is remembered with its reason.

        Bindings only constrain: what fails for names that are all still free fails always, and is not tried a second time.
        """
        if isinstance(value, Virtual):
            yield from self._structure(term, value, state)
            return
        key = (id(term), value)
        if key in self._hopeless:
            known = self._hopeless[key]
            if known is not None:
                self.fail(state.deeper(known.depth), known.span, known.value, known.expected, known.found, known.change)
            return
        before = self.last_failure()
        self.forget()
        hopeless = True
        for found in self._structure(term, value, state):
            hopeless = False
            yield found
        failure, self.furthest = self.last_failure(), before
        if hopeless and self._mentions(term).isdisjoint(state.bindings):
            self._hopeless[key] = failure and failure.above(state.depth)
        if failure is not None and (before is None or failure.depth > before.depth):
            self.furthest = failure

    def _mentions(self, term: Normal) -> frozenset[object]:
        """Every key of a state's bindings that matching `term` may read."""
        known = self._names.get(id(term))
        if known is None:
            known = self._names[id(term)] = mentions(term)
        return known

    def _choice(self, term: Choice, value: Target, state: State) -> Iterator[State]:
        for index, alternative in enumerate(term.alternatives):
            for found in self.match(alternative, value, state):
                yield found.choose(id(term.term), index)

    def _literal(self, term: Constant, value: Target, state: State) -> Iterable[State]:
        if isinstance(value, ir.Value) and attributes.equals_literal(self.view, term.value, value):
            return (state,)
        self.fail(state, term.span, value, f"the constant {term.value}")
        return ()

    def _name(self, term: Name, value: Target, state: State) -> Iterable[State]:
        if term.name == "_":
            return (state,)
        bound = state.bindings.get(term.name, _FREE)
        if bound is not _FREE:
            if self._is_same(bound, value):
                return (state,)
            if self.exploring:
                known, here = named(bound), named(value)
                change = f"let both be the same value, {known} or {here}"
                self.fail(state, term.span, value, f"{known} again, which {term.name} stands for", here, change)
            return ()
        if term.definition is not None:
            return self._defined(term, term.definition, value, state)
        if isinstance(value, Virtual):
            inside = f"the {value.operator} inside {value.node.op_type}"
            change = f"write the {value.node.op_type} as the operators that it stands for"
            self.fail(state, term.span, value, f"a value for {term.name}", inside, change)
            return ()
        constant = self.normal.constant.get(term.name)
        if constant is not None and self.view.constants.is_constant(value) is not constant:
            self.fail(state, term.span, value, f"a {'constant' if constant else 'computed value'} for {term.name}")
            return ()
        plain = self.view.through(value)[0]
        behind = self.through(value)[0] if self.mixed else plain
        states = (state.bind(term.name, plain),)
        return states if behind is plain else (state.bind(term.name, behind), *states)

    def _defined(self, term: Name, definition: Normal, value: Target, state: State) -> Iterator[State]:
        for found in self.match(definition, value, state):
            # A part of a node is no value of the graph: it matches, and nothing can be called by its name.
            yield found.bind(term.name, value) if isinstance(value, ir.Value) else found

    def _is_same(self, bound: object, value: Target) -> bool:
        if isinstance(value, Virtual):
            return False
        if not isinstance(bound, ir.Value):
            number = self.view.scalar(value)
            return isinstance(bound, int | float) and number is not None and close(number.number, float(bound), number.tolerance)
        return self.view.same(bound, value) or (self.mixed and self.view.same(self.through(bound)[0], self.through(value)[0]))

    def _operation(self, term: Operation, value: Target, state: State) -> Iterator[State]:
        node, identity, inputs, passed = self._applied(value, term.operators)
        if node is None or identity not in term.operators:
            self.fail(state, term.span, value, words(term))
            return
        if isinstance(value, ir.Value):
            source = self.through(value)[0]
            if source.index() != term.index:
                wanted = f"result {term.index} of {words(term)}"
                self.fail(state, term.span, value, wanted, f"result {source.index()}", f"read {wanted}")
                return
        if term.assignment >= 0:
            key = ("node", term.assignment)
            if state.bindings.get(key, node) is not node:
                change = f"let one {words(term)} give all the results"
                self.fail(state, term.span, value, f"a result of the same {words(term)}", "another node's result", change)
                return
            state = state.bind(key, node)
        if term.term.capture:
            name = f"{identity[0]}.{identity[1]}" if identity[0] else identity[1]
            known = state.bindings.get(term.term.capture, name)
            if known != name:
                change = f"let both be the same operator, {known} or {name}"
                self.fail(state, term.span, value, f"{known} again, which {term.term.capture} stands for", name, change)
                return
            state = state.bind(term.term.capture, name)
        if len(term.term.operators) > 1:
            state = state.choose(id(term.term), term.term.operators.index(syntax.Operator(identity[1], identity[0])))
        state = state.visit((*passed, node))
        if self.exploring:
            self.spans[node] = term.span
        outcome = self._static(term, node, identity, inputs, state)
        if isinstance(outcome, attributes.Mismatch):
            partly = state.deeper(-SLIGHTLY)
            self.fail(partly, outcome.span or term.span, value, outcome.expected, outcome.found, outcome.change)
            return
        after, positional = outcome
        for name in term.axes:
            after = after.bind(("axes", name), attributes.axes_rank(inputs, node))
        counted = False
        for operands, inner in self._groupings(identity, positional, len(term.arguments)):
            counted = True
            within = after.visit(inner)
            commutes = len(operands) > 1 and identity[1] in COMMUTATIVE and not identity[0]
            for order in permutations(operands) if commutes else (operands,):
                if identity[1] in BROADCASTING and not identity[0] and self._raises_rank(term.arguments, order):
                    exploring.fail_for_rank(self, within, term, value, order)
                else:
                    yield from self._arguments(term.arguments, order, within)
        if not counted:
            given, wanted = counted_inputs(len(positional)), f"{counted_inputs(len(term.arguments))} of {words(term)}"
            change = f"give {words(term)} {counted_inputs(len(term.arguments))}, not {len(positional)}"
            self.fail(after.deeper(-SLIGHTLY), term.span, value, wanted, given, change)

    def _groupings(
        self, identity: tuple[str, str], operands: attributes.Inputs, wanted: int, start: int = 0
    ) -> Iterator[tuple[attributes.Inputs, tuple[ir.Node, ...]]]:
        """The operands as `wanted` of them: Max(Max(a, b), c) has three. With the nodes between."""
        if len(operands) == wanted:
            yield operands, ()
        if len(operands) >= wanted or identity[0] or identity[1] not in ASSOCIATIVE:
            return
        for index in range(start, len(operands)):
            operand = operands[index]
            if not isinstance(operand, ir.Value):
                continue
            source, passed = self.through(operand)
            node = self.view.producer(source)
            if node is not None and (node.domain, node.op_type) == identity:
                opened = (*operands[:index], *node.inputs, *operands[index + 1 :])
                for found, inner in self._groupings(identity, opened, wanted, index):
                    yield found, (*passed, node, *inner)

    def _static(
        self, term: Operation, node: ir.Node, identity: tuple[str, str], inputs: attributes.Inputs, state: State
    ) -> tuple[State, attributes.Inputs] | attributes.Mismatch:
        """`attributes.match_static`, asked once for each node where the pattern captures nothing static."""
        if not term.is_fixed or identity[1] != node.op_type or inputs != tuple(node.inputs):
            return attributes.match_static(self.view, term.term, node, identity, inputs, state)
        key = (id(term), node)
        known = self._fixed.get(key)
        if known is None:
            outcome = attributes.match_static(self.view, term.term, node, identity, inputs, state)
            known = self._fixed[key] = outcome if isinstance(outcome, attributes.Mismatch) else outcome[1]
        return known if isinstance(known, attributes.Mismatch) else (state, known)

    def _raises_rank(self, terms: Sequence[Normal], values: Sequence[Target | None]) -> bool:
        """Whether a number, written or captured, stands for a constant that gives the result a rank of its own."""
        for position, (term, value) in enumerate(zip(terms, values, strict=True)):
            if not (isinstance(term, Constant) or (isinstance(term, Name) and term.name in self.normal.statics)):
                continue
            number = self.view.scalar(value) if isinstance(value, ir.Value) else None
            if number is None or number.rank == 0:
                continue
            others = [v for i, v in enumerate(values) if i != position and isinstance(v, ir.Value)]
            if not any(v.shape is not None and number.rank <= v.shape.rank() for v in others):
                return True
        return False

    def _applied(
        self, value: Target, wanted: Collection[tuple[str, str]]
    ) -> tuple[ir.Node | None, tuple[str, str], tuple[ir.Value | Virtual | None, ...], tuple[ir.Node, ...]]:
        """The node behind `value`, which operator it is, its inputs, and the nodes looked through.

        A Gemm without addend, transposition or scale is a MatMul where the pattern wants one.
        """
        if isinstance(value, Virtual):
            return value.node, ("", value.operator), value.inputs, ()
        source, passed = self.through(value)
        node = self.view.producer(source)
        if node is None:
            return None, ("", ""), (), passed
        identity = (node.domain, node.op_type)
        if identity == ("", "Gemm") and identity not in wanted and self.view.is_plain_gemm(node) and len(node.inputs) == 2:
            identity = ("", "MatMul")
        return node, identity, tuple(node.inputs), passed

    def _arguments(self, terms: Sequence[Normal], values: Sequence[Target | None], state: State) -> Iterator[State]:
        """All arguments at once, structured ones first, so that a wrong one is noticed early."""
        order = sorted(range(len(terms)), key=lambda i: specificity(terms[i])) if len(terms) > 1 else (0,) * len(terms)

        def step(position: int, so_far: State) -> Iterator[State]:
            if position == len(order):
                yield so_far
                return
            index = order[position]
            term, value = terms[index], values[index]
            if value is None:
                if isinstance(term, Nothing) or (isinstance(term, Name) and term.name == "_"):
                    yield from step(position + 1, so_far)
                else:
                    self.fail(so_far, term.span, None, words(term), "an omitted input", "give the input that is left out")
                return
            for found in self.match(term, value, so_far):
                yield from step(position + 1, found)

        yield from step(0, state)

    # Chains

    def _chain(self, term: Product | Sum, value: Target, state: State, factor: float = 1.0) -> Iterator[State]:
        """`value` = factor * term. For a sum, factor is 1."""
        items = term.factors if isinstance(term, Product) else term.addends
        if isinstance(value, Virtual):
            if isinstance(term, Product) and len(items) == 1 and term.scalar is None and close(term.coefficient * factor, 1.0):
                yield from self.match(items[0][0], value, state)
            return
        product = isinstance(term, Product)
        constant = term.coefficient * factor if isinstance(term, Product) else term.constant
        fronts = (
            tuple(variants(self.view, self.fronts, term, value)) if self.exploring else self.plausible.assignable(term, value)
        )
        if self.exploring:
            exploring.fail_for_items(self, state, term, value, constant, known=bool(fronts))
        for front in fronts:
            after = self._constant(term, value, front, constant, state)
            if after is not None:
                if self.exploring:
                    self.spans.update(dict.fromkeys(front.nodes, term.span))
                yield from assigned(self, items, front.items, after.visit(front.nodes), product)
            elif self.exploring and term.scalar is None:
                # The constant is wrong; it is the reason only where everything else is right.
                for reached in assigned(self, items, front.items, state.visit(front.nodes), product):
                    self.fail(reached, term.span, value, f"the constant {constant:.6g}", f"{front.constant:.6g}")
                    break

    def _constant(self, term: Product | Sum, value: ir.Value, front: Front, constant: float, state: State) -> State | None:
        """The state in which the constant of `value`, seen as this front, is the pattern's; or None."""
        product = isinstance(term, Product)
        if term.scalar is not None:
            rest = front.constant / constant if product else front.constant - constant
            bound = state.bindings.get(term.scalar)
            if bound is None:
                rank = max((number.rank for v, _ in front.scalars if (number := self.view.scalar(v)) is not None), default=0)
                facts = Number(rest, element_type(value), (1,) * rank)
                return state.bind(term.scalar, rest).bind(("facts", term.scalar), facts)
            known = self.view.scalar(bound).number if isinstance(bound, ir.Value) and self.view.scalar(bound) else bound  # type: ignore[union-attr]
            return state if isinstance(known, int | float) and close(float(known), rest, front.tolerance) else None
        return state if close(front.constant, constant, front.tolerance) else None

    def negated(self, term: Product | Sum | Name | Operation, value: Target, state: State) -> Iterator[State]:
        """The states in which `value` is the negative of `term`."""
        product = term if isinstance(term, Product) else Product(1.0, ((term, 1.0),), None, term.span)
        return self._chain(product, value, state, factor=-1.0)

    # Layout

    def _layout(self, term: Layout, value: Target, state: State) -> Iterator[State]:
        for outcome in layout.match(self.view, term, value, state):
            if isinstance(outcome, layout.Mismatch):
                # A chain counts as one node, however long; the longest one is the reason.
                partly = state.deeper(1 - SLIGHTLY + exploring.LONGER * outcome.reached if outcome.reached else 0)
                self.fail(partly, term.span, value, outcome.expected, outcome.found, outcome.change)
                continue
            source, bound, nodes = outcome
            if self.exploring:
                self.spans.update(dict.fromkeys(nodes, term.span))
            yield from self.match(
                term.source, source, State({**state.bindings, **bound}, state.nodes, state.depth, state.chosen).visit(nodes)
            )
