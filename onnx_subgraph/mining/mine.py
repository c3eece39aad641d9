"""mine(): the subgraphs that models repeat and no pattern covers, ranked by what they cost."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from onnx_subgraph.clock import Clock, Progress
from onnx_subgraph.collection import uncollected
from onnx_subgraph.files.models import load
from onnx_subgraph.language.library import Library
from onnx_subgraph.mining.atom import Atom, Layout
from onnx_subgraph.mining.cluster import Cluster
from onnx_subgraph.mining.cover import views
from onnx_subgraph.mining.formula import Formula, Slot, formula_of
from onnx_subgraph.mining.merging import merged
from onnx_subgraph.mining.numbers import named
from onnx_subgraph.mining.place import Place
from onnx_subgraph.mining.traffic import Traffic
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.partitioning.work import likely_sizes
from onnx_subgraph.paths import StrPath


@dataclass(frozen=True, slots=True, eq=False)
class Occurrence:
    """A place where a unit stands. model: the file. atoms: aligned with those of the unit's other occurrences."""

    model: Path
    atoms: tuple[Atom, ...]
    place: Place

    @property
    def nodes(self) -> tuple[ir.Node, ...]:
        """Its nodes, in the order of the graph."""
        return tuple(sorted({n for a in self.atoms for n in a.nodes}, key=self.place.view.position.__getitem__))

    @property
    def leaving(self) -> tuple[ir.Value, ...]:
        """The results of its atoms that others read, in the order of the graph."""
        inside, results = set(self.nodes), {v for atom in self.atoms for v in atom.results}
        return tuple(v for node in self.nodes for v in node.outputs if v in results and self.place.leaves(v, inside))

    @property
    def in_order(self) -> tuple[Atom, ...]:
        """The atoms, each after what it reads."""
        return tuple(sorted(self.atoms, key=self.place.position.__getitem__))

    def microseconds(self, times: Mapping[str, float]) -> float:
        """What its nodes take, by the times of the nodes of its model (`timing.bench.time_nodes`)."""
        return sum(times.get(node.name or node.outputs[0].name or "", 0.0) for node in self.nodes)

    @property
    def name(self) -> str:
        """The name of its last node, by which a report calls the place."""
        last = self.nodes[-1]
        return last.name or last.outputs[0].name or ""


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """A subgraph and where it stands. nodes: of one occurrence. traffic: bytes that all its occurrences read and write.

    saved: those of them that one node in the place of each would not. share, saved_share: of the traffic of all models. key: the
    same for the same unit of any model. milliseconds: what its nodes take in a run of each model; None where it was not measured.
    """

    occurrences: tuple[Occurrence, ...]
    nodes: int
    traffic: int
    saved: int
    share: float
    saved_share: float
    key: str
    formula: Formula
    milliseconds: float | None = None

    @property
    def times(self) -> int:
        """How often it stands in the models."""
        return len(self.occurrences)


@dataclass(frozen=True, slots=True, eq=False)
class Mined:
    """What was mined. units: what costs most first. nodes: of all models; free: those that can be part of a unit.

    each: model → its nodes, and those of them that can be part of a unit. milliseconds: of all nodes in a run of each model; None
    where that was not measured.
    """

    models: tuple[Path, ...]
    units: tuple[Unit, ...]
    nodes: int
    free: int
    seconds: Mapping[str, float]
    each: Mapping[Path, tuple[int, int]]
    milliseconds: float | None = None


