"""Choose where matching starts: at the rarest operator that every match of a pattern contains, and climb to the root from there.

Every operator that all alternatives of a pattern need gives a set of anchors. For each graph, the set with the fewest nodes is
used. So the cost of a pattern depends on how often its rarest operator occurs, and a pattern whose operators are absent costs
almost nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import product
from math import ceil
from typing import NamedTuple

import onnx_ir as ir

from onnx_subgraph.matching import layout
from onnx_subgraph.matching.equalities import PRODUCT_OPERATORS, SUM_OPERATORS, Identity, is_associative, standing_for
from onnx_subgraph.matching.lookthrough import LookThrough
from onnx_subgraph.matching.normal import (
    Chain,
    Choice,
    Constant,
    Layout,
    Name,
    Normal,
    Nothing,
    Operation,
    children,
    is_empty,
    walk,
)
from onnx_subgraph.matching.rearrangement import LONGEST

_LAYOUT = {word: frozenset(("", o) for o in operators) for word, operators in layout.PRODUCERS.items()}


class Level(NamedTuple):
    """One step up from an anchor: through one operator (`steps` = 1), or through up to `steps` operators of a chain.

    term: the part of the pattern above. optional: the chain may have no node in the graph, as a product of one factor and a scale
    of 1.
    """

    term: Operation | Chain | Layout
    operators: frozenset[Identity]
    steps: int
    optional: bool


class Anchor(NamedTuple):
    """Start at each node of `operators` that matches `term`, and climb along `path`."""

    term: Normal
    operators: frozenset[Identity]
    path: tuple[Level, ...]


class Start(NamedTuple):
    """The anchors for one graph.

    cost: the number of nodes to start from. structure: the number of operators in the weakest anchor.
    """

    cost: int
    anchors: tuple[Anchor, ...]
    structure: int


NOWHERE = Start(sys.maxsize, (), 0)
"""No anchor: a part of a pattern that matches any value."""


ABSENT = 1 << 32
"""Anchor cost of an operator that is absent from the graph; larger than any real count."""
MOST_NEEDS = 64
"""Maximum number of operator sets derived from two alternatives of a choice."""

Count = Callable[[frozenset[Identity]], int]
"""Returns the number of nodes with one of these operators."""


def choose(root: Normal, counts: Count) -> Start:
    """The cheapest anchors of a pattern for a graph with these operator counts; cached by the counts."""
    operators = _operators_of(root)
    return _chosen(root, operators, tuple(map(counts, operators)))


@lru_cache(maxsize=1 << 12)
def _chosen(root: Normal, operators: tuple[frozenset[Identity], ...], numbers: tuple[int, ...]) -> Start:
    known: dict[int, _Best] = {}
    best = _best(root, dict(zip(operators, numbers, strict=True)).__getitem__, known)
    return Start(best.cost, tuple(_anchors(root, (), known)), best.structure)


@lru_cache(maxsize=1 << 10)
def _operators_of(root: Normal) -> tuple[frozenset[Identity], ...]:
    """The sets of operators that the parts of a pattern may have."""
    return tuple(dict.fromkeys(level.operators for term in walk(root) if (level := _level(term)) is not None))


@lru_cache(maxsize=1 << 10)
def needs(root: Normal) -> tuple[frozenset[Identity], ...]:
    """Sets of operators such that every match contains one of each set. If a graph lacks all of one set, it has no match."""
    known: dict[int, tuple[frozenset[Identity], ...]] = {}  # formulas share parts
    for term in reversed(list(walk(root))):
        if isinstance(term, Choice):
            known[id(term)] = reduce(_either, (known[id(alternative)] for alternative in term.alternatives))
            continue
        level = _level(term) if isinstance(term, Operation) else None
        below = (need for child in children(term) if not _is_free(child) for need in known[id(child)])
        known[id(term)] = _least((*(() if level is None else (level.operators,)), *below))
    return known[id(root)]


def _either(one: tuple[frozenset[Identity], ...], other: tuple[frozenset[Identity], ...]) -> tuple[frozenset[Identity], ...]:
    """What every match of one of two alternatives needs; () if that are too many sets."""
    return _least(a | b for a, b in product(one, other)) if len(one) * len(other) <= MOST_NEEDS else ()


def _least(needed: Iterable[frozenset[Identity]]) -> tuple[frozenset[Identity], ...]:
    """The sets without those that contain another one."""
    every = dict.fromkeys(needed)
    return tuple(one for one in every if not any(other < one for other in every))


def lacking(root: Normal, counts: Count) -> frozenset[Identity]:
    """A set of operators of which every match contains one and the graph none; empty if there is no such set."""
    known: dict[int, frozenset[Identity]] = {}
    for term in reversed(list(walk(root))):
        below = [known[id(child)] for child in children(term)]
        if isinstance(term, Choice):
            known[id(term)] = frozenset().union(*below) if all(below) else frozenset()
        elif isinstance(term, Operation) and (level := _level(term)) is not None and not counts(level.operators):
            known[id(term)] = term.operators
        else:
            known[id(term)] = next(filter(None, below), frozenset())
    return known[id(root)]


@lru_cache(maxsize=1 << 14)
def paths_to(root: Normal, name: str) -> tuple[tuple[Level, ...], ...]:
    """The paths from a value named `name` up to the root."""

    def ways(term: Normal, path: tuple[Level, ...]) -> Iterator[tuple[Level, ...]]:
        if isinstance(term, Name) and term.name == name:
            yield path
        level = _level(term)
        for child in children(term):
            yield from ways(child, path if level is None else (*path, level))

    return tuple(ways(root, ()))


@dataclass(slots=True)
class _Best:
    """The cheapest start for a term, whatever is above it. below: the inner terms to start from; empty: the term itself."""

    cost: int
    structure: int
    below: tuple[Normal, ...] = ()


_NO_START = _Best(NOWHERE.cost, NOWHERE.structure)


def _best(term: Normal, counts: Count, known: dict[int, _Best]) -> _Best:
    """The cheapest start for a term. known: results by the `id` of the term, because formulas share parts."""
    best = known.get(id(term))
    if best is None:
        best = known[id(term)] = _alternatives(term, counts, known) if isinstance(term, Choice) else _part(term, counts, known)
    return best


def _alternatives(choice: Choice, counts: Count, known: dict[int, _Best]) -> _Best:
    each = [(a, _best(a, counts, known)) for a in choice.alternatives]
    possible = [(a, s) for a, s in each if s.cost < ABSENT or s.cost >= NOWHERE.cost]
    each = possible or each  # Ignore alternatives that the graph cannot contain, but not those that match any value.
    return _Best(sum(s.cost for _, s in each), min(s.structure for _, s in each), tuple(a for a, _ in each))


def _part(term: Normal, counts: Count, known: dict[int, _Best]) -> _Best:
    best = _NO_START
    if not (isinstance(term, Name | Constant | Nothing) or is_empty(term)):
        level = _level(term)
        assert level is not None
        cost = counts(level.operators)
        # Any node of a chain may be its end. So a chain is a weaker anchor than an operator with the same count.
        best = _Best(cost if isinstance(term, Operation) else cost * 2 + 1, _structure(term))
    for child in children(term):
        if not _is_free(child):
            inner = _best(child, counts, known)
            if (inner.cost, -inner.structure) < (best.cost, -best.structure):
                best = _Best(inner.cost, inner.structure, (child,))
    return best


def _anchors(term: Normal, path: tuple[Level, ...], known: Mapping[int, _Best]) -> Iterator[Anchor]:
    """The anchors of the cheapest start for the term at the end of a path."""
    best, level = known[id(term)], _level(term)
    if best.below:
        path = path if level is None else (*path, level)
        for inner in best.below:
            yield from _anchors(inner, path, known)
    elif level is not None and best.cost < NOWHERE.cost:
        yield Anchor(term, level.operators, path)


@lru_cache(maxsize=1 << 14)
def _structure(term: Normal) -> int:
    """The number of operators in a term."""
    return isinstance(term, Operation | Chain) + sum(_structure(child) for child in children(term))


@lru_cache(maxsize=1 << 14)
def _level(term: Normal) -> Level | None:
    match term:
        case Operation(operators=operators, arguments=arguments):
            steps = max(1, len(arguments) - 1) if is_associative(operators) else 1
            return Level(term, standing_for(operators), steps, False)
        case Chain(is_product=True, items=items):
            steps = sum(max(1, ceil(abs(p))) for _, p in items) + 2
            return Level(term, PRODUCT_OPERATORS, steps, len(items) == 1)
        case Chain(items=items):
            return Level(term, SUM_OPERATORS, len(items) + 1, is_empty(term))
        case Layout(term=word):
            return Level(term, _LAYOUT[word.word], 1 if word.word in ("split", "take") else LONGEST, False)
        case _:
            return None


def _is_free(term: Normal) -> bool:
    """Whether a match may have no node for the term: it matches any value, or it may be absent."""
    return isinstance(term, Constant | Nothing) or (
        isinstance(term, Name) and (term.definition is None or term.optional is not None)
    )


def climb(values: Iterable[ir.Value], path: tuple[Level, ...], look: LookThrough) -> dict[ir.Value, None]:
    """The values that can be the root if `values` are at the end of `path`, nearest first."""
    *_, (_, reached) = climbed(values, path, look)
    return reached


def climbed(
    values: Iterable[ir.Value], path: tuple[Level, ...], look: LookThrough
) -> Iterator[tuple[Level | None, dict[ir.Value, None]]]:
    """For each part of the pattern from the end of `path` (None) upwards: the values that can be it, while there are any."""
    level, current = None, dict.fromkeys(values)
    yield level, current
    for level in reversed(path):
        if not current:
            break
        current = _step(current, level, look)
        yield level, current


def _step(values: dict[ir.Value, None], level: Level, look: LookThrough) -> dict[ir.Value, None]:
    """The values that can be one level above `values`."""
    reached: dict[ir.Value, None] = dict(values) if level.optional else {}
    frontier: Iterable[ir.Value] = values
    consumers, identity, operators = look.consumers, look.view.identity, level.operators
    for _ in range(level.steps):
        readers = [node for value in frontier for node in consumers(value) if identity[node] in operators]
        if not readers:
            break
        frontier = [output for node in readers for output in node.outputs if output not in reached]
        reached.update(dict.fromkeys(frontier))
    return reached
