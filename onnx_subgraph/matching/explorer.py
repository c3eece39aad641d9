"""A matcher that finds the reason of a failure. It skips the prefilter and continues after small mismatches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx_ir as ir

from onnx_subgraph.matching.assignment import assigned
from onnx_subgraph.matching.expansion import Factoring
from onnx_subgraph.matching.failure import LONGER, Failure, Furthest, Kind
from onnx_subgraph.matching.matcher import Matcher, Structured, Target
from onnx_subgraph.matching.normal import BROADCASTING, Chain, Choice, Normal, NormalPattern, mentions
from onnx_subgraph.matching.reasons import applied, constant_of_rank, describe, spelled, words
from onnx_subgraph.matching.remembered import remembered
from onnx_subgraph.matching.state import State
from onnx_subgraph.matching.structure import Items
from onnx_subgraph.matching.view import View, Virtual


class Explorer(Matcher):
    """Matches like `Matcher`, and records the furthest failure."""

    def __init__(self, view: View, normal: NormalPattern) -> None:
        self.furthest = Furthest()
        super().__init__(view, normal, self.furthest)
        self._hopeless: dict[tuple[int, ir.Value], Failure | None] = {}
        self._names = remembered(mentions)

    def may(self, term: Normal, value: Target) -> bool:
        """True: tries everything."""
        return True

    def open(self, term: Choice, value: Target) -> Sequence[int]:
        """All alternatives."""
        return range(len(term.alternatives))

    def tried(self, term: Structured, value: Target, state: State) -> Iterator[State]:
        """`structured`, without the prefilter.

        Bindings only add constraints. So if a term fails while all its names are free, it always fails, and is not tried again.
        """
        if isinstance(value, Virtual):
            yield from self.structured(term, value, state)
            return
        key = (id(term), value)
        if key in self._hopeless:
            known = self._hopeless[key]
            if known is not None:
                self.furthest.again(known, state)
            return
        before = self.furthest.take()
        hopeless = True
        for found in self.structured(term, value, state):
            hopeless = False
            yield found
        failure = self.furthest.take()
        self.furthest.put_back(before)
        if hopeless and self._names(term).isdisjoint(state.bindings):
            self._hopeless[key] = failure and failure.since(state)
        if failure is not None:
            self.furthest.again(failure)

    def seen_as(self, term: Chain, value: ir.Value, constant: float, state: State) -> Iterable[Factoring]:
        """All factorings with the right number of items, whatever the items are."""
        wanted = self.structure(term)
        assert isinstance(wanted, Items)
        factorings = self.prefilter.variants(wanted.form)(value)
        self._other_items(term, value, constant, state, known=bool(factorings))
        return factorings

    def with_another_constant(self, term: Chain, value: ir.Value, factoring: Factoring, constant: float, state: State) -> None:
        """Report a wrong constant, but only if everything else matches."""
        if term.scalar is not None:
            return
        said = (f"the constant {constant:.6g}", f"{factoring.constant:.6g}", "")
        for reached in assigned(self, term, factoring.items, state.visit(factoring.nodes, term.span)):
            numbers, stored = (constant, factoring.constant), self._stored(factoring, constant, is_product=term.is_product)
            self.recorder.fail(Kind.NUMBER, reached, term.span, value, said=said, numbers=numbers, stored=stored)
            break

    def _stored(self, factoring: Factoring, constant: float, *, is_product: bool) -> tuple[str, str] | None:
        """What the only number of a chain should be for another constant, and what it is: a divisor is not its factor."""
        if len(factoring.scalars) != 1 or (number := self.view.scalar(factoring.scalars[0][0])) is None:
            return None
        power, ratio = factoring.scalars[0][1], constant / factoring.constant if is_product else 1.0
        if ratio <= 0:
            return None
        wanted = number.number * ratio ** (1 / power) if is_product else number.number + (constant - factoring.constant) / power
        return f"the constant {wanted:.6g}", f"{number.number:.6g}"

    def _other_items(self, term: Chain, value: ir.Value, constant: float, state: State, *, known: bool) -> None:
        """Report that the chain of `value` has other items than `term`.

        It has an item in place of a constant, another exponent, or more or fewer items.

        known: whether a factoring with the right number of items exists.
        """
        items, is_product = term.items, term.is_product
        limit = len(items) + 2
        factorings = self.prefilter.factorings[is_product](value, limit)
        for factoring in factorings:
            for item, rest in _without_one(factoring):
                for reached in assigned(self, term, rest, state.visit(factoring.nodes, term.span)):
                    self._no_constant(reached, term, item, constant)
                    break
        if known:
            return
        if is_product and len(items) == 1:
            for factoring in factorings:
                if len(factoring.items) == 1 and factoring.nodes and factoring.items[0][1] != items[0][1]:
                    said = (f"the exponent {items[0][1]:.6g}", f"{factoring.items[0][1]:.6g}", "")
                    self.recorder.fail(Kind.ITEM, state, term.span, value, said=said)
                    return
        largest = max(factorings, key=lambda factoring: len(factoring.nodes), default=None)
        if largest is None or not largest.nodes:
            self.recorder.fail(Kind.TERM, state, term.span, value, term, (words(term), applied(self.view, value), ""))
            return
        wanted = words(term)
        if is_product and len(largest.items) == len(items):
            wanted += f" with the exponents {', '.join(f'{power:g}' for _, power in items)}"
        # If several chains fail at once, the pattern is probably about the longest.
        place = state.further(LONGER * len(largest.nodes))
        self.recorder.fail(Kind.ITEM, place, term.span, value, term, (wanted, spelled(largest, product=is_product), ""))

    def _no_constant(self, state: State, term: Chain, item: Target, constant: float) -> None:
        number = self.view.scalar(item) if isinstance(item, ir.Value) else None
        if number is not None:
            found = f"{number.number:.6g} of rank {number.rank}"
            self.recorder.fail(Kind.RANK, state, term.span, item, said=constant_of_rank(number.rank, found))
            return
        expected = f"a constant for {term.scalar}" if term.scalar is not None else f"the constant {constant:.6g}"
        self.recorder.fail(Kind.CONSTANT, state, term.span, item, said=(expected, describe(self.view, item), ""))

    def raised_rank(self, state: State) -> Failure | None:
        """The failure of an outside value of higher rank than the inner value beside it: a mask with an extra axis."""
        nodes = state.matched()
        for node in sorted(nodes, key=self.view.position.__getitem__):
            ranks = {v: v.shape.rank() for v in node.inputs if v is not None and v.shape is not None}
            inner = [rank for v, rank in ranks.items() if v.producer() in nodes]
            outer = [v for v, rank in ranks.items() if v.producer() not in nodes and inner and rank > max(inner)]
            if node.op_type in BROADCASTING and outer:
                value, most = outer[0], max(inner)
                found, change = f"`{value.name}` of rank {ranks[value]}", f"let `{value.name}` have rank {most} at most"
                said = (f"rank {most} at most", found, change)
                return Failure(Kind.RANK, 0, state.span_of(node), node.outputs[0], said=said)
        return None


def _without_one(factoring: Factoring) -> Iterator[tuple[Target, tuple[tuple[Target, float], ...]]]:
    """Items that may be in the place of a constant, because they have one element; each with the other items."""
    for position, (item, _) in enumerate(factoring.items):
        if isinstance(item, ir.Value) and item.shape is not None and all(d == 1 for d in item.shape):
            yield item, factoring.items[:position] + factoring.items[position + 1 :]
