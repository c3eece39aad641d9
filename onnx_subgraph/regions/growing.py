"""The regions of a pattern: its sentences asked of nodes, its regions grown, and what `keep` says of each."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import onnx_ir as ir

from onnx_subgraph import operators
from onnx_subgraph.errors import UsageError
from onnx_subgraph.facts import Facts
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.pattern import Grow, Pattern
from onnx_subgraph.language.sentence import UnknownFact, evaluate, free_names
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.operators import Schema
from onnx_subgraph.operators.names import operator_of
from onnx_subgraph.regions.region import Questions, Region, Wiring, grow_from
from onnx_subgraph.regions.selector import Selector, selector_of

PATTERN = "onnx_subgraph.pattern"
"""The metadata of a fused node that names its pattern."""


class Ground:
    """The graph that regions grow in, and what is asked of it; several patterns share one, as long as it is not changed.

    schema: of a node, None for an unknown operator.
    """

    def __init__(self, graph: ir.Graph, constants: Constants, schema: Callable[[ir.Node], Schema | None]) -> None:
        self.graph = graph
        self.constants = constants
        self.schema = schema
        self.facts = cache(lambda node: NodeFacts(self, node))
        """What sentences may ask of a node."""
        self.kind = cache(_kind)

    @cached_property
    def wiring(self) -> Wiring:
        """Its nodes and what they read."""
        return Wiring.of(self.graph)

    @cached_property
    def standing(self) -> Mapping[ir.Node, str]:
        """The nodes that stand for a region already, and of which pattern."""
        return {node: name for node in self.graph if (name := node.metadata_props.get(PATTERN)) is not None}


def _kind(node: ir.Node) -> Hashable:
    """What the facts `_OF_KIND` of a node follow from."""
    types = tuple([None if v is None else v.dtype for v in node.inputs]), tuple([v.dtype for v in node.outputs])
    return node.domain, node.op_type, types


@dataclass(frozen=True, slots=True, eq=False)
class Grown:
    """A region of a pattern. selector: who chose it in Python, None for the sentences of a file. refusal: why it is not kept."""

    region: Region
    selector: Selector | None
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a region is not kept. sentence: the one that is false, None where a selector said no. found: the region in words."""

    sentence: Expression | None
    expected: str
    found: str


def regions_of(ground: Ground, pattern: Pattern) -> list[Grown]:
    """The regions of `pattern` in one graph, kept or not. Raises UsageError where a selector in Python can't be had, or fails."""
    grow = pattern.grow
    assert grow is not None
    selector = None if grow.selector is None else selector_of(grow)
    questions: Questions = _Sentences(ground, grow) if selector is None else selector
    try:
        taken = frozenset(node for node, name in ground.standing.items() if name == pattern.id)
        regions = grow_from(ground.graph, _Untouched(questions, taken) if taken else questions, ground.wiring)
        return [Grown(region, selector, _refusal(ground, grow, selector, region)) for region in regions]
    except Exception as error:
        if selector is None:
            raise
        name = type(selector).__name__
        raise UsageError(f"the selector {name} fails: {type(error).__name__}: {error}", hint="mend its code") from error


class _Untouched:
    """The questions of somebody else, asked of no node that is taken: it stands for a region of the pattern already."""

    def __init__(self, questions: Questions, taken: Collection[ir.Node]) -> None:
        self._questions = questions
        self._taken = taken

    def select(self, node: ir.Node) -> bool:
        return node not in self._taken and bool(self._questions.select(node))

    def select_input(self, node: ir.Node, producer: ir.Node) -> bool:
        return producer not in self._taken and bool(self._questions.select_input(node, producer))

    def select_output(self, node: ir.Node, consumer: ir.Node) -> bool:
        return consumer not in self._taken and bool(self._questions.select_output(node, consumer))


class _Sentences:
    """The questions of a selector, answered by the sentences of a pattern."""

    def __init__(self, ground: Ground, grow: Grow) -> None:
        self.select = _question(ground, grow.select, "node")
        self.select_input = _question(ground, grow.input, "node", "producer")
        self.select_output = _question(ground, grow.output, "node", "consumer")


def _question(ground: Ground, sentence: Expression | None, *names: str) -> Callable[..., bool]:
    """A sentence asked of nodes of these names; what is not known is a no. One about the kind of a node is asked once a kind."""
    if sentence is None:
        return lambda *nodes: False

    def ask(*nodes: ir.Node) -> bool:
        named = dict(zip(names, nodes, strict=True))
        try:
            return bool(evaluate(sentence, lambda name: ground.facts(named[name])))
        except UnknownFact:
            return False

    subject = _subject(sentence)
    if subject is None:
        return ask
    position, answers, kind = names.index(subject), dict[Hashable, bool](), ground.kind

    def ask_once(*nodes: ir.Node) -> bool:
        key = kind(nodes[position])
        if key not in answers:
            answers[key] = ask(*nodes)
        return answers[key]

    return ask_once


