"""The ways in which a formula can be spelled: which alternatives, which grouping, which opset, type and storage.

A `Spelling` fixes every choice, so the same spelling builds the same model. `spellings` lists enough of them that each alternative,
each storage, each opset in which the operators exist, and several groupings occur.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle, islice

from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.pattern import Pattern

OPSETS = (18, 13, 11, 23, 17)
LATEST = 23
STORAGES = ("initializer", "constant node", "rank one")
MOST_CHOICES = 12


@dataclass(frozen=True, slots=True)
class Spelling:
    """chosen: the `id` of each Either, or Apply with several operators, → the index of its alternative.

    seed: of the order and grouping of chains; 0 is as written. dtype: of the example's float32 values.
    storage: of scalar constants. symbolic: whether the first dimension is symbolic. mixed: whether the inputs are narrower
    and cast to `dtype` (and the result back), for patterns of mixed precision.
    """

    chosen: Mapping[int, int] = field(default_factory=dict)
    seed: int = 0
    opset: int = 18
    dtype: str = "float32"
    storage: str = "initializer"
    symbolic: bool = False
    mixed: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the types are those of the example."""
        return self.dtype == "float32" and not self.mixed

    def random(self) -> random.Random:
        """The choices of order and grouping."""
        return random.Random(self.seed)

    def __str__(self) -> str:
        alternatives = "".join(str(i) for i in self.chosen.values())
        parts = [f"alternatives {alternatives}" if alternatives else "", f"opset {self.opset}", self.dtype, self.storage]
        parts += [f"grouping {self.seed}" if self.seed else "", "symbolic" if self.symbolic else "", "mixed" if self.mixed else ""]
        return ", ".join(p for p in parts if p)


def spellings(pattern: Pattern) -> Iterator[Spelling]:
    """Spellings of the pattern's formula, plain ones first."""
    opsets, storages, dtypes = cycle(OPSETS), cycle(STORAGES), cycle(("float32", "float32", "float16", "float64"))
    for chosen in _choices(pattern):
        for seed in range(3):
            yield Spelling(chosen, seed, next(opsets), next(dtypes), next(storages), symbolic=seed == 1)
        yield Spelling(chosen, 3, 18, "float32", "initializer", symbolic=True)
        if pattern.mixed_precision:
            yield Spelling(chosen, 0, 18, "float32", "initializer", mixed=True)


def base_spellings(pattern: Pattern) -> Iterator[Spelling]:
    """One plain spelling for each choice of alternatives: what mutants are made from."""
    for chosen in _choices(pattern):
        yield Spelling(chosen)


def _choices(pattern: Pattern) -> list[Mapping[int, int]]:
    """The first alternatives, then each other alternative once, then some mixtures."""
    points: dict[int, int] = {}
    for assignment in pattern.match:
        for term in syntax.walk(assignment.term):
            if isinstance(term, syntax.Either):
                points[id(term)] = len(term.alternatives)
            elif isinstance(term, syntax.Apply) and len(term.operators) > 1:
                points[id(term)] = len(term.operators)
    first = dict.fromkeys(points, 0)
    made: list[Mapping[int, int]] = [first]
    made += [{**first, point: index} for point, count in points.items() for index in range(1, count)]
    draw = random.Random(7)
    made += [{point: draw.randrange(count) for point, count in points.items()} for _ in range(2 if len(points) > 1 else 0)]
    unique = {tuple(m.items()): m for m in made}
    return list(islice(unique.values(), MOST_CHOICES))
