"""Choose the spellings of a formula to test: few models in which every possible pair of alternatives occurs.

This is a covering array, filled greedily: each model covers as many new pairs as possible. So an error of two alternatives
together is found with few models, instead of the product of all alternatives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, cycle

from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.proving.instance import Builder
from onnx_subgraph.proving.sketch import Sketch, alternatives_of
from onnx_subgraph.proving.spelling import LATEST, OPSETS, STORAGES, Spelling, UnbuildableError, points

MOST_WAYS = 32
"""The most ways to one line of a formula that are tried."""

Alternative = tuple[int, int]
"""A point of a formula, and the number of one of its alternatives."""
Choice = Mapping[int, int]
"""Point → the number of its alternative; the first alternative for points that are missing."""


def spellings(pattern: Pattern) -> Iterator[Spelling]:
    """Spellings of the pattern's formula: plain ones first, those for further pairs of alternatives last."""
    models = covering(pattern)
    yield from spellings_of_each(models)
    yield from spellings_of_pairs(models)


def spellings_of_each(models: Covering) -> Iterator[Spelling]:
    """Spellings in which each alternative occurs, in several types, storages and opsets; plain ones first."""
    opsets, storages, dtypes = cycle(OPSETS), cycle(STORAGES), cycle(("float32", "float32", "float16", "float64"))
    for number, chosen in enumerate(models.each):
        for seed in range(3) if number == 0 else (number % 3,):
            yield Spelling(chosen, seed, next(opsets), next(dtypes), next(storages), symbolic=seed == 1)
        yield Spelling(chosen, 3, symbolic=True)
        if models.pattern.mixed_precision:
            yield Spelling(chosen, mixed=True)
        if number == 0:
            yield Spelling(chosen, dtype="float64")
            yield Spelling(chosen, axes_more=1, symbolic=True)
            yield Spelling(chosen, seed=1, axes_more=-1)
            yield Spelling(chosen, other_axis=True)
            if models.pattern.mixed_precision:
                yield Spelling(chosen, mixed=True, returned=False)


def spellings_of_pairs(models: Covering, since: int = 0) -> Iterator[Spelling]:
    """Spellings for pairs of alternatives that do not occur in `spellings_of_each`. since: the lowest opset to use."""
    opsets, storages = cycle(OPSETS), cycle(STORAGES)
    for number, chosen in enumerate(models.choices(together=2, made=models.each)):
        opset = max(next(opsets), since)
        yield Spelling(chosen, number % 3, opset, storage=next(storages), symbolic=number % 2 == 1)


def base_spellings(pattern: Pattern) -> Iterator[Spelling]:
    """Plain spellings in which each alternative occurs, that of all first ones first. Mutants are made from them."""
    yield Spelling(_first(pattern))
    yield from map(Spelling, covering(pattern).each[1:])


@cache
def covering(pattern: Pattern) -> Covering:
    """The choices for a pattern, kept: they take seconds where a formula has many alternatives."""
    return Covering(pattern)


def _first(pattern: Pattern) -> Choice:
    return dict.fromkeys(points(pattern), 0)


