"""What is expected of the models of a run: one section for each model, found by the end of the model's path.

Everything is optional: what a section does not mention is not held against the run. Each expectation knows its place in the
file, so that a miss is shown where it can be changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from onnx_subgraph.errors import ExpectationError, Span
from onnx_subgraph.paths import ends_with

Scalar = int | float | str
"""The value of an attribute that an expectation can name."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A number that is expected: exactly, at least or at most. text: as it was written."""

    kind: Literal["exactly", "at least", "at most"]
    number: int
    text: str
    span: Span

    def allows(self, number: int) -> bool:
        """Whether `number` is as expected."""
        match self.kind:
            case "at least":
                return number >= self.number
            case "at most":
                return number <= self.number
            case _:
                return number == self.number


@dataclass(frozen=True, slots=True)
class AttributeValues:
    """The values that an attribute of a fused operator may have, at every place where its pattern fused."""

    values: tuple[Scalar, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Fusions:
    """What is expected of one pattern: how often it fuses, and the attributes that its operators have."""

    count: Limit | None
    attributes: Mapping[str, AttributeValues] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The largest absolute difference of an output from the original's, in the output's own unit."""

    value: float
    span: Span


@dataclass(frozen=True, slots=True)
class Section:
    """What is expected of one model; what is None or empty is not looked at.

    near_misses: pattern → how often it may nearly match; patterns that are not named may not at all. near_misses_span: where
    that is written. providers: name → its place; the fused model is verified on each. engines: how many
    regions a backend runs. nodes, size (bytes): of the model that is made.
    """

    model: str
    span: Span
    fusions: Mapping[str, Fusions] = field(default_factory=dict)
    near_misses: Mapping[str, Limit] | None = None
    near_misses_span: Span | None = None
    engines: Limit | None = None
    nodes: Limit | None = None
    size: Limit | None = None
    providers: Mapping[str, Span] = field(default_factory=dict)
    tolerance: Tolerance | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expectation file. span: the place of its `models`."""

    file: str
    span: Span
    sections: tuple[Section, ...]

    def section(self, model: Path) -> Section:
        """The section for `model`: of those whose name its path ends with, the longest. Raises ExpectationError without one."""
        fitting = [section for section in self.sections if ends_with(model, section.model)]
        if not fitting:
            hint = f"add a section `{model.name}:` below it, or make the file again with --write-expect"
            raise ExpectationError(f"there is no section for the model {model}", span=self.span, hint=hint)
        return max(fitting, key=lambda section: len(PurePosixPath(section.model).parts))

    def unused(self, models: Iterable[Path]) -> tuple[Section, ...]:
        """The sections that are for none of `models`."""
        used = {self.section(model).model for model in models}
        return tuple(section for section in self.sections if section.model not in used)
