"""The data of an expectation file: one section for each model, found by the end of the model's path.

Everything is optional: what a section does not mention is not checked. Each expectation has its place in the file, so that a
failed one can be shown there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from onnx_subgraph.errors import ExpectationError, Span
from onnx_subgraph.paths import name_for

Scalar = int | float | str
"""The value of an attribute in an expectation."""


@dataclass(frozen=True, slots=True)
class Limit:
    """An expected number: exactly, at least or at most. text: as written."""

    kind: Literal["exactly", "at least", "at most"]
    number: int
    text: str
    span: Span

    def allows(self, number: int) -> bool:
        """Whether `number` is within the limit."""
        match self.kind:
            case "at least":
                return number >= self.number
            case "at most":
                return number <= self.number
            case _:
                return number == self.number


@dataclass(frozen=True, slots=True)
class AttributeValues:
    """The allowed values of a fused operator's attribute, wherever its pattern fused."""

    values: tuple[Scalar, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Fusions:
    """The expectations of one pattern: how often it fuses, and the attributes of its operators."""

    count: Limit | None
    attributes: Mapping[str, AttributeValues] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The largest absolute difference of an output from the original's, in the output's own unit."""

    value: float
    span: Span


@dataclass(frozen=True, slots=True)
class Section:
    """The expectations of one model; None or empty is not checked.

    near_misses: pattern → how often it may nearly match; other patterns may have no near miss. near_misses_span: its place.
    providers: name → its place; the fused model is verified on each.
    engines: the number of regions that a backend runs. nodes, size (bytes): of the output model.
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
        """The section whose name is the path of `model` as it is given, or the longest match for the end of it.

        Raises ExpectationError if there is none.
        """
        sections = {section.model: section for section in self.sections}
        name = name_for(model, sections)
        if name is None:
            hint = f"add a section `{model.name}:` below it, or make the file again with --write-expect"
            raise ExpectationError(f"there is no section for the model {model}", span=self.span, hint=hint)
        return sections[name]

    def unused(self, models: Iterable[Path]) -> tuple[Section, ...]:
        """The sections that match none of `models`."""
        used = {self.section(model).model for model in models}
        return tuple(section for section in self.sections if section.model not in used)
