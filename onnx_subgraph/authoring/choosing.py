"""The places that a pattern is written from: of a mined unit, between two nodes, nodes by name, or a module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from onnx_subgraph.clock import Progress
from onnx_subgraph.errors import UsageError
from onnx_subgraph.files.models import load
from onnx_subgraph.language import spelling
from onnx_subgraph.language.library import Library
from onnx_subgraph.matching.origin import label
from onnx_subgraph.matching.view import View
from onnx_subgraph.mining.atom import Atom
from onnx_subgraph.mining.cluster import Kinds
from onnx_subgraph.mining.mine import Occurrence, mine
from onnx_subgraph.mining.obstacle import obstacle
from onnx_subgraph.mining.place import Place
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.nested import reads
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.operators.names import operator_of
from onnx_subgraph.regions.marks import modules


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a pattern is to be written of; one of these is given.

    mined: the rank of a unit among what `mine` finds. first, last: names of nodes, with all that lies between them. nodes: names
    of nodes. module: the path of a module that the exporter recorded, in which `*` stands for any part of a name.
    """

    mined: int = 0
    first: str = ""
    last: str = ""
    nodes: tuple[str, ...] = ()
    module: str = ""


_MOST_NAMED = 3
"""Nodes that an error names, with the reason for each."""
Group = tuple[Occurrence, ...]
"""Places of one unit, their atoms aligned."""


def occurrences(
    models: Sequence[Path], chosen: Chosen, library: Library, progress: Progress | None
) -> tuple[Group, tuple[Group, ...]]:
    """The places that were chosen, all of one unit; and the groups of others beside them, which may be of the same formula.

    Raises UsageError where there are none.
    """
    if chosen.mined:
        units = mine(models, library, progress).units
        if chosen.mined > len(units):
            few = f"{len(units)} unit{'s were' if len(units) > 1 else ' was'} mined" if units else "nothing was mined"
            raise UsageError(f"{few}, and no rank {chosen.mined}", hint="onnx-subgraph mine lists them")
        unit = units[chosen.mined - 1]
        return unit.occurrences, tuple(other.occurrences for other in units if other is not unit)
    (path,) = models[:1]
    model = load(path)
    infer_shapes(model)
    view = View(model.graph, Constants(model), dict(model.graph.opset_imports), model.graph)
    if chosen.module:
        groups = [region.nodes for region in modules(model.graph, chosen.module).values()]
    elif chosen.nodes:
        groups = [tuple(_node(path, view, name) for name in chosen.nodes)]
    else:
        groups = [_between(view, _node(path, view, chosen.first), _node(path, view, chosen.last))]
    found = [_occurrence(path, view, nodes, whole=not chosen.module) for nodes in groups]
    kinds = Kinds()
    clusters = [kinds.of(0, one.atoms, range(len(one.atoms))) for one in found]
    of_kind: dict[int, list[Occurrence]] = {}
    for one, cluster in zip(found, clusters, strict=True):
        aligned = tuple(one.atoms[i] for i in cluster.aligned)
        of_kind.setdefault(cluster.kind, []).append(Occurrence(path, aligned, one.place))
    first, *others = map(tuple, of_kind.values())
    return first, tuple(others)


def _occurrence(path: Path, view: View, nodes: Sequence[ir.Node], *, whole: bool) -> Occurrence:
    """The place of these nodes. whole: whether each of them must be a part of the formula.

    Raises UsageError where one is not that must, or where none is.
    """
    wanted = frozenset(nodes)
    is_wanted: Callable[[ir.Node], bool] = wanted.__contains__
    place = Place(0, str(path), view, is_wanted, whole=True)
    if not place.atoms:
        raise UsageError("no formula can be written of these nodes", hint="choose nodes that compute floating-point values")
    out = _left_out(place, wanted) if whole else []
    if out:
        reasons = [f"{label(node)} ({operator_of(node)}): {_obstacle(view, node)}" for node in out[:_MOST_NAMED]]
        more = f"; and {len(out) - _MOST_NAMED} more" if len(out) > _MOST_NAMED else ""
        hint = "choose nodes without them, or write these nodes into a pattern by hand"
        raise UsageError(f"not all of these nodes can be written as a formula: {'; '.join(reasons)}{more}", hint=hint)
    if whole and not _are_joined(place.atoms):
        hint = "choose nodes that read one another or the same value, or write a pattern of each part"
        raise UsageError("no value leads from some of these nodes to the others, so no search finds them together", hint=hint)
    return Occurrence(path, tuple(place.atoms), place)


def _are_joined(atoms: Sequence[Atom]) -> bool:
    """Whether values that several atoms read or compute lead from each of them to all others."""
    joined, *apart = [{*(operand.value for operand in atom.operands), *atom.results} for atom in atoms]
    while near := [values for values in apart if not joined.isdisjoint(values)]:
        apart = [values for values in apart if joined.isdisjoint(values)]
        joined = joined.union(*near)
    return not apart


def _left_out(place: Place, wanted: frozenset[ir.Node]) -> list[ir.Node]:
    """The wanted nodes that the formula does not say: it reads their results as inputs, or nothing that it says needs them.

    It does say sizes that are computed for a node in it, constants, and what changes nothing.
    """
    view, said = place.view, {node for atom in place.atoms for node in atom.nodes}
    inputs = {operand.value for atom in place.atoms for operand in atom.operands}
    out = []
    for node in (n for n in reversed(view.nodes) if n in wanted and n not in said):
        results = [value for value in node.outputs if value.name]
        if inputs.isdisjoint(results) and any(usage.node in said for value in results for usage in value.uses()):
            said.add(node)
        elif not (place.is_transparent(node) or all(map(view.constants.is_constant, results))):
            out.append(node)
    return out[::-1]


def _obstacle(view: View, node: ir.Node) -> str:
    return obstacle(view, node) or "an attribute or a size of it can't be written"


def _node(path: Path, view: View, name: str) -> ir.Node:
    named = {node.name: node for node in view.nodes if node.name}
    named |= {value.name: node for node in view.nodes for value in node.outputs if value.name and value.name not in named}
    if name not in named:
        hint = spelling.hint(name, sorted(map(str, named)), "`onnx-subgraph mine MODEL --json` names nodes")
        raise UsageError(f"{path} has no node {name!r}", hint=hint)
    return named[name]


def _between(view: View, first: ir.Node, last: ir.Node) -> tuple[ir.Node, ...]:
    """The nodes that depend on the first one and that the last one needs, both included."""
    after, before = {first}, {last}
    for node in view.nodes:
        if any(v.producer() in after for v in reads(node)):
            after.add(node)
    for node in reversed(view.nodes):
        if node in before:
            before.update(p for v in reads(node) if (p := view.producer(v)) is not None)
    nodes = tuple(node for node in view.nodes if node in after and node in before)
    if not nodes:
        raise UsageError(
            f"{last.name} does not depend on {first.name}", hint="name the first node under --from, the last under --to"
        )
    return nodes