def mine(
    models: Sequence[StrPath],
    library: Library,
    progress: Progress | None = None,
    least: int = 1,
    failed: Callable[[Path, Exception], None] | None = None,
    profile: Callable[[Path], Mapping[str, float]] | None = None,
) -> Mined:
    """The units of models, what costs most first.

    least: the fewest occurrences that a unit has in all models together. A unit is convex and connected, and lies in one graph;
    no two overlap. What it costs is an estimate of the bytes that its nodes read and write; unknown sizes count as likely.
    failed: told of a model that can't be read and why; the others are mined. Without it, such a model raises ModelError.
    profile: gives the microseconds that each node of a model takes, by name; the units that take most time are then first.
    """
    clock = Clock(progress)
    places: list[Place] = []
    traffic: list[Traffic] = []
    taken: dict[str, Mapping[str, float]] = {}
    total = 0
    with uncollected():
        for path in map(Path, models):
            try:
                with clock.stage("load"):
                    model = load(path)
                    infer_shapes(model)
                with clock.stage("find"):
                    found = views(model, library)
                if profile is not None:
                    with clock.stage("profile"):
                        taken[str(path)] = profile(path)
            except Exception as error:
                if failed is None:
                    raise
                failed(path, error)
                continue
            here = Traffic(likely_sizes(model, {}))
            with clock.stage("mine"):
                for view, is_free in found:
                    places.append(Place(len(places), str(path), view, is_free))
                    traffic.append(here)
                    total += sum(map(here.of_node, view.nodes))
        with clock.stage("mine"):
            kinds = merged(places, lambda place, value: traffic[place.number].of_value(value))
            units = [_unit(clusters, places, traffic, total) for clusters in kinds if _is_unit(clusters[0], places)]
    if profile is not None:
        units = [replace(unit, milliseconds=_milliseconds(unit, taken)) for unit in units]
    ranked = sorted((u for u in units if u.times >= least), key=lambda unit: (-(unit.milliseconds or 0.0), -unit.saved))
    each: dict[Path, tuple[int, int]] = {}
    for place in places:
        nodes, free = each.get(Path(place.model), (0, 0))
        each[Path(place.model)] = (nodes + len(place.view.nodes), free + sum(len(atom.nodes) for atom in place.atoms))
    count, free = (sum(counts[number] for counts in each.values()) for number in (0, 1))
    whole = None if profile is None else sum(sum(times.values()) for times in taken.values()) / 1e3
    return Mined(tuple(map(Path, models)), tuple(ranked), count, free, clock.seconds, each, whole)


def _milliseconds(unit: Unit, taken: Mapping[str, Mapping[str, float]]) -> float:
    """What the nodes of a unit take, by the profiles of their models."""
    return sum(one.microseconds(taken[str(one.model)]) for one in unit.occurrences) / 1e3


def _part(some: int, whole: int) -> float:
    return some / whole if whole else 0.0


def generalised(found: Sequence[Occurrence], optional: Collection[Slot] = ()) -> Formula:
    """The formula of occurrences of one unit: numbers that differ have names, and what others read anywhere is a result.

    optional: the items of sums and products that are absent in some occurrences, numbered as in the first one. An atom without
    nodes is absent in its occurrence; its result is the value in its place.
    """
    first = found[0]
    order = [first.atoms.index(atom) for atom in first.in_order]
    names = named([one.atoms for one in found], order, optional)
    places = {place for one in found for place in _leaving(one)}
    leaving = [v for i in order for n, v in enumerate(first.atoms[i].results) if (i, n) in places]
    return formula_of(first.in_order, leaving, names, optional)


def _leaving(one: Occurrence) -> Iterator[tuple[int, int]]:
    """The results that others read, as (atom, number). A value in the place of an absent atom counts as its result."""
    atoms = sorted(enumerate(one.atoms), key=lambda pair: not pair[1].nodes)
    made = {value: (i, n) for i, atom in atoms for n, value in enumerate(atom.results)}
    return (made[value] for value in one.leaving)


def _is_unit(cluster: Cluster, places: Sequence[Place]) -> bool:
    """Whether a cluster has several nodes, and does more than move data."""
    atoms = [places[cluster.graph].atoms[i] for i in cluster.atoms]
    return sum(len(a.nodes) for a in atoms) > 1 and not all(isinstance(a.form, Layout) for a in atoms)


def _unit(clusters: Sequence[Cluster], places: Sequence[Place], traffic: Sequence[Traffic], total: int) -> Unit:
    found = []
    moved = saved = 0
    for cluster in clusters:
        place = places[cluster.graph]
        occurrence = Occurrence(Path(place.model), tuple(place.atoms[i] for i in cluster.aligned), place)
        found.append(occurrence)
        nodes, here = occurrence.nodes, traffic[cluster.graph]
        own = sum(map(here.of_node, nodes))
        inner = {v for a in occurrence.atoms for v in a.results}
        read = {o.value for a in occurrence.atoms for o in a.operands} - inner
        moved += own
        saved += max(0, own - here.of_values((*read, *occurrence.leaving)))
    first = found[0]
    formula = generalised(found)
    key = hashlib.blake2b(formula.sketch.encode(), digest_size=6).hexdigest()
    return Unit(tuple(found), len(first.nodes), moved, saved, _part(moved, total), _part(saved, total), key, formula)
