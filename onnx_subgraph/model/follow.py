"""Follow a value to the nodes behind it, as far as an analysis needs to know what the value can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import onnx_ir as ir

T = TypeVar("T")
MOST_STEPS = 24
"""Nodes that are followed from a value; most masks and indices need six, those of images in detection networks need 18."""


class Follow(Generic[T]):
    """What a rule knows about a value; None where it knows nothing.

    rule: called with a value and this object, which it may ask about operands. It is called once for each value, and only for
    values less than `MOST_STEPS` nodes behind the first one.
    """

    def __init__(self, rule: Callable[[ir.Value, Follow[T]], T | None]) -> None:
        self._rule = rule
        self._known: dict[ir.Value, T | None] = {}
        self._steps = MOST_STEPS

    def __call__(self, value: ir.Value | None) -> T | None:
        if value is None or not self._steps:
            return None
        if value not in self._known:
            self._steps -= 1
            self._known[value] = self._rule(value, self)
            self._steps += 1
        return self._known[value]
