"""The ways in which a formula can be spelled: which alternatives, which grouping, which opset, type and storage.

A `Spelling` fixes every choice, so the same spelling builds the same model. `spellings` lists enough of them that each two
alternatives that can occur together, each storage, each opset in which the operators exist, and several groupings occur.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, cycle, product

from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.synonyms import written

OPSETS = (18, 13, 11, 23, 17)
LATEST = 24
"""Where an operator does not exist at the opset asked for: the latest that the current releases of onnxruntime run."""
MOST_WAYS = 32
"""How many ways to one line of a formula are looked at."""
STORAGES = ("initializer", "constant node", "rank one")


class UnbuildableError(Exception):
    """A spelling can't be built as a model; the text says why."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """chosen: the `id` of each Either, Apply with several operators, or optional Variable (1: without it) → the index of its
    alternative.

    seed: of the order and grouping of chains; 0 is as written. dtype: of the example's float32 values.
    storage: of scalar constants. symbolic: whether the first dimension is symbolic. mixed: whether the inputs are narrower
    and cast to `dtype`, for patterns of mixed precision, and with `returned` the result back. axes_more: how many axes the
    largest drawn values have more than the example says (-1: one less). other_axis: whether captured axes are others.
    """

    chosen: Mapping[int, int] = field(default_factory=dict)
    seed: int = 0
    opset: int = 18
    dtype: str = "float32"
    storage: str = "initializer"
    symbolic: bool = False
    mixed: bool = False
    returned: bool = True
    axes_more: int = 0
    other_axis: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the types, ranks and axes are those of the example, which a pattern must hold for."""
        return self.dtype == "float32" and not self.mixed and not self.is_varied

    @property
    def is_varied(self) -> bool:
        """Whether ranks or axes are others than the example's, for which a pattern need not be written."""
        return bool(self.axes_more) or self.other_axis

    def random(self) -> random.Random:
        """The choices of order and grouping."""
        return random.Random(self.seed)

    def __str__(self) -> str:
        alternatives = "".join(str(i) for i in self.chosen.values())
        said = {
            f"alternatives {alternatives}": alternatives,
            f"opset {self.opset}": True,
            self.dtype: True,
            self.storage: True,
            f"grouping {self.seed}": self.seed,
            "symbolic": self.symbolic,
            "mixed": self.mixed,
            "not cast back": not self.returned,
            f"{self.axes_more:+} axes": self.axes_more,
            "another axis": self.other_axis,
        }
        return ", ".join(text for text, so in said.items() if so)


Excludes = Callable[[Mapping[int, int]], bool]
"""Whether these alternatives can't all be in one model."""


def nothing(chosen: Mapping[int, int]) -> bool:
    """`Excludes`, where nothing is known of the models."""
    return False


def spellings(pattern: Pattern, excludes: Excludes = nothing) -> Iterator[Spelling]:
    """Spellings of the pattern's formula, plain ones first; last those for alternatives that did not occur together before."""
    opsets, storages, dtypes = cycle(OPSETS), cycle(STORAGES), cycle(("float32", "float32", "float16", "float64"))
    apart = covering(pattern, together=1, excludes=excludes)
    for number, chosen in enumerate(apart):
        for seed in range(3) if number == 0 else (number % 3,):
            yield Spelling(chosen, seed, next(opsets), next(dtypes), next(storages), symbolic=seed == 1)
        yield Spelling(chosen, 3, symbolic=True)
        if pattern.mixed_precision:
            yield Spelling(chosen, mixed=True)
        if number == 0:
            yield Spelling(chosen, dtype="float64")
            yield Spelling(chosen, axes_more=1, symbolic=True)
            yield Spelling(chosen, seed=1, axes_more=-1)
            yield Spelling(chosen, other_axis=True)
            if pattern.mixed_precision:
                yield Spelling(chosen, mixed=True, returned=False)
    for number, chosen in enumerate(covering(pattern, together=2, made=apart, excludes=excludes)):
        yield Spelling(chosen, number % 3, next(opsets), storage=next(storages), symbolic=number % 2 == 1)


