"""Grow the regions of a pattern: ask its sentences or its selector, then apply `keep` or the selector's filter."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_subgraph.errors import UsageError, as_raised
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.pattern import Grow, Pattern
from onnx_subgraph.language.sentence import UnknownFact, evaluate, free_names
from onnx_subgraph.regions.ground import Ground, RegionFacts
from onnx_subgraph.regions.region import Questions, Region, grow_from
from onnx_subgraph.regions.selector import Selector, selector_of


@dataclass(frozen=True, slots=True, eq=False)
class Grown:
    """A region of a pattern. selector: the Python selector that chose it, None for sentences.

    refusal: why it is not kept, or None.
    """

    region: Region
    selector: Selector | None
    refusal: Refusal | None


class Refusal(NamedTuple):
    """Why a region is not kept. sentence: the `keep` sentence that is false, None for a selector.

    found: a description of the region.
    """

    sentence: Expression | None
    expected: str
    found: str


def regions_of(ground: Ground, pattern: Pattern) -> list[Grown]:
    """The regions of `pattern` in one graph, kept or not. Raises UsageError where a Python selector is missing or fails."""
    grow = pattern.grow
    assert grow is not None
    selector = None if grow.selector is None else selector_of(grow)
    questions: Questions = _Sentences(ground, grow) if selector is None else selector
    try:
        taken = frozenset(node for node, name in ground.standing.items() if name == pattern.id)
        regions = grow_from(ground.graph, _Untouched(questions, taken) if taken else questions, ground.wiring)
        return [_kept(ground, grow, selector, region) for region in regions]
    except Exception as error:
        if selector is None:
            raise
        name = type(selector).__name__
        raise UsageError(f"the selector {name} fails: {as_raised(error)}", hint="fix its code") from error


class _Untouched:
    """The questions of a pattern, except that nodes that already replace a region of this pattern (`taken`) are never chosen."""

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
    """The answers of a sentence about nodes of these names. An unknown fact counts as no.

    A sentence that depends only on the kind of a node is evaluated once per kind.
    """
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
    position, answers, kind = names.index(subject), dict[int, bool](), ground.kind

    def ask_once(*nodes: ir.Node) -> bool:
        key = kind(nodes[position])
        answer = answers.get(key)
        if answer is None:
            answer = answers[key] = ask(*nodes)
        return answer

    return ask_once


_OF_KIND = frozenset({"operator", "domain", "is_elementwise", "dtypes", "inputs", "outputs", "dtype"})
"""The facts that depend only on a node's operator and on the element types of its inputs and outputs."""


@cache
def _subject(sentence: Expression) -> str | None:
    """The only node that a sentence is about, if the sentence depends on the node's kind alone; None otherwise.

    Such a sentence has one answer for all nodes of a kind, and there are few kinds.
    """
    names = free_names(sentence)
    asked = {part.attr for part in ast.walk(sentence.tree) if isinstance(part, ast.Attribute)}
    return names[0] if len(names) == 1 and asked <= _OF_KIND else None


def _kept(ground: Ground, grow: Grow, selector: Selector | None, region: Region) -> Grown:
    """The part of a region that is kept, or the region with the reason why it is refused."""
    part = region if selector is None else _part(ground, selector, region)
    if isinstance(part, Refusal):
        return Grown(region, selector, part)
    return Grown(part, selector, _refusal(ground, grow, part))


def _part(ground: Ground, selector: Selector, region: Region) -> Region | Refusal:
    """The part of a region that the selector's filter keeps, or the reason why it is refused."""
    name, given = type(selector).__name__, selector.filter(region)
    answer: object = given  # A user's filter may return None or a number.
    refused = Refusal(None, f"a region that {name} keeps", _what_is(RegionFacts(ground, region)))
    if answer is None or isinstance(given, int | np.bool_):
        return region if answer else refused
    nodes = frozenset(given.nodes if isinstance(given, Region) else given)
    if not nodes:
        return refused
    wanted = f"a connected, convex part of the region from the filter of {name}"
    if strangers := [node for node in nodes if node not in region.nodes]:
        return Refusal(None, wanted, f"{_label(strangers[0])}, which is not in the region")
    members = [number for number, node in enumerate(ground.wiring.nodes) if node in nodes]
    parts = ground.wiring.parts(members, lambda first, second: True)
    if len(parts) == 1:
        return Region.of(region.graph, parts[0])
    found = " and ".join(f"{_label(part[0])} with {len(part) - 1} more" if len(part) > 1 else _label(part[0]) for part in parts)
    return Refusal(None, wanted, f"{len(parts)} parts that can't be one: {found}")


def _refusal(ground: Ground, grow: Grow, region: Region) -> Refusal | None:
    """The reason from the first `keep` sentence that is not true; None where all are true."""
    facts = RegionFacts(ground, region)
    for sentence in grow.keep:
        try:
            if not evaluate(sentence, lambda name: facts):
                return Refusal(sentence, f"`{sentence}`", _what_is(facts))
        except UnknownFact as unknown:
            return Refusal(sentence, f"`{sentence}`", str(unknown))
    return None


def _what_is(facts: RegionFacts) -> str:
    """A short description of a region: its size, operators and types."""
    dtypes = "unknown types" if facts.dtypes is None else ", ".join(facts.dtypes)
    return f"a region of {facts.size} nodes ({', '.join(facts.operators)}) of {dtypes}"


def _label(node: ir.Node) -> str:
    """The name of a node, else of its first named output, else its operator."""
    return node.name or next((o.name for o in node.outputs if o.name), node.op_type)