_OF_KIND = frozenset({"operator", "domain", "is_elementwise", "dtypes", "inputs", "outputs", "dtype"})
"""The facts that follow from the operator of a node and the element types around it."""


@cache
def _subject(sentence: Expression) -> str | None:
    """The one node that a sentence asks facts of its kind of, and nothing else; None for other sentences.

    Such a sentence has one answer for all nodes of a kind, which are few.
    """
    names = free_names(sentence)
    asked = {part.attr for part in ast.walk(sentence.tree) if isinstance(part, ast.Attribute)}
    return names[0] if len(names) == 1 and asked <= _OF_KIND else None


class NodeFacts:
    """The facts of one node, under the names that the language gives them."""

    def __init__(self, ground: Ground, node: ir.Node) -> None:
        self._ground = ground
        self._node = node

    @cached_property
    def operator(self) -> str:
        """`Conv`, or with its domain, `com.microsoft.Gelu`."""
        return operator_of(self._node)

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
        return tuple(None if v is None else Facts(self._ground.constants, v) for v in self._node.inputs)

    @cached_property
    def outputs(self) -> tuple[Facts, ...]:
        """The facts of each output."""
        return tuple(Facts(self._ground.constants, v) for v in self._node.outputs)

    @cached_property
    def dtypes(self) -> tuple[str, ...] | None:
        """The element types of its inputs and outputs, each once; None where one is not known."""
        return _dtypes((*self.inputs, *self.outputs))

    @cached_property
    def attributes(self) -> Attributes:
        """Its attributes, by name."""
        return Attributes(self._ground, self._node)


class Attributes:
    """The attributes of a node as numbers, text and lists; one that is left out is what its schema says, if it says so."""

    def __init__(self, ground: Ground, node: ir.Node) -> None:
        self._ground = ground
        self._node = node

    def __getattr__(self, name: str) -> Any:
        attribute, value = self._node.attributes.get(name), None
        if attribute is None:
            schema = self._ground.schema(self._node)
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

    def __init__(self, ground: Ground, region: Region) -> None:
        self._ground = ground
        self._region = region

    @property
    def size(self) -> int:
        """How many nodes it has."""
        return len(self._region.nodes)

    @cached_property
    def operators(self) -> tuple[str, ...]:
        """The operators in it, each once, in the order of their names."""
        return tuple(sorted({operator_of(n) for n in self._region.nodes}))

    @cached_property
    def inputs(self) -> tuple[Facts, ...]:
        """What it reads and does not compute."""
        return tuple(Facts(self._ground.constants, v) for v in self._region.inputs)

    @cached_property
    def outputs(self) -> tuple[Facts, ...]:
        """What it computes and others read."""
        return tuple(Facts(self._ground.constants, v) for v in self._region.outputs)

    @cached_property
    def dtypes(self) -> tuple[str, ...] | None:
        """The element types of all that it reads and computes, each once; None where one is not known."""
        computed = (Facts(self._ground.constants, o) for n in self._region.nodes for o in n.outputs)
        return _dtypes((*self.inputs, *computed))


def _dtypes(values: tuple[Facts | None, ...]) -> tuple[str, ...] | None:
    found = {v.dtype for v in values if v is not None}
    return None if None in found else tuple(sorted(d for d in found if d is not None))


def _refusal(ground: Ground, grow: Grow, selector: Selector | None, region: Region) -> Refusal | None:
    """Why a region is not kept, or None."""
    facts = RegionFacts(ground, region)
    for sentence in grow.keep:
        try:
            if not evaluate(sentence, lambda name: facts):
                return Refusal(sentence, f"`{sentence}`", _what_is(facts))
        except UnknownFact as unknown:
            return Refusal(sentence, f"`{sentence}`", str(unknown))
    if selector is not None and not selector.filter(region):
        return Refusal(None, f"a region that {type(selector).__name__} keeps", _what_is(facts))
    return None


def _what_is(facts: RegionFacts) -> str:
    """A region in words: what people ask of it."""
    dtypes = "unknown types" if facts.dtypes is None else ", ".join(facts.dtypes)
    return f"a region of {facts.size} nodes ({', '.join(facts.operators)}) of {dtypes}"
