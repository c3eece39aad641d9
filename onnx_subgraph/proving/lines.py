"""Index the lines of a formula by the names that they assign, once for all models made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx_subgraph.language import term as syntax


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a formula. captured: the names of attributes that it captures."""

    assignment: syntax.Assignment
    captured: tuple[str, ...]


Lines = Mapping[str, Line]
"""Assigned name → its line."""


def lines_of(match: syntax.Block) -> Lines:
    """The lines of a formula."""
    return {name: Line(line, _captured(line.term)) for line in match for name in line.names if name != "_"}


def _captured(term: syntax.Term) -> tuple[str, ...]:
    keywords = (given for inner in syntax.walk(term) if isinstance(inner, syntax.Apply) for _, given in inner.keywords)
    return tuple(given.name for given in keywords if isinstance(given, syntax.Variable))
