"""Record which matched nodes each line of a pattern file matched, for a report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from onnx_subgraph.matching.match import Match
from onnx_subgraph.matching.seen import by_line


@dataclass(frozen=True, slots=True)
class MatchedLine:
    """A line of a pattern file. text: as written. steps: the indices of its nodes among the steps of `Rewrite.before`."""

    text: str
    steps: tuple[int, ...]


def matched_lines(match: Match, nodes: Iterable[ir.Node]) -> tuple[MatchedLine, ...]:
    """The lines of the pattern's file, and of the formulas that it uses, which matched these nodes (`by_line`).

    nodes: those of the excerpt, in its order; constants have no step.
    """
    place = {node: number for number, node in enumerate(node for node in nodes if node.op_type != "Constant")}
    lines = ((text, sorted(place[node] for node in matched if node in place)) for _, _, text, matched in by_line(match.visited))
    return tuple(MatchedLine(text, tuple(steps)) for text, steps in lines if steps)
