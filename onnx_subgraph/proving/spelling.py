"""The variants in which a formula can be written: alternatives, grouping, opset, type and storage.

A `Spelling` fixes every choice, so the same spelling builds the same model. `spellings` lists enough of them to cover every
possible pair of alternatives, each storage, each opset in which the operators exist, and several groupings.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.synonyms import written

OPSETS = (18, 13, 11, 23, 17)
LATEST = 24
"""The latest opset that the current releases of onnxruntime run. Used if an operator does not exist at the requested opset."""
STORAGES = ("initializer", "constant node", "rank one")


class UnbuildableError(Exception):
    """A spelling can't be built as a model; the message says why."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """One way to write a formula.

    chosen: the `id` of each Either, Apply with several operators, or optional Variable (1: without it) → the index of its
    alternative.
    seed: of the order and grouping of chains; 0 is as written. dtype: of the example's float32 values.
    storage: of scalar constants. symbolic: whether the first dimension is symbolic.
    mixed: whether the inputs are narrower and cast to `dtype`, for patterns of mixed precision; with `returned` the result is
    cast back.
    axes_more: the number of axes added to the largest drawn values of the example (-1: one less).
    other_axis: whether captured axes differ from the example's.
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
        """Whether the types, ranks and axes are those of the example; a pattern must match these."""
        return self.dtype == "float32" and not self.mixed and not self.is_varied

    @property
    def is_varied(self) -> bool:
        """Whether ranks or axes differ from the example's; a pattern need not match these."""
        return bool(self.axes_more) or self.other_axis

    def random(self) -> random.Random:
        """The random generator for order and grouping."""
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


def points(pattern: Pattern) -> dict[int, tuple[str, ...]]:
    """The terms of a formula with alternatives or optional names: the `id` of the term → its alternatives in words."""
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
