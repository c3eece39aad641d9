"""The matches of a pattern of regions: its sentences asked of nodes, its regions grown, and what `keep` says of each.

A region that is not kept leaves a near miss, which quotes the sentence that failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import onnx_ir as ir

from onnx_subgraph import operators
from onnx_subgraph.errors import UsageError
from onnx_subgraph.language.falsity import wish
from onnx_subgraph.language.pattern import Expression, Grow, Pattern
from onnx_subgraph.language.sentence import UnknownFact, evaluate
from onnx_subgraph.matching.facts import Facts
from onnx_subgraph.matching.match import PATTERN, Match, NearMiss
from onnx_subgraph.matching.region import Questions, Region, grow_from
from onnx_subgraph.matching.selector import Selector, selector_of
from onnx_subgraph.matching.view import View

LEAST = 2
"""A single node that is not kept is no news."""


def regions_of(view: View, pattern: Pattern) -> tuple[list[Match], list[NearMiss]]:
    """The regions of `pattern` in one graph, and those that were grown and not kept.

    Raises UsageError where a selector in Python can't be had, or fails.
    """
    grow = pattern.grow
    assert grow is not None
    selector = None if grow.selector is None else selector_of(grow)
    questions: Questions = _Sentences(view, grow) if selector is None else selector
    matches: list[Match] = []
    misses: list[NearMiss] = []
    try:
        for region in grow_from(view.graph, _Untouched(questions, pattern.id)):
            refusal = _refusal(view, pattern, selector, region)
            if refusal is None:
                matches.append(_match(view, pattern, region, selector))
            elif len(region.nodes) >= LEAST:
                misses.append(refusal)
    except Exception as error:
        if selector is None:
            raise
        name = type(selector).__name__
        raise UsageError(f"the selector {name} fails: {type(error).__name__}: {error}", hint="mend its code") from error
    return matches, misses


class _Untouched:
    """The questions of somebody else, asked of no node that stands for a region of this pattern already."""

    def __init__(self, questions: Questions, pattern: str) -> None:
        self._questions = questions
        self._pattern = pattern

    def _is_new(self, node: ir.Node) -> bool:
        return node.metadata_props.get(PATTERN) != self._pattern

    def select(self, node: ir.Node) -> bool:
        return self._is_new(node) and bool(self._questions.select(node))

    def select_input(self, node: ir.Node, producer: ir.Node) -> bool:
        return self._is_new(producer) and bool(self._questions.select_input(node, producer))

    def select_output(self, node: ir.Node, consumer: ir.Node) -> bool:
        return self._is_new(consumer) and bool(self._questions.select_output(node, consumer))


class _Sentences:
    """The questions of a selector, answered by the sentences of a pattern; what is not known is a no."""

    def __init__(self, view: View, grow: Grow) -> None:
        self._grow = grow
        self._view = view

    def select(self, node: ir.Node) -> bool:
        return self._answer(self._grow.select, {"node": node})

    def select_input(self, node: ir.Node, producer: ir.Node) -> bool:
        return self._answer(self._grow.input, {"node": node, "producer": producer})

    def select_output(self, node: ir.Node, consumer: ir.Node) -> bool:
        return self._answer(self._grow.output, {"node": node, "consumer": consumer})

    def _answer(self, sentence: Expression | None, nodes: Mapping[str, ir.Node]) -> bool:
        if sentence is None:
            return False
        try:
            return bool(evaluate(sentence, lambda name: self._facts(nodes[name])))
        except UnknownFact:
            return False

    def _facts(self, node: ir.Node) -> NodeFacts:
        facts: NodeFacts = self._view.shared(("node", node), lambda: NodeFacts(self._view, node))
        return facts


class NodeFacts:
    """The facts of one node, under the names that the language gives them."""

    def __init__(self, view: View, node: ir.Node) -> None:
        self._view = view
        self._node = node

    @cached_property
    def operator(self) -> str:
        """`Conv`, or with its domain, `com.microsoft.Gelu`."""
        return f"{self._node.domain}.{self._node.op_type}" if self._node.domain else self._node.op_type

    @property
    def domain(self) -> str:
        """The domain of the operator, "" for the standard."""
        return self._node.domain

    @cached_property
    def is_elementwise(self) -> bool:
        """Whether each element of its result comes from one element of each operand."""
        return operators.is_elementwise(self._node.op_type, self._node.domain)

    @cached_property
    def inputs(self) -> tuple[Facts | None, ...]:
        """The facts of each input, None for one that is left out."""
        return tuple(None if v is None else Facts(self._view, v) for v in self._node.inputs)

    @cached_property
    def outputs(self) -> tuple[Facts, ...]:
        """The facts of each output."""
        return tuple(Facts(self._view, v) for v in self._node.outputs)

    @cached_property
    def dtypes(self) -> tuple[str, ...] | None:
        """The element types of its inputs and outputs, each once; None where one is not known."""
        return _dtypes((*self.inputs, *self.outputs))

    @cached_property
    def attributes(self) -> Attributes:
        """Its attributes, by name."""
        return Attributes(self._view, self._node)


class Attributes:
    """The attributes of a node as numbers, text and lists; one that is left out is what its schema says, if it says so."""

    def __init__(self, view: View, node: ir.Node) -> None:
        self._view = view
        self._node = node

    def __getattr__(self, name: str) -> Any:
        attribute, value = self._node.attributes.get(name), None
        if attribute is None:
            schema = self._view.schema(self._node)
            value = schema.attributes[name].default if schema is not None and name in schema.attributes else None
        elif not attribute.is_ref() and attribute.type in _PLAIN:
            value = attribute.value
        if value is None:
            raise AttributeError(name)
        return tuple(value) if isinstance(value, list | tuple) else value


_PLAIN = frozenset(
    {
        *(ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING),
        *(ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS),
    }
)


class RegionFacts:
    """The facts of a finished region, under the names that the language gives them."""

    def __init__(self, view: View, region: Region) -> None:
        self._view = view
        self._region = region

    @property
    def size(self) -> int:
        """How many nodes it has."""
        return len(self._region.nodes)

    @cached_property
    def operators(self) -> tuple[str, ...]:
        """The operators in it, each once, in the order of their names."""
        return tuple(sorted({f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in self._region.nodes}))

    @cached_property
    def inputs(self) -> tuple[Facts, ...]:
        """What it reads and does not compute."""
        return tuple(Facts(self._view, v) for v in self._region.inputs)

    @cached_property
    def outputs(self) -> tuple[Facts, ...]:
        """What it computes and others read."""
        return tuple(Facts(self._view, v) for v in self._region.outputs)

    @cached_property
    def dtypes(self) -> tuple[str, ...] | None:
        """The element types of all that it reads and computes, each once; None where one is not known."""
        computed = (Facts(self._view, o) for n in self._region.nodes for o in n.outputs)
        return _dtypes((*self.inputs, *computed))


def _dtypes(values: tuple[Facts | None, ...]) -> tuple[str, ...] | None:
    found = {v.dtype for v in values if v is not None}
    return None if None in found else tuple(sorted(d for d in found if d is not None))


def _refusal(view: View, pattern: Pattern, selector: Selector | None, region: Region) -> NearMiss | None:
    """Why a region is not kept, or None."""
    grow, first = pattern.grow, region.nodes[0]
    assert grow is not None

    def miss(sentence: Expression | None, expected: str, found: str) -> NearMiss:
        place = first.name or first.outputs[0].name or ""
        span = None if sentence is None else sentence.span
        change = "" if sentence is None else wish(sentence.tree)
        return NearMiss(pattern.id, span, place, place, expected, found, len(region.nodes), change)

    facts = RegionFacts(view, region)
    for sentence in grow.keep:
        try:
            if not evaluate(sentence, lambda name: facts):
                return miss(sentence, f"`{sentence}`", _what_is(facts))
        except UnknownFact as unknown:
            return miss(sentence, f"`{sentence}`", str(unknown))
    if selector is not None and not selector.filter(region):
        return miss(None, f"a region that {type(selector).__name__} keeps", _what_is(facts))
    return None


def _what_is(facts: RegionFacts) -> str:
    """A region in words: what people ask of it."""
    dtypes = "unknown types" if facts.dtypes is None else ", ".join(facts.dtypes)
    return f"a region of {facts.size} nodes ({', '.join(facts.operators)}) of {dtypes}"


def _match(view: View, pattern: Pattern, region: Region, selector: Selector | None) -> Match:
    bindings = {f"x{i}": value for i, value in enumerate(region.inputs)}
    roots = {f"y{i}": value for i, value in enumerate(region.outputs)}
    return Match(pattern, view.owner, {**bindings, **roots}, {}, roots, region.nodes, {}, selector)
