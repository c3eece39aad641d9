"""Apply matches to the graph: choose which ones, order them, plan and commit each, and record what changed.

`sequence` has the order. Each match is planned just before its commit, against the graph that the earlier commits left. A match
that loses nodes to another one may be found again in the next round. If it is of a user's pattern, it is reported as skipped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import onnx_ir as ir

from onnx_subgraph.language.library import is_built_in
from onnx_subgraph.matching.match import Binding, Match
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.nested import graph_around, operands
from onnx_subgraph.regions.ground import PATTERN
from onnx_subgraph.rewriting.commit import commit, place_of
from onnx_subgraph.rewriting.costs import Costs
from onnx_subgraph.rewriting.cse import eliminate_common
from onnx_subgraph.rewriting.cutting import Cutting, between, cut
from onnx_subgraph.rewriting.excerpt import Excerpt, excerpt
from onnx_subgraph.rewriting.lines import matched_lines
from onnx_subgraph.rewriting.loadability import Loadability
from onnx_subgraph.rewriting.outcomes import Outcomes
from onnx_subgraph.rewriting.outline import Outline
from onnx_subgraph.rewriting.plan import Plan, plan, root_name
from onnx_subgraph.rewriting.read_values import equal_values, repeating_values, triangular_values, uniform_values
from onnx_subgraph.rewriting.replacement import Site
from onnx_subgraph.rewriting.rewrite import Place, Rewrite, Skip, Way, taken
from onnx_subgraph.rewriting.sequence import in_sequence

Barred = Callable[[Place], Collection[Way] | None]
"""The replacements that a match at a place may not have; None where it may have none."""
Record = Callable[[Cutting], None]


def apply(
    model: ir.Model,
    matches: Iterable[Match],
    *,
    target: str,
    loadability: Sequence[Loadability],
    constants: Constants,
    excerpts: bool = False,
    barred: Barred = lambda place: (),
    record: Record | None = None,
    costs: Costs | None = None,
    outcomes: Outcomes | None = None,
) -> tuple[tuple[Rewrite, ...], tuple[Skip, ...]]:
    """Replace as many of `matches` as do not overlap and pass every check. Changes `model` in place.

    target: "onnxruntime", "standard" or "function". loadability: one for each provider that must load the result.
    constants: the constants of `model`. excerpts: whether each rewrite records excerpts of what it removed and added.
    barred: what may not be replaced. record: is called with the cutting of each rewrite.
    costs: what replacements cost on these providers; None replaces regardless of cost. outcomes: those of earlier calls for this
    model with the same target, loadability and costs. Never raises for a valid match: a match that can't be replaced leaves the
    graph unchanged and gives a `Skip` with the reason.
    """
    outline = Outline(model)
    site = Site(outline, constants, loadability, costs, outcomes or Outcomes())
    rewrites: list[Rewrite] = []
    skips: list[Skip] = []
    refused: set[tuple[str, frozenset[ir.Node]]] = set()
    taken_by: dict[ir.Node, str] = {}
    renewed: dict[ir.Value, ir.Value] = {}
    for match in in_sequence(matches, outline):
        current = _current(match, renewed)
        if current is None and not match.part and not is_built_in(match.pattern.file):
            skips += _taken(match, taken_by)
        wrong = None if current is None else barred(place_of(current, outline))
        if current is None or wrong is None:
            continue
        moved = _without_duplicates(current, outline)
        planned = plan(current, target, site, wrong)
        if isinstance(planned, Skip):
            for user, index, value in moved:
                user.replace_input_with(index, value)
            place = (match.pattern.id, frozenset(match.nodes))  # commuted operands can give several matches of the same nodes
            skips += () if match.part or place in refused or planned.was_wrong else (planned,)
            refused.add(place)
        else:
            skips += planned.remarks
            rewrites.append(_recorded(planned, site, renewed, excerpts, record))
            taken_by |= dict.fromkeys(planned.removed, match.pattern.id)
    if rewrites:
        eliminate_common(outline, constants, PATTERN, fused=frozenset(r.node for r in rewrites))
    return tuple(rewrites), tuple(skips)


def _taken(match: Match, taken_by: Mapping[ir.Node, str]) -> list[Skip]:
    """The skip of a match that lost nodes to other patterns; empty where it lost them to its own pattern, or lost none."""
    winners = dict.fromkeys(taken_by[node] for node in match.nodes if node in taken_by)
    if not winners or match.pattern.id in winners:
        return []
    return [taken(match.pattern.id, root_name(match), winners)]


def _current(match: Match, renewed: Mapping[ir.Value, ir.Value]) -> Match | None:
    """The match, with its bindings in the current graph; None where another rewrite removed a part of it."""
    if any(n.graph is None for n in match.nodes):
        return None
    bindings: dict[str, Binding] = {}
    for name, binding in match.bindings.items():
        if type(binding) is ir.Value:
            while binding in renewed:
                binding = renewed[binding]
            producer = binding.producer()
            if producer is not None and producer.graph is None:
                return None
        bindings[name] = binding
    return dataclasses.replace(match, bindings=bindings)


def _without_duplicates(match: Match, outline: Outline) -> list[tuple[ir.Node, int, ir.Value]]:
    """Let the readers of a duplicate computation read the match's result. To undo: returns (reader, input index, old value)."""
    moved: list[tuple[ir.Node, int, ir.Value]] = []
    for double, result in match.doubles.items():
        producer, source = double.producer(), result.producer()
        if producer is None or producer.graph is None or source is None or result not in match.roots.values():
            continue
        if all(outline.position[user] > outline.position[source] for user, _ in double.uses() if user.graph is source.graph):
            moved += [(user, index, double) for user, index in double.uses()]
    for user, index, double in moved:
        user.replace_input_with(index, match.doubles[double])
    return moved


