"""Record which matched nodes each line of a pattern file matched, for a report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from onnx_subgraph.matching.match import Match


@dataclass(frozen=True, slots=True)
class MatchedLine:
    """A line of a pattern file. text: as written. steps: the indices of its nodes among the steps of `Rewrite.before`."""

    text: str
    steps: tuple[int, ...]


def matched_lines(match: Match, nodes: Iterable[ir.Node]) -> tuple[MatchedLine, ...]:
    """The lines that nodes matched, in the order of the files: the pattern's, and that of the formulas that it uses.

    nodes: those of the excerpt, in its order; constants have no step. A node that several lines matched counts for each.
    """
    place = {node: number for number, node in enumerate(node for node in nodes if node.op_type != "Constant")}
    found: dict[tuple[str, int], tuple[str, set[int]]] = {}
    for visited, span in match.spans:
        steps = {place[node] for node in visited if node in place}
        if span is not None and steps:
            found.setdefault((span.file, span.line), (span.text.strip(), set()))[1].update(steps)
    own = str(match.pattern.file)
    order = sorted(found, key=lambda line: (line[0] != own, line))
    return tuple(MatchedLine(text, tuple(sorted(steps))) for text, steps in map(found.__getitem__, order))
