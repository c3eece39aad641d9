"""Guess the arguments of an operator's call from a graph, by aligning its function body with the nodes behind a value.

The result is a guess: values that depend only on shapes are not compared, and a node of the body that may change nothing may be
missing in the graph. A body fits better if more nodes are aligned and fewer are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, permutations
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_subgraph.matching.body.function import NEUTRAL, SLIGHT, Body, is_static, stored
from onnx_subgraph.matching.body.numbers import Number, from_attributes, from_statics, holds_placeholder
from onnx_subgraph.matching.numbering import EXCHANGEABLE, formal, plain_operator
from onnx_subgraph.matching.view import View
from onnx_subgraph.model.attributes import plain_value

_WEIGHT = 3
"""How many aligned nodes outweigh one mismatch."""

_ROUNDING = 1e-2
"""Relative tolerance for constants. The body has them in another type, and the guess is verified later."""

Pairs = tuple[tuple[ir.Value, ir.Value], ...]
"""Aligned pairs: a value of the body, a value of the graph."""


class Fit(NamedTuple):
    """How well a body fits.

    wrong: the number of mismatches. equal: the aligned nodes. skipped: nodes of the body that are missing in the graph. slight:
    aligned nodes that prove little (`SLIGHT`). inner: the pairs to align next.
    """

    wrong: int = 0
    equal: int = 0
    skipped: int = 0
    slight: int = 0
    inner: Pairs = ()

    @property
    def rank(self) -> tuple[int, int]:
        """Smaller is better."""
        return _WEIGHT * self.wrong + self.skipped - self.equal, self.wrong - self.slight


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of an alignment: the fit and, if nothing is wrong, the value of each input and the number for each placeholder.

    consistent: whether each input and placeholder has the same value everywhere.
    """

    fit: Fit
    operands: Mapping[int, ir.Value] = field(default_factory=dict)
    numbers: Mapping[str, Number] = field(default_factory=dict)
    consistent: bool = True


_WRONG = Fit(wrong=1)
_RIGHT = Fit()


def read(view: View, body: Body, placeholders: Mapping[float, str], value: ir.Value) -> Reading:
    """The arguments of the call if `value` is the first result of `body`. placeholders: number in the body → attribute name."""
    return _Alignment(view, body, placeholders).read(value)


