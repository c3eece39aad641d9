"""Reasons: where a candidate failed, raw while matching goes on, in words when somebody reads it."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnx_subgraph.errors import Span
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.matching.normal import Choice, Constant, Layout, Name, Normal, Operation, Product, Sum
from onnx_subgraph.matching.view import Virtual

Target = ir.Value | Virtual


class Failure:
    """The furthest failure, in raw form; it is put into words only when somebody reads it."""

    __slots__ = ("depth", "expected", "found", "span", "value")

    def __init__(self, depth: float, span: Span | None, value: Target | None, expected: str, found: str) -> None:
        self.depth = depth
        self.span = span
        self.value = value
        self.expected = expected
        self.found = found

    def above(self, depth: float) -> Failure:
        """The same failure, with its depth counted from `depth`."""
        return Failure(self.depth - depth, self.span, self.value, self.expected, self.found)


def words(term: Normal) -> str:
    """What a term asks for, in a word or two."""
    match term:
        case Operation(operators=operators):
            return " or ".join(sorted(name for _, name in operators))
        case Name(name=name, definition=definition):
            return words(definition) if definition is not None else f"a value for {name}"
        case Constant(value=value):
            return f"the constant {value}"
        case Product():
            return "a product"
        case Sum():
            return "a sum"
        case Choice(alternatives=alternatives):
            return " or ".join(dict.fromkeys(map(words, alternatives)))
        case Layout(term=word):
            return f"a {word.word}"


def near_miss(pattern: Pattern, anchor: ir.Node, failure: Failure) -> NearMiss:
    """The failure of a candidate that started from `anchor`, in words."""
    value = failure.value
    return NearMiss(
        pattern=pattern.id,
        span=failure.span,
        anchor=anchor.name or "",
        node=_place(value, anchor),
        expected=failure.expected,
        found=failure.found or _describe(value),
        matched=int(failure.depth),
    )


def _place(value: ir.Value | Virtual | None, anchor: ir.Node) -> str:
    if isinstance(value, Virtual):
        return value.node.name or ""
    producer = value.producer() if value is not None else anchor
    if producer is None:
        return (value.name if value is not None else "") or ""
    return producer.name or producer.outputs[0].name or ""


def _describe(value: ir.Value | Virtual | None) -> str:
    """What stands where something else was expected."""
    if value is None:
        return "nothing"
    if isinstance(value, Virtual):
        return value.operator
    producer: Any = value.producer()
    if producer is not None:
        return str(producer.op_type)
    return "an initializer" if value.is_initializer() and not value.is_graph_input() else "a graph input"
