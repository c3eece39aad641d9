"""Choose which regions of a model become engines, and give the reasons for the others. `partition_model` works without files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from onnx_subgraph.backends.backend import Backend, label
from onnx_subgraph.engine.control import CONTROLLED
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.nested import bodies
from onnx_subgraph.operators import Schema, schema
from onnx_subgraph.partitioning.cut import cut
from onnx_subgraph.partitioning.support import Support
from onnx_subgraph.partitioning.work import likely_sizes
from onnx_subgraph.partitioning.worth import Cost, RegionLimits, cost, objection
from onnx_subgraph.regions.ground import Ground
from onnx_subgraph.regions.growing import regions_of
from onnx_subgraph.regions.region import Region, grow

Spot = tuple[str, int]
"""A region: the title of the backend, and the position of its first node in the original graph."""


@dataclass(frozen=True, slots=True)
class MadeEngine:
    """A region that became an engine.

    node: the engine's name. key: equal for equal regions. backend: the title of the backend. place: the position of the region's
    first node. replaces: the names of its nodes. operators: operator → number of nodes, the most frequent first.
    """

    node: str
    key: str
    backend: str
    place: int
    replaces: tuple[str, ...]
    operators: Mapping[str, int]
    cost: Cost

    @property
    def spot(self) -> Spot:
        """The key under which the region is refused if the engine fails."""
        return self.backend, self.place


@dataclass(frozen=True, slots=True)
class RefusedRegion:
    """A region that did not become an engine, and why. node: the name of its first node.

    failed: whether the backend failed to run it.
    """

    node: str
    reason: str
    cost: Cost
    failed: bool = False
    backend: str = ""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Nodes of one operator that a backend's regions can't contain, all for the same reason."""

    operator: str
    reason: str
    nodes: tuple[str, ...]
    backend: str = ""


@dataclass(frozen=True, slots=True)
class Partition:
    """A model with its engines, not verified, and the reasons against other engines."""

    model: ir.Model
    engines: tuple[MadeEngine, ...]
    refused: tuple[RefusedRegion, ...]
    unsupported: tuple[Unsupported, ...]

    @property
    def final(self) -> frozenset[str]:
        """The names of the nodes that compute the model's outputs."""
        nodes = (value.producer() for value in self.model.graph.outputs)
        return frozenset(node.name for node in nodes if node is not None and node.name)


def partition_model(
    model: ir.Model,
    backends: Backend | Sequence[Backend],
    limits: RegionLimits | None = None,
    refused: Mapping[Spot, str] | None = None,
    failed: Collection[Spot] = (),
    pattern: Pattern | None = None,
    results: Mapping[str, Collection[str]] | None = None,
) -> Partition:
    """Make engines from the regions of a model whose shapes are inferred. Changes `model`.

    backends: each gets the nodes that those before it left. refused: regions to leave unchanged, with the reason.
    failed: those of them that the backend failed to run.
    pattern: its regions become engines, as far as a backend supports them, instead of the largest supported ones; whether they
    are worth it is not checked.
    results: name of a backend → the values that its engines may compute; a backend that is not in it may compute all.
    Raises UsageError where a backend or the pattern's selector raises.
    """
    backends = (backends,) if isinstance(backends, Backend) else backends
    limits = limits or RegionLimits()
    sizes = likely_sizes(model, {}) | dict(limits.sizes)
    places = {node: place for place, node in enumerate(model.graph.all_nodes())}
    choice = _Choice(model, replace(limits, sizes=sizes), places, refused or {}, failed, pattern, results or {})
    for backend in backends:
        choice.give(backend)
    return Partition(model, tuple(choice.engines), tuple(choice.left), tuple(choice.unsupported(one.title for one in backends)))