class _Alignment:
    """The alignment of one body with one graph; each pair of values is compared once."""

    def __init__(self, view: View, body: Body, placeholders: Mapping[float, str]) -> None:
        self._view = view
        self._body = body
        self._placeholders = placeholders
        self._fits: dict[tuple[ir.Value, ir.Value], Fit] = {}

    def read(self, value: ir.Value) -> Reading:
        fit = self._fit(self._body.outputs[0], value)
        if fit.wrong:
            return Reading(fit)
        operands: dict[int, ir.Value] = {}
        numbers: dict[str, Number] = {}
        consistent = True
        for ours, theirs in self._pairs(value):
            place = self._body.place(ours)
            if place is not None:
                consistent &= self._view.same(operands.setdefault(place, self._view.through(theirs)[0]), theirs)
            for name, number in self._numbers(ours, theirs) if place is None else ():
                consistent &= numbers.setdefault(name, number) == number
        return Reading(fit, operands, numbers, consistent)

    def _pairs(self, value: ir.Value) -> Iterator[tuple[ir.Value, ir.Value]]:
        """All pairs of the best alignment, without repetition."""
        queue, seen = [(self._body.outputs[0], value)], set[tuple[ir.Value, ir.Value]]()
        while queue:
            pair = queue.pop()
            if pair not in seen:
                seen.add(pair)
                queue += self._fit(*pair).inner
                yield pair

    def _numbers(self, ours: ir.Value, theirs: ir.Value) -> Iterator[tuple[str, Number]]:
        if ours in self._body.statics:
            return from_statics(self._view, ours, theirs, self._placeholders)
        node, other = ours.producer(), theirs.producer()
        if node is None or other is None or plain_operator(node) != plain_operator(other):
            return iter(())
        return from_attributes(node, other, self._placeholders)

    def _fit(self, ours: ir.Value, theirs: ir.Value) -> Fit:
        known = self._fits.get((ours, theirs))
        if known is None:
            known = self._fits[ours, theirs] = self._best(ours, theirs)
        return known

    def _best(self, ours: ir.Value, theirs: ir.Value) -> Fit:
        if self._body.place(ours) is not None:
            return _RIGHT
        if ours in self._body.statics:
            return _RIGHT if self._may_be(ours, theirs) else _WRONG
        node, other = ours.producer(), self._view.producer(theirs)
        assert node is not None
        ways: list[Iterator[Fit]] = []
        if (
            other is not None
            and plain_operator(node) == plain_operator(other)
            and not other.domain
            and ours.index() == theirs.index()
        ):
            ways.append(self._of_nodes(node, other))
        if node.op_type in NEUTRAL and node.inputs[0] is not None:
            ways.append(self._past(node.inputs[0], theirs, skipped=node.op_type not in SLIGHT))
        if (source := self._view.through(theirs)[0]) is not theirs:
            ways.append(self._past(ours, source))
        return min(chain(*ways), key=lambda fit: fit.rank, default=_WRONG)

    def _past(self, ours: ir.Value, theirs: ir.Value, *, skipped: bool = False) -> Iterator[Fit]:
        fit = self._fit(ours, theirs)
        yield Fit(fit.wrong, fit.equal, fit.skipped + skipped, fit.slight, ((ours, theirs),))

    def _of_nodes(self, node: ir.Node, other: ir.Node) -> Iterator[Fit]:
        """A node of the body aligned with one of the graph, in each order of exchangeable operands."""
        counted = node.op_type not in SLIGHT
        differ = sum(self._differ(name, attribute, other) for name, attribute in node.attributes.items())
        read, given = (n.inputs[:1] if n.op_type == "CastLike" else n.inputs for n in (node, other))
        exchangeable = len(read) == len(given) == 2 and plain_operator(node) in EXCHANGEABLE
        for order in permutations(given) if exchangeable else (given,):
            pairs = [(a, order[i] if i < len(order) else None) for i, a in enumerate(read)]
            missing = sum((a is None) != (b is None) for a, b in pairs) + max(0, len(order) - len(read))
            missing -= self._given_as_attributes(node, other)
            inner = tuple((a, b) for a, b in pairs if a is not None and b is not None)
            fits = [self._fit(a, b) for a, b in inner]
            yield Fit(
                differ + missing + sum(f.wrong for f in fits),
                counted + sum(f.equal for f in fits),
                sum(f.skipped for f in fits),
                (not counted) + sum(f.slight for f in fits),
                inner,
            )

    def _given_as_attributes(self, node: ir.Node, other: ir.Node) -> int:
        """How many arguments are an input of one node and an attribute of the other, as axes in different opsets."""
        schema = self._view.schema(other)
        if schema is None:
            return 0
        names = [formal(schema, i) for i in range(max(len(node.inputs), len(other.inputs)))]
        return sum(bool(name) and (name in node.attributes) != (name in other.attributes) for name in names)

    def _may_be(self, ours: ir.Value, theirs: ir.Value) -> bool:
        """Whether a value of the graph may be one of the body that depends only on constants and shapes."""
        if not is_static(self._view, theirs):
            return False
        mine, other = stored(ours), self._view.constants.array(theirs)
        if mine is None or other is None or holds_placeholder(mine, self._placeholders):
            return True
        return mine.size == other.size and np.allclose(mine.ravel(), other.ravel(), rtol=_ROUNDING, equal_nan=True)

    def _differ(self, name: str, attribute: ir.Attr, other: ir.Node) -> bool:
        theirs = other.attributes.get(name)
        if theirs is None or theirs.type != attribute.type or (value := plain_value(theirs)) is None:
            return False
        return plain_value(attribute) != value and not holds_placeholder(np.array(attribute.value), self._placeholders)