def base_spellings(pattern: Pattern, excludes: Excludes = nothing) -> Iterator[Spelling]:
    """Plain spellings in which each alternative occurs: what mutants are made from."""
    for chosen in covering(pattern, together=1, excludes=excludes):
        yield Spelling(chosen)


def points(pattern: Pattern) -> dict[int, tuple[str, ...]]:
    """Where a formula has alternatives, or may lack something: the `id` of the term → its alternatives in words."""
    found: dict[int, tuple[str, ...]] = {}
    for assignment in pattern.match:
        for term in syntax.walk(assignment.term):
            if isinstance(term, syntax.Either):
                found[id(term)] = tuple(str(a) for a in term.alternatives)
            elif isinstance(term, syntax.Apply) and len(term.operators) > 1:
                found[id(term)] = tuple(f"{o} of {term}" for o in term.operators)
            elif (other := written(term)) is not None:
                found[id(term)] = (str(term), *map(str, other.formulas))
            elif isinstance(term, syntax.Variable) and term.optional:
                found[id(term)] = (f"with {term.name}", f"without {term.name}")
    return found


def covering(
    pattern: Pattern, together: int, made: Sequence[Mapping[int, int]] = (), excludes: Excludes = nothing
) -> list[Mapping[int, int]]:
    """Choices in which any `together` alternatives occur that can occur at once and do not in those `made`; plain ones first.

    A covering array, filled greedily: few models in place of the product of all alternatives, and a mistake that two alternatives
    make together is found all the same. An alternative inside another one is reached by choosing that one, too. Where a model
    excludes what was chosen, its first alternatives are chosen alone.
    """
    counts = {point: len(alternatives) for point, alternatives in points(pattern).items()}
    outer = _outer(pattern)
    first = dict.fromkeys(counts, 0)
    alike = _alike(pattern)
    single = [
        sorted(
            ({**way, **dict.fromkeys(alike.get(point, (point,)), index)} for way in outer[point]),
            key=lambda chosen: excludes({**first, **chosen}),
        )
        for point, count in counts.items()
        for index in range(count)
    ]
    several = (next(filter(None, map(_joined, product(*ways))), None) for ways in combinations(single, together))
    found: list[Mapping[int, int]] = [] if made else [first]
    wanted = [w for w in several if w is not None and not any(w.items() <= row.items() for row in (*made, *found))]
    while wanted:
        chosen = wanted[0]
        for more in wanted[1:]:
            chosen = _joined((chosen, more)) or chosen
        if len(chosen) > len(wanted[0]) and excludes({**first, **chosen}):
            chosen = wanted[0]
        found.append({**first, **chosen})
        wanted = [w for w in wanted if not w.items() <= chosen.items()]
    return found


def _alike(pattern: Pattern) -> dict[int, tuple[int, ...]]:
    """Where a name is optional → all places where it is: it is absent in all of them or in none."""
    terms = [t for a in pattern.match for t in syntax.walk(a.term) if isinstance(t, syntax.Variable) and t.optional]
    return {id(t): tuple(id(other) for other in terms if other.name == t.name) for t in terms}


def _joined(choices: Iterable[Mapping[int, int]]) -> dict[int, int] | None:
    """All of the choices at once; None where two of them differ."""
    joined: dict[int, int] = {}
    for choice in choices:
        if any(joined.setdefault(point, index) != index for point, index in choice.items()):
            return None
    return joined


def _outer(pattern: Pattern) -> dict[int, list[dict[int, int]]]:
    """For each point, what must be chosen elsewhere so that the formula uses it at all: one or more ways, the least first."""
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
    """The least that must be chosen to reach a line in one of these ways: not what is reached whichever alternative is chosen."""
    for point, count in counts.items():
        for rest in [{p: i for p, i in way.items() if p != point} for way in ways if point in way]:
            if all({**rest, point: index} in ways for index in range(count)):
                ways = [*ways, rest]
    least: list[dict[int, int]] = []
    for way in sorted(ways, key=lambda way: (len(way), sum(way.values()))):  # of those that are as long, the first alternatives
        if not any(shorter.items() <= way.items() for shorter in least):
            least.append(way)
    return least[:MOST_WAYS] or [{}]
