"""The places that a pattern is written from: of a mined unit, between two nodes, nodes by name, or a module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from onnx_subgraph.clock import Progress
from onnx_subgraph.errors import UsageError
from onnx_subgraph.language import spelling
from onnx_subgraph.language.library import Library
from onnx_subgraph.matching.view import View
from onnx_subgraph.mining.cluster import Kinds
from onnx_subgraph.mining.mine import Occurrence, mine
from onnx_subgraph.mining.place import Place
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.files import load
from onnx_subgraph.model.nested import reads
from onnx_subgraph.model.shapes import infer_shapes
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
        groups = [tuple(_node(view, name) for name in chosen.nodes)]
    else:
        groups = [_between(view, _node(view, chosen.first), _node(view, chosen.last))]
    found = [_occurrence(path, view, nodes) for nodes in groups]
    kinds = Kinds()
    clusters = [kinds.of(0, one.atoms, range(len(one.atoms))) for one in found]
    of_kind: dict[int, list[Occurrence]] = {}
    for one, cluster in zip(found, clusters, strict=True):
        aligned = tuple(one.atoms[i] for i in cluster.aligned)
        of_kind.setdefault(cluster.kind, []).append(Occurrence(path, aligned, one.place))
    first, *others = map(tuple, of_kind.values())
    return first, tuple(others)


def _occurrence(path: Path, view: View, nodes: Sequence[ir.Node]) -> Occurrence:
    wanted = frozenset(nodes)
    is_wanted: Callable[[ir.Node], bool] = wanted.__contains__
    place = Place(0, str(path), view, is_wanted, whole=True)
    if not place.atoms:
        raise UsageError("no formula can be written of these nodes", hint="choose nodes that compute floating-point values")
    return Occurrence(path, tuple(place.atoms), place)


def _node(view: View, name: str) -> ir.Node:
    named = {node.name: node for node in view.nodes if node.name}
    named |= {value.name: node for node in view.nodes for value in node.outputs if value.name and value.name not in named}
    if name not in named:
        hint = spelling.hint(name, sorted(map(str, named)), "`onnx-subgraph mine MODEL --json` names nodes")
        raise UsageError(f"the model has no node {name!r}", hint=hint)
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
