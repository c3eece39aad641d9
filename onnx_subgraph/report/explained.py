"""The page of `explain`: the places where a pattern came nearest, the lines that matched there, and the line that fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onnx_subgraph.errors import Span
from onnx_subgraph.matching.match import SeenLine, SeenNode
from onnx_subgraph.report import grouping, listing
from onnx_subgraph.report.looks import MOST_LINES, some_names
from onnx_subgraph.report.wording import count
from onnx_subgraph.result import FuseResult

MOST_SHOWN = 20
"""Ways to fail that are shown with their lines; `--json` has all."""
MOST_CHARACTERS = 400
"""Characters of a line."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a pattern file. nodes: what it matched. before, failed, after: the text around the part that fails, if any."""

    file: str
    number: int
    nodes: tuple[SeenNode, ...]
    before: str
    failed: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class Nearest:
    """One way to fail, and the lines at the first of its places. hidden: how many lines more had matched."""

    group: grouping.NearlyMatched
    lines: tuple[Line, ...]
    hidden: int


def page(result: FuseResult, *, pattern: str = "", hidden: int = 0, absence: str = "") -> str:
    """The page on one model. Raises UsageError where the extra is not installed.

    pattern: the only one in question. hidden: how many near misses `result` omits. absence: why it is not in the model.
    """
    from onnx_subgraph.report.html import rendered

    near = grouping.nearly_matched(result.near_misses)
    return rendered(
        "explained.html.jinja",
        result=result,
        pattern=pattern,
        matched=grouping.fusions(result.rewrites),
        skipped=grouping.skipped(skip for skip in result.skipped if skip.bug is None),
        nearest=[nearest(group) for group in near[:MOST_SHOWN]],
        more=len(near) - MOST_SHOWN,
        places=count(sum(len(group.nodes) for group in near), "place"),
        hidden=hidden,
        absence=absence,
        names=some_names,
    )


def nearest(group: grouping.NearlyMatched) -> Nearest:
    """The lines of one way to fail, in the order of the files; the one that fails is always among them."""
    lines = list(_lines(group.lines, group.span))
    failed = next((place for place, line in enumerate(lines) if line.failed), 0)
    first = max(0, failed - MOST_LINES + 1)
    return Nearest(group, tuple(lines[first : first + MOST_LINES]), max(0, len(lines) - MOST_LINES))


def _lines(seen: tuple[SeenLine, ...], span: Span | None) -> Iterator[Line]:
    nodes = {(line.file, line.number): line for line in seen}
    place = None if span is None else (span.file, span.line)
    for key in sorted({*nodes, *([place] if place is not None else [])}):
        known = nodes[key].nodes if key in nodes else ()
        if span is not None and key == place:
            yield Line(listing.short(span.file), span.line, known, *_around(span))
        else:
            yield Line(listing.short(key[0]), key[1], known, nodes[key].text[:MOST_CHARACTERS])


def _around(span: Span) -> tuple[str, str, str]:
    """The line at `span` in three: before the part, the part, and after it."""
    start = span.column - 1
    end = start + max(1, span.length)
    before, failed, after = span.text[:start].lstrip(), span.text[start:end], span.text[end:].rstrip()
    return before[-MOST_CHARACTERS:], failed[:MOST_CHARACTERS] or "(the whole line)", after[:MOST_CHARACTERS]
