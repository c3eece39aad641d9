"""Check the subgraphs of If, Loop and Scan that differ from the reference's and that no run of the candidate took.

Such a subgraph is a site whose values can't be captured (`site`). The reference's and the candidate's are run on drawn values,
and compared with a float64 evaluation of the reference's. Subgraphs correspond by the names of the nodes that own them. One that
runs on no drawn values is checked in pieces (`pieces`): the differing nodes, between values that both have. A value of the main
graph that only such subgraphs read is checked on the values that flow there (`hidden`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import onnx_ir as ir

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.rewriting.cutting import Cutting
from onnx_subgraph.rewriting.outline import Outline
from onnx_subgraph.rewriting.rewrite import Place, Rewrite
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.hidden import hidden
from onnx_subgraph.verification.pieces import Body, pieces, whole
from onnx_subgraph.verification.site import SiteCheck, check_sites


def check_untaken(
    reference: ir.Model,
    candidate: ir.Model,
    source: Path,
    provider: str,
    cases: Sequence[Case],
    reached: Collection[str],
    fix_overflows: bool,
) -> tuple[SiteCheck, ...]:
    """Check every subgraph that no run took and that differs between the two models, and what only such subgraphs read.

    Shapes must be inferred. The root of a check is the subgraph; its place is in the main graph if a value that it reads differs.
    source: the file of the reference. reached: the names of the candidate's nodes that ran.
    fix_overflows: a result that is NaN may become a number.
    """
    before, after = Outline(reference), Outline(candidate)
    constants = Constants(reference), Constants(candidate)
    mine = {before.scope(graph): graph for graph in before.graphs}
    held = _Held(reference, source, provider, cases, fix_overflows)
    untaken = [(after.scope(g), g) for g in after.graphs if g is not candidate.graph and _is_untaken(g, reached)]
    checks: list[SiteCheck] = []
    for scope, graph in untaken:
        if scope in mine:
            pair = Body(scope, mine[scope], before, constants[0]), Body(scope, graph, after, constants[1])
            checks += held.checks(*pair)
        elif after.root(graph) is candidate.graph:
            rewrite = Rewrite("", "", "", (), 0, root=scope, place=Place("", scope, ()))
            checks.append(SiteCheck(rewrite, provider, unknown="the original has no body of that name"))
    scopes = {scope for scope, _ in untaken}
    if (unseen := hidden((before, constants[0]), (after, constants[1]), scopes)) is not None:
        reader, *sides = unseen
        checks += (replace(one, rewrite=replace(one.rewrite, root=reader)) for one in held.checks(*sides))
    return tuple(checks)


class _Held(NamedTuple):
    """What checks of subgraphs need."""

    reference: ir.Model
    source: Path
    provider: str
    cases: Sequence[Case]
    fix_overflows: bool

    def checks(self, mine: Body, other: Body) -> tuple[SiteCheck, ...]:
        """The checks of one subgraph; empty where it is the same.

        It is checked as a whole, or else in pieces if every piece can be checked.
        """
        differing = pieces(mine, other)
        if differing is not None and not differing:
            return ()
        (check,) = self._checked([whole(mine, other)])
        if check.proved or check.wrong or differing is None:
            return (check,)
        found = self._checked(differing)
        return found if all(one.proved or one.wrong for one in found) else (check,)

    def _checked(self, cuttings: Sequence[Cutting]) -> tuple[SiteCheck, ...]:
        given = self.reference, self.source, cuttings, self.provider, self.cases
        return check_sites(*given, fix_overflows=self.fix_overflows)


def _is_untaken(graph: ir.Graph, reached: Collection[str]) -> bool:
    """Whether no node of a subgraph is known to have run. One without nodes, whose results are constants, counts as not taken."""
    return not any(node.name in reached for node in graph)
