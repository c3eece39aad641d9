"""Which regions of a model become engines, and what is said of the others: `partition_model`, which knows no files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from onnx_subgraph.backends.backend import Backend, label
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.operators import Schema, schema
from onnx_subgraph.partitioning.cut import cut
from onnx_subgraph.partitioning.support import Support
from onnx_subgraph.partitioning.work import likely_sizes
from onnx_subgraph.partitioning.worth import Cost, RegionLimits, cost, objection
from onnx_subgraph.regions.ground import Ground
from onnx_subgraph.regions.growing import regions_of
from onnx_subgraph.regions.region import Region, grow


@dataclass(frozen=True, slots=True)
class MadeEngine:
    """A region that became an engine.

    node: the engine's name. key: equal for equal regions. place: the position of the region's first node. replaces: the names
    of its nodes. operators: operator → how many of them, the most frequent first.
    """

    node: str
    key: str
    place: int
    replaces: tuple[str, ...]
    operators: Mapping[str, int]
    cost: Cost


@dataclass(frozen=True, slots=True)
class RefusedRegion:
    """A region that was left as it is, and why. node: the name of its first node. failed: its backend did not run it."""

    node: str
    reason: str
    cost: Cost
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Nodes of one operator that can't be in a region for the same reason."""

    operator: str
    reason: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """A model with its engines, not verified, and why there are no others."""

    model: ir.Model
    engines: tuple[MadeEngine, ...]
    refused: tuple[RefusedRegion, ...]
    unsupported: tuple[Unsupported, ...]


def partition_model(
    model: ir.Model,
    backend: Backend,
    limits: RegionLimits | None = None,
    refused: Mapping[int, str] | None = None,
    failed: Collection[int] = (),
    pattern: Pattern | None = None,
) -> Partition:
    """Make engines of the regions of a model whose shapes are inferred. Changes `model`.

    refused: the position of a region's first node → why the region shall be left as it is, whatever its backend says.
    failed: those of them that the backend did not run. pattern: whose regions become engines, as far as the backend supports
    them, in place of those that are as large as can be; that they are worth it is its own business.
    Raises UsageError where the backend fails over a question, or the selector of the pattern.
    """
    limits = limits or RegionLimits()
    gain = backend.gain if limits.gain is None else limits.gain
    sizes = likely_sizes(model, {}) | dict(limits.sizes)
    support = Support(model, backend, limits)
    places = {node: place for place, node in enumerate(model.graph)}
    left: list[RefusedRegion] = []
    taken: list[tuple[Region, Cost]] = []
    for region in grow(model.graph, support) if pattern is None else _regions(model, pattern):
        first, price = region.nodes[0], cost(region, model, sizes)
        reason = (refused or {}).get(places[first], "")
        reason = reason or (objection(price, limits, gain) if pattern is None else _unsupported(region, support))
        if reason:
            left.append(RefusedRegion(_name(first), reason, price, places[first] in failed))
        else:
            taken.append((region, price))
    unsupported: dict[tuple[str, str], list[str]] = {}
    for node, reason in support.reasons.items():
        unsupported.setdefault((label(node), reason), []).append(_name(node))
    replaced = [tuple(_name(node) for node in region.nodes) for region, _ in taken]
    operators = [dict(Counter(label(node) for node in region.nodes).most_common()) for region, _ in taken]
    nodes = cut(model, [region for region, _ in taken], backend.name)
    engines = tuple(
        MadeEngine(node.name or "", node.overload, places[region.nodes[0]], names, counts, price)
        for node, (region, price), names, counts in zip(nodes, taken, replaced, operators, strict=True)
    )
    return Partition(
        model, engines, tuple(left), tuple(Unsupported(*key, nodes=tuple(found)) for key, found in unsupported.items())
    )


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