def _recorded(planned: Plan, site: Site, renewed: dict[ir.Value, ir.Value], excerpts: bool, record: Record | None) -> Rewrite:
    """Commit the plan and return its rewrite. Excerpts and cuttings need the graph both before and after the commit."""
    old = tuple(planned.replaced)
    names = [str(value.name) for value in old]
    gone = site.outline.in_order(planned.removed)
    drawn, lines = (_excerpt(gone, site), matched_lines(planned.match, gone)) if excerpts else (None, ())
    equal = _equal(planned, site) if record is not None else {}
    ways = _connecting_nodes(planned, site) if record is not None else ([], [])
    removed = site.outline.in_order((*ways[0], *planned.removed))
    before = _cut(removed, old, planned, site, equal) if record is not None else None
    alike = {str(value.name): str(other.name) for value, other in equal.items()}
    uniform = {} if before is None else uniform_values(before, removed, site.constants)
    triangles = {} if before is None else triangular_values(before, removed, site.constants)
    repeating = {} if before is None else repeating_values(before, removed, site.constants)
    rewrite, nodes = commit(planned, site.outline, renewed)
    if excerpts:
        rewrite = dataclasses.replace(rewrite, before=drawn, after=_excerpt(nodes, site), lines=lines)
    if record is not None and before is not None:
        new = [renewed[value] for value in old]
        after = _cut([*ways[1], *nodes], new, planned, site, equal)
        results = tuple(zip(names, (str(value.name) for value in new), strict=True))
        record(Cutting(rewrite, before, after, results, alike, uniform, triangles, repeating))
    return rewrite


def _excerpt(nodes: Sequence[ir.Node], site: Site) -> Excerpt:
    return excerpt(nodes, site.constants.tensor, lambda node: PATTERN in node.metadata_props)


def _cut(
    nodes: Iterable[ir.Node], results: Sequence[ir.Value], planned: Plan, site: Site, equal: Mapping[ir.Value, ir.Value]
) -> ir.Model:
    def constant_of(value: ir.Value) -> ir.TensorProtocol | None:
        return value.const_value if value.is_initializer() and not value.is_graph_input() else site.constants.tensor(value)

    return cut(nodes, results, planned.graph, site.outline, constant_of, equal)


def _connecting_nodes(planned: Plan, site: Site) -> tuple[list[ir.Node], list[ir.Node]]:
    """The nodes that lead from the new operands to the old ones, and those from the old to the new.

    The replacement may read another form of a value than the match read, for example before a Transpose.
    """
    made = {output for node in planned.removed for output in node.outputs}
    old = {v for node in planned.removed for v in operands(node) if v not in made and site.constants.tensor(v) is None}
    new = {v for v in planned.fragment.read.values() if v not in made and site.constants.tensor(v) is None}
    graph = graph_around(planned.removed[0])
    forth = between(new, old, graph, site.constants.tensor)
    read = old | {v for node in forth for v in operands(node) if v in new}  # what the replaced nodes read, or what leads there
    back = between(read, new, graph, site.constants.tensor)
    return [n for n in forth if n not in planned.removed], site.outline.in_order(back)


def _equal(planned: Plan, site: Site) -> dict[ir.Value, ir.Value]:
    """The values that the rewrite removes or reads → an earlier value that always equals it."""
    made = [output for node in planned.removed for output in node.outputs]
    read = [value for node in planned.removed for value in operands(node)]
    return equal_values((*made, *read, *planned.fragment.read.values()), planned.graph, site.outline, site.constants)
