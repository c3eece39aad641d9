"""Sums and products of the graph in every grouping: the ways to write a value as the items of one chain.

A *factoring* of a value writes it as constant ∘ items: the value itself, or with some items expanded, and so on. A pattern's
chain matches a value if one of its factorings can be assigned item by item. The number of items is bounded by the pattern, so the
number of factorings does not depend on the size of the graph; small ones come first. After `MOST_FACTORINGS` the others are not
tried, and this is recorded (`Prefilter.cut_for`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice

import onnx_ir as ir

from onnx_subgraph.matching.equalities import Identity
from onnx_subgraph.matching.expansion import Factoring, Item, expansions
from onnx_subgraph.matching.lookthrough import LookThrough
from onnx_subgraph.matching.view import View, Virtual

Heads = frozenset[Identity]
MOST_FACTORINGS = 64
"""Maximum number of factorings tried for one chain, far above the number for a chain of few items."""


_Way = tuple[tuple[Item, ...], tuple[Item, ...], float, tuple[tuple[ir.Value, float], ...], tuple[ir.Node, ...], float]
"""A partial factoring: the items that may still be expanded, the final ones, and the other fields of a `Factoring`."""


class Factorings:
    """The factorings of the values of one view as sums or as products, for patterns with the same look-through; cached."""

    def __init__(self, look: LookThrough, *, is_product: bool) -> None:
        self.view = look.view
        self.look = look
        self.expansions = expansions(look.view, is_product=is_product)
        self._heads: dict[ir.Value, Heads | None] = {}
        self._known = cache(self._factorings)
        self._reach_of = cache(self._reach)

    def __call__(self, value: ir.Value, limit: int, least: int = 0) -> tuple[Factoring, ...]:
        """The factorings of `value` with `least` to `limit` items (with multiplicity), smallest first."""
        return self._known(value, limit, least)

    def _factorings(self, value: ir.Value, limit: int, least: int) -> tuple[Factoring, ...]:
        source, passed, _ = self.look.through(value)
        alone = self.expansions.alone(source)
        if alone is not None and len(alone.items) <= limit:
            return (alone._replace(nodes=(*passed, *alone.nodes)), *self._ways(value, limit, least))
        return tuple(islice(self._ways(value, limit, least), MOST_FACTORINGS))

    def _ways(self, value: ir.Value, limit: int, least: int) -> Iterator[Factoring]:
        """Depth-first: for each item, first the factorings that keep it, then those that expand it."""
        made = self.expansions
        whole: _Way = (((value, 1.0),), (), made.neutral, (), (), 0.0)
        ways = [whole] if limit else []
        while ways:
            pending, done, constant, scalars, nodes, tolerance = ways.pop()
            missing = least - len(done) - len(scalars)
            if missing > len(pending) and not self._can_reach(pending, missing):
                continue
            if not pending:
                items = _merge(self.view, done) if made.is_product else done
                yield Factoring(items, constant, scalars, nodes, tolerance)
                continue
            (item, power), rest = pending[0], pending[1:]
            step, passed = self._step(item)
            # Most expansions have too many items; skip them early.
            if step is not None and len(step.items) + len(rest) + len(done) <= limit and made.may_expand(step, power):
                inner = tuple([(v, power * e) for v, e in step.items])
                other = made.combined(constant, step.constant, power)
                more = (*scalars, *[(v, power * e) for v, e in step.scalars]) if step.scalars else scalars
                if other is not None:
                    ways.append(((*inner, *rest), done, other, more, (*nodes, *passed, *step.nodes), tolerance + step.tolerance))
            ways.append((rest, (*done, (item, power)), constant, scalars, nodes, tolerance))

    def _step(self, item: ir.Value | Virtual) -> tuple[Factoring | None, tuple[ir.Node, ...]]:
        """One expansion step of `item`, and the transparent nodes before it."""
        if isinstance(item, Virtual):
            return None, ()
        source, passed, _ = self.look.through(item)
        return self.expansions.of(source), passed

    def heads(self, value: ir.Value) -> Heads | None:
        """The operators that can compute an item of `value`; None where any operator can."""
        known = self._heads
        if value in known:
            return known[value]
        pending = [value]
        while pending:  # Items first. Not recursive: chains can be longer than Python's recursion limit.
            current = pending[-1]
            source, _, node = self.look.through(current)
            step = self.expansions.of(source) or self.expansions.alone(source)
            items = [] if step is None else [item for item, _ in (*step.items, *step.scalars)]
            unknown = [v for v in items if not isinstance(v, Virtual) and v not in known]
            if unknown:
                pending += unknown
                continue
            pending.pop()
            each = [None if isinstance(v, Virtual) else known[v] for v in items]
            own = frozenset() if node is None else _alone(self.view.identity[node])
            known[current] = None if None in each else own.union(*each) if each else own  # type: ignore[arg-type]
        return known[value]

    def _can_reach(self, pending: tuple[Item, ...], missing: int) -> bool:
        """Whether the pending items can be expanded to as many items and constants as are missing."""
        for item, _ in pending:
            missing -= 1 if isinstance(item, Virtual) else self._reach_of(item, missing)
            if missing <= 0:
                return True
        return False

    def _reach(self, item: ir.Value, limit: int) -> int:
        """How many items and constants `item` can be expanded to, at most `limit`."""
        found, pending = 0, [item]
        while pending and found + len(pending) < limit:
            step, _ = self._step(pending.pop())
            found += 1 if step is None else len(step.scalars) + sum(isinstance(v, Virtual) for v, _ in step.items)
            pending += [] if step is None else [v for v, _ in step.items if not isinstance(v, Virtual)]
        return min(found + len(pending), limit)


@cache
def _alone(identity: Identity) -> Heads:
    return frozenset((identity,))


def _merge(view: View, items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Merge equal values, adding their exponents."""
    merged: list[Item] = []
    for value, power in items:
        for position, (other, so_far) in enumerate(merged):
            if not isinstance(value, Virtual) and not isinstance(other, Virtual) and view.same(value, other):
                merged[position] = (other, so_far + power)
                break
        else:
            merged.append((value, power))
    return tuple(merged)
