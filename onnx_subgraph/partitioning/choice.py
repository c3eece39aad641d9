"""Which regions of a model become engines, and what is said of the others: `partition_model`, which knows no files."""

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
"""A region: the title of the backend, and the position of its first node in the graph as it was given."""


@dataclass(frozen=True, slots=True)
class MadeEngine:
    """A region that became an engine.

    node: the engine's name. key: equal for equal regions. backend: who runs it. place: the position of the region's first node.
    replaces: the names of its nodes. operators: operator → how many of them, the most frequent first.
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
        """What is refused where it fails."""
        return self.backend, self.place


@dataclass(frozen=True, slots=True)
class RefusedRegion:
    """A region that a backend was not given, and why. node: the name of its first node. failed: the backend did not run it."""

    node: str
    reason: str
    cost: Cost
    failed: bool = False
    backend: str = ""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Nodes of one operator that can't be in a region of a backend for the same reason."""

    operator: str
    reason: str
    nodes: tuple[str, ...]
    backend: str = ""


@dataclass(frozen=True, slots=True)
class Partition:
    """A model with its engines, not verified, and why there are no others."""

    model: ir.Model
    engines: tuple[MadeEngine, ...]
    refused: tuple[RefusedRegion, ...]
    unsupported: tuple[Unsupported, ...]


def partition_model(
    model: ir.Model,
    backends: Backend | Sequence[Backend],
    limits: RegionLimits | None = None,
    refused: Mapping[Spot, str] | None = None,
    failed: Collection[Spot] = (),
    pattern: Pattern | None = None,
) -> Partition:
    """Make engines of the regions of a model whose shapes are inferred. Changes `model`.

    backends: asked in this order, each about what those before it have left. refused: why a region shall be left as it is,
    whatever its backend says. failed: those of them that the backend did not run. pattern: whose regions become engines, as far
    as a backend supports them, in place of those that are as large as can be; that they are worth it is its own business.
    Raises UsageError where a backend fails over a question, or the selector of the pattern.
    """
    backends = (backends,) if isinstance(backends, Backend) else backends
    limits = limits or RegionLimits()
    sizes = likely_sizes(model, {}) | dict(limits.sizes)
    places = {node: place for place, node in enumerate(model.graph.all_nodes())}
    choice = _Choice(model, replace(limits, sizes=sizes), places, refused or {}, failed, pattern)
    for backend in backends:
        choice.give(backend)
    return Partition(model, tuple(choice.engines), tuple(choice.left), tuple(choice.unsupported(one.title for one in backends)))


@dataclass(slots=True)
class _Choice:
    """What backends were given, one after the other, and what was left. The fields are as the arguments of `partition_model`.

    places: the positions of the nodes before any was given away. reasons: by backend, what it has against a node.
    """

    model: ir.Model
    limits: RegionLimits
    places: Mapping[ir.Node, int]
    refused: Mapping[Spot, str]
    failed: Collection[Spot]
    pattern: Pattern | None
    engines: list[MadeEngine] = field(default_factory=list)
    left: list[RefusedRegion] = field(default_factory=list)
    reasons: dict[str, dict[ir.Node, str]] = field(default_factory=dict)

    def give(self, backend: Backend) -> None:
        """Give a backend its regions of what is there: of the main graph, and where that is asked for of bodies in no region."""
        support = Support(self.model, backend, self.limits)
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
        """Those of the regions that are worth an engine; of the others it is noted why not."""
        backend, limits, kept = support.backend, self.limits, []
        gain = backend.gain if limits.gain is None else limits.gain
        for region in regions:
            first, price = region.nodes[0], cost(region, self.model, limits.sizes)
            spot = backend.title, self.places.get(first, -1)
            reason = self.refused.get(spot, "")
            reason = reason or (objection(price, limits, gain) if self.pattern is None else _unsupported(region, support))
            if reason:
                self.left.append(RefusedRegion(_name(first), reason, price, spot in self.failed, backend.title))
            else:
                kept.append((region, price))
        return kept

    def unsupported(self, names: Iterable[str]) -> Iterator[Unsupported]:
        """What each backend has against the nodes that are in no engine in the end."""
        here = {node for node in self.model.graph.all_nodes() if node in self.places}
        for name in names:
            groups: dict[tuple[str, str], list[str]] = {}
            for node, reason in self.reasons[name].items():
                if node in here:
                    groups.setdefault((label(node), reason), []).append(_name(node))
            yield from (Unsupported(*key, nodes=tuple(found), backend=name) for key, found in groups.items())


def _regions(model: ir.Model, pattern: Pattern) -> list[Region]:
    """The regions of the main graph that a pattern keeps."""

    def known(node: ir.Node) -> Schema | None:
        return schema(node.op_type, node.domain, model.opset_imports.get(node.domain, 1))

    found = regions_of(Ground(model.graph, Constants(model), known), pattern)
    return [grown.region for grown in found if grown.refusal is None]


def _unsupported(region: Region, support: Support) -> str:
    """What keeps the backend from running all of a region; "" where nothing does."""
    wrong = [node for node in region.nodes if node.op_type != "Constant" and not support(node)]
    return f"{_name(wrong[0])} in it: {support.reasons[wrong[0]]}" if wrong else ""


def _name(node: ir.Node) -> str:
    return node.name or next((output.name for output in node.outputs if output.name), node.op_type)
