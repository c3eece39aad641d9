"""Search for the call that may have computed a value, by hill climbing: change one thing at a time to fit the graph better."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx_ir as ir

from onnx_subgraph.matching.body.align import Reading, read
from onnx_subgraph.matching.body.calls import Call
from onnx_subgraph.matching.body.defined import Defined
from onnx_subgraph.matching.body.function import Body, is_static
from onnx_subgraph.matching.numbering import plain_operator
from onnx_subgraph.matching.view import View

_MOST_STEPS = 12
"""Maximum number of changes from one start."""
_ENOUGH = 2
"""Minimum number of aligned nodes before other calls are tried, unless the body has fewer."""


class Guess(NamedTuple):
    """A call that was aligned with the graph, and the result.

    idle: the number of optional inputs that would depend only on shapes; they are probably omitted.
    """

    call: Call
    reading: Reading
    idle: int

    @property
    def rank(self) -> tuple[int, tuple[int, int]]:
        """Smaller is better."""
        return self.idle + (not self.reading.consistent), self.reading.fit.rank


def guesses(view: View, operator: Defined, value: ir.Value, present: Collection[str]) -> list[Guess]:
    """The calls of `operator` whose whole body seems to be present, with `value` as its first result; the likeliest first.

    present: the operators that the graph has.
    """
    node = value.producer()
    assert node is not None
    assert value.dtype is not None
    search = _Search(view, operator, value, present)
    for start in operator.starts(value.dtype, search.rank).get(plain_operator(node), ()):
        search.climb(start)
    fitting = (one for one in search.tried.values() if one.reading.fit.wrong == 0 and one.reading.consistent)
    return sorted(fitting, key=lambda one: one.rank)


@dataclass(slots=True)
class _Search:
    view: View
    operator: Defined
    value: ir.Value
    present: Collection[str]
    tried: dict[Body, Guess] = field(default_factory=dict)

    @property
    def rank(self) -> int | None:
        return None if self.value.shape is None else self.value.shape.rank()

    def climb(self, start: Call) -> None:
        best = self.attempt(start)
        known = self.operator.body(start)
        if best is None or known is None or best.reading.fit.equal < min(_ENOUGH, len(known)):
            return
        for _ in range(_MOST_STEPS):
            better = min(self.beside(best.call), key=lambda one: one.rank, default=best)
            if better.rank >= best.rank:
                return
            best = better

    def beside(self, call: Call) -> Iterator[Guess]:
        assert self.value.dtype is not None
        for other in self.operator.calls(self.value.dtype, self.rank).beside(call):
            guess = self.attempt(other)
            if guess is not None:
                yield guess

    def attempt(self, call: Call) -> Guess | None:
        """Align the body of a call; None where the body was tried before or cannot be in the graph."""
        body = self.operator.body(call)
        if body is None or body in self.tried or not body.operators <= frozenset(self.present):
            return None
        reading = read(self.view, body, call.placeholders, self.value)
        inputs = self.operator.schema.inputs
        idle = sum(inputs[i].optional and is_static(self.view, v) for i, v in reading.operands.items())
        self.tried[body] = guess = Guess(call, reading, idle)
        return guess