@dataclass(slots=True)
class Covering:
    """Choices for a pattern; each covers as many new alternatives, or pairs of them, as possible.

    first: the choice of all first alternatives. each: choices in which each alternative occurs. pieces: alternative → the
    smallest choices that give a model with it.
    """

    pattern: Pattern
    first: Choice = field(init=False)
    each: list[Choice] = field(init=False)
    pieces: dict[Alternative, list[Choice]] = field(init=False)
    _order: dict[Alternative, int] = field(init=False)
    _sketch: Sketch = field(init=False)
    _used: dict[frozenset[Alternative], frozenset[Alternative]] = field(default_factory=dict)
    _sketched: dict[frozenset[Alternative], frozenset[Alternative]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.first = _first(self.pattern)
        self._sketch = Sketch(self.pattern, Builder(self.pattern, Spelling()).results_wanted())
        outer, alike = _outer(self.pattern), _alike(self.pattern)
        ways: dict[Alternative, list[Choice]] = {
            (point, index): [{**way, **dict.fromkeys(alike.get(point, (point,)), index)} for way in outer[point]]
            for point, words in points(self.pattern).items()
            for index in range(len(words))
        }
        self._order = {one: place for place, one in enumerate(ways)}
        self.pieces = {one: _distinct(self._pieces(one, ways)) for one in ways}
        self.each = self.choices(together=1)

    def choices(self, together: int, made: Sequence[Choice] = ()) -> list[Choice]:
        """Choices that cover all possible alternatives (together=1) or pairs (together=2) that those `made` do not cover."""
        wanted = dict.fromkeys(sets(self.pieces, together))
        found = [] if made else [self.first]
        for choice in (*made, *found):
            _leave_out(wanted, self.used(choice), together)
        while wanted:
            some = next(iter(wanted))
            chosen = self._seed(some)
            if chosen is not None:
                chosen = self._grown(chosen, wanted, together)
                found.append({**self.first, **chosen})
                _leave_out(wanted, self.used(chosen), together)
            wanted.pop(some, None)
        return found

    def used(self, choice: Choice) -> frozenset[Alternative]:
        """The alternatives in the model of this choice; empty where there is no such model."""
        whole = {**self.first, **choice}
        key = frozenset(whole.items())
        if key not in self._used:
            try:
                self._used[key] = alternatives_of(self.pattern, Spelling(whole, opset=LATEST))
            except UnbuildableError:
                self._used[key] = frozenset()
        return self._used[key]

    def sketched(self, choice: Choice) -> frozenset[Alternative]:
        """The alternatives in the model of this choice, assuming that the example's shapes fit; faster than `used`."""
        key = frozenset(choice.items())
        if key not in self._sketched:
            self._sketched[key] = self._sketch.alternatives(choice)
        return self._sketched[key]

    def _pieces(self, one: Alternative, ways: Mapping[Alternative, list[Choice]]) -> Iterator[Choice]:
        """The smallest choices with this alternative.

        If a sentence requires a second alternative with it, one for each that satisfies it.
        """
        for way in ways[one]:
            if one in self.sketched(way):
                yield way
                continue
            for other in ways:
                both = next((both for w in ways[other] if (both := _joined(way, w)) is not None), None)
                if both is not None and one in self.sketched(both):
                    yield self._least_with(one, way, both)

    def _least_with(self, one: Alternative, way: Choice, both: Choice) -> Choice:
        """The choice without the points that neither `way` nor the alternative needs."""
        for point in [p for p in both if p not in way]:
            less = {p: i for p, i in both.items() if p != point}
            both = less if one in self.sketched(less) else both
        return both

    def _seed(self, some: frozenset[Alternative]) -> Choice | None:
        """The smallest choice that has all of these alternatives; None where none was found."""
        joined: list[Choice | None] = [{}]
        for one in sorted(some, key=self._order.__getitem__):
            joined = [_joined(choice, piece) for choice in joined if choice is not None for piece in self.pieces[one]]
        return next((c for c in joined if c is not None and some <= self.sketched(c) and some <= self.used(c)), None)

    def _grown(self, chosen: Choice, wanted: Mapping[frozenset[Alternative], None], together: int) -> Choice:
        """The choice with further alternatives, added one at a time; each time the one that covers most of `wanted`."""

        def shown(used: Iterable[Alternative]) -> int:
            return sum(some in wanted for some in sets(used, together))

        partners: dict[Alternative, set[Alternative]] = {}
        for some in wanted:
            for one in some:
                partners.setdefault(one, set()).update(some)
        left = [piece for one in self.pieces if one in partners for piece in self.pieces[one]]
        now = shown(self.used(chosen))
        while True:
            left = [piece for piece in left if (j := _joined(chosen, piece)) is not None and len(j) > len(chosen)]
            used = self.used(chosen)
            gains = [sum(len(partners.get(one, set()) & (used | new)) for one in new - used) for new in map(_items, left)]
            if not any(gains):
                return chosen
            more = {**chosen, **left.pop(gains.index(max(gains)))}
            if shown(self.sketched(more)) > now and (then := shown(self.used(more))) > now:
                chosen, now = more, then


def _items(choice: Choice) -> frozenset[Alternative]:
    return frozenset(choice.items())


def sets(alternatives: Iterable[Alternative], together: int) -> Iterator[frozenset[Alternative]]:
    """Every set of `together` of these alternatives, of different points."""
    if together == 1:
        return (frozenset((one,)) for one in alternatives)
    return (frozenset(pair) for pair in combinations(alternatives, 2) if pair[0][0] != pair[1][0])


def _leave_out(wanted: dict[frozenset[Alternative], None], used: Iterable[Alternative], together: int) -> None:
    for shown in sets(used, together):
        wanted.pop(shown, None)


def _distinct(choices: Iterable[Choice]) -> list[Choice]:
    return list({frozenset(choice.items()): choice for choice in choices}.values())


def _joined(one: Choice, other: Choice) -> Choice | None:
    """Both choices combined; None where they conflict."""
    for point, index in other.items():
        if one.get(point, index) != index:
            return None
    return {**one, **other}


def _alike(pattern: Pattern) -> dict[int, tuple[int, ...]]:
    """A place with an optional name → all places with that name: it is absent in all of them or in none."""
    terms = [t for a in pattern.match for t in syntax.walk(a.term) if isinstance(t, syntax.Variable) and t.optional]
    return {id(t): tuple(id(other) for other in terms if other.name == t.name) for t in terms}


def _outer(pattern: Pattern) -> dict[int, list[dict[int, int]]]:
    """For each point the choices elsewhere under which the formula uses it: one or more ways, the smallest first."""
    counts = {point: len(alternatives) for point, alternatives in points(pattern).items()}
    needed: dict[int, list[dict[int, int]]] = {}
    lines: dict[str, list[dict[int, int]]] = {}

    def visit(term: syntax.Term, so_far: dict[int, int]) -> None:
        if id(term) in counts:
            needed.setdefault(id(term), []).append(so_far)
        if isinstance(term, syntax.Variable):
            lines.setdefault(term.name, []).append(so_far)
        for index, child in enumerate(syntax.children(term)):
            visit(child, {**so_far, id(term): index} if isinstance(term, syntax.Either) else so_far)

    for line in reversed(pattern.match.assignments):
        for way in _least([way for name in line.names for way in lines.get(name, ())], counts):
            visit(line.term, way)
    return needed


def _least(ways: list[dict[int, int]], counts: Mapping[int, int]) -> list[dict[int, int]]:
    """The smallest of these ways to reach a line, without the points where every alternative reaches it."""
    for point, count in counts.items():
        for rest in [{p: i for p, i in way.items() if p != point} for way in ways if point in way]:
            if all({**rest, point: index} in ways for index in range(count)):
                ways = [*ways, rest]
    least: list[dict[int, int]] = []
    for way in sorted(ways, key=lambda way: (len(way), sum(way.values()))):  # shortest first
        if not any(shorter.items() <= way.items() for shorter in least):
            least.append(way)
    return least[:MOST_WAYS] or [{}]
