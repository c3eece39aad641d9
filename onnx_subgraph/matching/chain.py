"""Sums and products of the graph, in every grouping: which values can be seen as the items of one chain.

A *front* of a value is one way to write it as constant ∘ items: the value itself, or with some of its items expanded, and
so on. A pattern's chain matches a value when one of its fronts can be assigned item by item. Fronts come smallest first and
are bounded by the number of items that the pattern asks for, so their number does not depend on the size of the graph. Where a
chain has more than `MOST_FRONTS` ways to be seen, the others are not tried, and whoever asks is told (`Plausibility.cut`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import onnx_ir as ir

from onnx_subgraph.matching.view import Expansion, Item, View, Virtual

Through = Callable[[ir.Value], tuple[ir.Value, tuple[ir.Node, ...]]]
MOST_FRONTS = 64
"""A bound on the fronts tried for one chain, far above what a chain of few items has."""


@dataclass(frozen=True)
class Front:
    """constant ∘ items, through `nodes`. items: (value, exponent or sign), equal ones merged, constants left out.

    scalars: the constants that are in `constant`, as items. tolerance: the relative error that `constant` may carry.
    """

    items: tuple[Item, ...]
    constant: float
    scalars: tuple[tuple[ir.Value, float], ...]
    nodes: tuple[ir.Node, ...]
    tolerance: float

    @cached_property
    def powers(self) -> tuple[float, ...]:
        """The exponents of the items, sorted; a product has the same ones or is another product."""
        return tuple(sorted(power for _, power in self.items))


class Fronts:
    """The fronts of the values of one view, seen through one kind of transparency; each is worked out once."""

    def __init__(self, view: View, through: Through) -> None:
        self.view = view
        self.through = through
        self._known: dict[tuple[ir.Value, int, int, bool], tuple[Front, ...]] = {}
        self._reach: dict[tuple[ir.Value, int, bool], int] = {}

    def product(self, value: ir.Value, limit: int, least: int = 0) -> tuple[Front, ...]:
        """The fronts of `value` as a product of `least` to `limit` items (counted with multiplicity), smallest first."""
        return self._fronts(value, limit, least, product=True)

    def sum(self, value: ir.Value, limit: int, least: int = 0) -> tuple[Front, ...]:
        """The fronts of `value` as a sum of `least` to `limit` items, smallest first."""
        return self._fronts(value, limit, least, product=False)

    def _fronts(self, value: ir.Value, limit: int, least: int, *, product: bool) -> tuple[Front, ...]:
        key = (value, limit, least, product)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = tuple(islice(_fronts(self, value, limit, least, product=product), MOST_FRONTS))
        return known

    def step(self, item: ir.Value | Virtual, *, product: bool) -> tuple[Expansion | None, tuple[ir.Node, ...]]:
        """One step of the chain that `item` is, and the transparent nodes before it."""
        if isinstance(item, Virtual):
            return None, ()
        source, passed = self.through(item)
        return (self.view.product(source) if product else self.view.sum(source)), passed

    def reach(self, item: ir.Value | Virtual, limit: int, *, product: bool) -> int:
        """How many items and constants `item` can be expanded to; `limit` where there are more."""
        if isinstance(item, Virtual):
            return 1
        key = (item, limit, product)
        known = self._reach.get(key)
        if known is None:
            known, pending = 0, [item]
            while pending and known + len(pending) < limit:
                step, _ = self.step(pending.pop(), product=product)
                known += 1 if step is None else len(step.scalars) + sum(isinstance(v, Virtual) for v, _ in step.items)
                pending += [] if step is None else [v for v, _ in step.items if isinstance(v, ir.Value)]
            known = self._reach[key] = min(known + len(pending), limit)
        return known


def _fronts(fronts: Fronts, value: ir.Value, limit: int, least: int, *, product: bool) -> Iterator[Front]:
    neutral = 1.0 if product else 0.0

    def can_reach(pending: tuple[Item, ...], found: int) -> bool:
        for item, _ in pending:
            if found >= least:
                break
            found += fronts.reach(item, least - found, product=product)
        return found >= least

    def grow(pending: tuple[Item, ...], done: tuple[Item, ...], front: Front) -> Iterator[Front]:
        if len(pending) + len(done) > limit or not can_reach(pending, len(done) + len(front.scalars)):
            return
        if not pending:
            items = _merge(fronts.view, done) if product else done
            yield Front(items, front.constant, front.scalars, front.nodes, front.tolerance)
            return
        (item, power), rest = pending[0], pending[1:]
        yield from grow(rest, (*done, (item, power)), front)
        step, passed = fronts.step(item, product=product)
        if step is None or not _may_expand(step, power, product=product):
            return
        if len(step.items) + len(rest) + len(done) > limit:  # as most are: not worth putting together
            return
        inner = tuple((v, power * e) for v, e in step.items)
        constant = front.constant * step.constant**power if product else front.constant + power * step.constant
        scalars = (*front.scalars, *((v, power * e) for v, e in step.scalars))
        nodes = (*front.nodes, *passed, *step.nodes)
        yield from grow((*inner, *rest), done, Front((), constant, scalars, nodes, front.tolerance + step.tolerance))

    yield from grow(((value, 1.0),), (), Front((), neutral, (), (), 0.0))


def _may_expand(step: Expansion, power: float, *, product: bool) -> bool:
    """(a * b) ** p is a ** p * b ** p for whole p; (a ** 2) ** 0.5 is not a."""
    if not product or float(power).is_integer():
        return True
    return len(step.items) == 1 and step.constant == 1.0 and step.items[0][1] in (-1.0, 0.5, -0.5)


def _merge(view: View, items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Equal values as one, with the sum of their exponents."""
    merged: list[Item] = []
    for value, power in items:
        for position, (other, so_far) in enumerate(merged):
            if isinstance(value, ir.Value) and isinstance(other, ir.Value) and view.same(value, other):
                merged[position] = (other, so_far + power)
                break
        else:
            merged.append((value, power))
    return tuple(merged)