@dataclass(slots=True)
class _Choice:
    """The state of the choice: the engines of all backends so far, and what was left.

    Fields as the arguments of `partition_model`.

    places: the original positions of the nodes. reasons: backend → node → why it does not support it.
    """

    model: ir.Model
    limits: RegionLimits
    places: Mapping[ir.Node, int]
    refused: Mapping[Spot, str]
    failed: Collection[Spot]
    pattern: Pattern | None
    results: Mapping[str, Collection[str]]
    engines: list[MadeEngine] = field(default_factory=list)
    left: list[RefusedRegion] = field(default_factory=list)
    reasons: dict[str, dict[ir.Node, str]] = field(default_factory=dict)

    def give(self, backend: Backend) -> None:
        """Make a backend's engines in the main graph and, if requested, in subgraphs that are in no region."""
        support = Support(self.model, backend, replace(self.limits, results=self.results.get(backend.name)))
        taken: list[tuple[Region, Cost]] = []
        graphs = [self.model.graph]
        while graphs:
            graph = graphs.pop(0)
            kept = self._kept(grow(graph, support) if self.pattern is None else _regions(self.model, self.pattern), support)
            taken += kept
            if self.limits.bodies and self.pattern is None:
                inside = {node for region, _ in kept for node in region.nodes}
                control = (node for node in graph if node not in inside and node.op_type in CONTROLLED and not node.domain)
                graphs += [body for node in control for body in bodies(node)]
        self.reasons[backend.title] = support.reasons
        nodes = cut(self.model, [region for region, _ in taken], backend.name)
        for node, (region, price) in zip(nodes, taken, strict=True):
            names, counts = tuple(_name(one) for one in region.nodes), Counter(label(one) for one in region.nodes)
            place = self.places.get(region.nodes[0], -1)
            self.engines.append(
                MadeEngine(node.name or "", node.overload, backend.title, place, names, dict(counts.most_common()), price)
            )

    def _kept(self, regions: Iterable[Region], support: Support) -> list[tuple[Region, Cost]]:
        """The regions that are worth an engine; for the others the reason is recorded."""
        backend, limits, kept = support.backend, self.limits, []
        gain = backend.gain if limits.gain is None else limits.gain
        for region in regions:
            first, price = region.nodes[0], cost(region, self.model, limits.sizes)
            spot = backend.title, self.places.get(first, -1)
            reason = self.refused.get(spot, "") or ("" if region.outputs else "nothing reads its results")
            reason = reason or (objection(price, limits, gain) if self.pattern is None else _unsupported(region, support))
            if reason:
                self.left.append(RefusedRegion(_name(first), reason, price, spot in self.failed, backend.title))
            else:
                kept.append((region, price))
        return kept

    def unsupported(self, names: Iterable[str]) -> Iterator[Unsupported]:
        """For each backend, why it does not support the nodes that ended in no engine."""
        here = {node for node in self.model.graph.all_nodes() if node in self.places}
        for name in names:
            groups: dict[tuple[str, str], list[str]] = {}
            for node, reason in self.reasons[name].items():
                if node in here:
                    groups.setdefault((label(node), reason), []).append(_name(node))
            yield from (Unsupported(*key, nodes=tuple(found), backend=name) for key, found in groups.items())


def _regions(model: ir.Model, pattern: Pattern) -> list[Region]:
    """The regions of the main graph that a pattern accepts."""

    def known(node: ir.Node) -> Schema | None:
        return schema(node.op_type, node.domain, model.opset_imports.get(node.domain, 1))

    found = regions_of(Ground(model.graph, Constants(model), known), pattern)
    return [grown.region for grown in found if grown.refusal is None]


def _unsupported(region: Region, support: Support) -> str:
    """Why the backend can't run all of a region; "" if it can."""
    wrong = [node for node in region.nodes if node.op_type != "Constant" and not support(node)]
    return f"{_name(wrong[0])} in it: {support.reasons[wrong[0]]}" if wrong else ""


def _name(node: ir.Node) -> str:
    return node.name or next((output.name for output in node.outputs if output.name), node.op_type)
