"""The ways in which a formula can be spelled: which alternatives, which grouping, which opset, type and storage.

A `Spelling` fixes every choice, so the same spelling builds the same model. `spellings` lists enough of them that each
alternative, each storage, each opset in which the operators exist, and several groupings occur.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle, islice

from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.pattern import Pattern

OPSETS = (18, 13, 11, 23, 17)
LATEST = 24
"""Where an operator does not exist at the opset asked for: the latest that the current releases of onnxruntime run."""
STORAGES = ("initializer", "constant node", "rank one")
MOST_CHOICES = 24


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


def spellings(pattern: Pattern) -> Iterator[Spelling]:
    """Spellings of the pattern's formula, plain ones first."""
    opsets, storages, dtypes = cycle(OPSETS), cycle(STORAGES), cycle(("float32", "float32", "float16", "float64"))
    for number, chosen in enumerate(_choices(pattern)):
        for seed in range(3):
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


def base_spellings(pattern: Pattern) -> Iterator[Spelling]:
    """One plain spelling for each choice of alternatives: what mutants are made from."""
    for chosen in _choices(pattern, mixtures=0):
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
            elif isinstance(term, syntax.Variable) and term.optional:
                found[id(term)] = (f"with {term.name}", f"without {term.name}")
    return found


def _choices(pattern: Pattern, mixtures: int = 2) -> list[Mapping[int, int]]:
    """The first alternatives, then each other alternative once, then some mixtures.

    An alternative inside another one is reached by choosing that one, too.
    """
    counts = {point: len(alternatives) for point, alternatives in points(pattern).items()}
    first = dict.fromkeys(counts, 0)
    outer = _outer(pattern)
    made: list[Mapping[int, int]] = [first]
    made += [{**first, **outer[point], point: index} for point, count in counts.items() for index in range(1, count)]
    made += [{**first, **outer[point]} for point in counts]
    draw = random.Random(7)
    made += [{point: draw.randrange(count) for point, count in counts.items()} for _ in range(mixtures if len(counts) > 1 else 0)]
    unique = {tuple(m.items()): m for m in (_agreeing(pattern, m) for m in made)}
    return list(islice(unique.values(), MOST_CHOICES))


def _agreeing(pattern: Pattern, chosen: Mapping[int, int]) -> Mapping[int, int]:
    """The same choices, but that a name which is optional in several places is absent in all of them where it is in one."""
    terms = (t for a in pattern.match for t in syntax.walk(a.term))
    optional = [t for t in terms if isinstance(t, syntax.Variable) and t.optional]
    absent = {t.name for t in optional if chosen[id(t)]}
    return {**chosen, **{id(t): int(t.name in absent) for t in optional}}


def _outer(pattern: Pattern) -> dict[int, dict[int, int]]:
    """For each point, what must be chosen elsewhere so that the formula uses it at all."""
    needed: dict[int, dict[int, int]] = {}
    lines: dict[str, dict[int, int]] = {}

    def visit(term: syntax.Term, so_far: dict[int, int]) -> None:
        if isinstance(term, syntax.Variable):
            if term.optional:
                needed[id(term)] = so_far
            if term.name not in lines or len(so_far) < len(lines[term.name]):
                lines[term.name] = so_far
        elif isinstance(term, syntax.Either):
            needed[id(term)] = so_far
            for index, alternative in enumerate(term.alternatives):
                visit(alternative, {**so_far, id(term): index})
            return
        elif isinstance(term, syntax.Apply) and len(term.operators) > 1:
            needed[id(term)] = so_far
        for child in syntax.children(term):
            visit(child, so_far)

    for line in reversed(pattern.match.assignments):
        reached = [lines[n] for n in line.names if n in lines]
        visit(line.term, min(reached, key=len, default={}))
    return needed
