"""Static values, of attributes and constant inputs: read, compare, and print them."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnx_subgraph.language.axis import same_axes
from onnx_subgraph.matching.view import ROUNDED
from onnx_subgraph.model.attributes import plain_value
from onnx_subgraph.operators import is_axis

_PLAIN = (int, float, tuple)
"""The types of static values; others are text or belong to the graph. (Testing for the latter is slow.)"""


def read_attribute(attribute: ir.Attr) -> Any:
    """An attribute as a static value. Tensors, graphs and references are returned as attributes."""
    value = plain_value(attribute)
    return attribute if value is None else value


def same(name: str, a: Any, b: Any) -> bool | None:
    """Whether two values of a static argument are equal; None where they are axes of a value of unknown rank."""
    return _same_axes(a, b) if is_axis(name) else equal(name, a, b)


def _same_axes(a: Any, b: Any) -> bool | None:
    """As `same_axes`, also for single axes; whether both are absent if one is."""
    lists = [(v,) if isinstance(v, int) else v for v in (a, b)]
    if not all(isinstance(v, tuple) for v in lists):
        return a is b
    return same_axes(*lists)


def equal(name: str, a: Any, b: Any) -> bool:
    """Whether two values are equal, up to exporters' rounding of floats and the choice of letters in an Einsum's equation."""
    if isinstance(a, str | bytes) or isinstance(b, str | bytes):
        a, b = text(a), text(b)
        return bool(a == b or (name == "equation" and _lettered(a) == _lettered(b)))
    if a is None or b is None:
        return bool(a is b)
    if not isinstance(a, _PLAIN) or not isinstance(b, _PLAIN):
        return bool(a is b)
    first, second = (v if isinstance(v, tuple) else (v,) for v in (a, b))
    return len(first) == len(second) and all(map(_is_number, first, second))


def _is_number(wanted: Any, actual: Any) -> bool:
    """Whether an element equals the wanted number, up to exporters' rounding."""
    if wanted == actual or (not isinstance(wanted, float) and not isinstance(actual, float)):
        return bool(wanted == actual)
    return bool(abs(wanted - actual) <= ROUNDED * abs(actual))


def words(value: Any) -> str:
    """A static value in the notation of patterns: lists in brackets, an absent value as none."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(words, value))}]"
    return "none" if value is None else str(text(value))


def _lettered(equation: Any) -> Any:
    """An Einsum's equation with letters numbered by first appearance: `ij,jk->ik` and `ab,bc->ac` are the same."""
    if not isinstance(equation, str):
        return equation
    letters: dict[str, int] = {}
    return tuple(letters.setdefault(c, len(letters)) if c.isalpha() else c for c in equation if not c.isspace())


def text(value: Any) -> Any:
    """Bytes as text; any other value unchanged."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
