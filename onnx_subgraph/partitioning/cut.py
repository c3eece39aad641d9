"""Replace a region of a graph by one engine operator.

The region becomes the operator's definition. Equal layers of a network, which differ only in their weights, share one definition.
Constants that are not embedded in the definition stay in the model, as inputs of the operator.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from onnx_subgraph.backends.subgraph import constant
from onnx_subgraph.emitting.enclosure import enclosed, put_in_place
from onnx_subgraph.engine.operator import IR_VERSION, definition, engine_node
from onnx_subgraph.model.dimension_names import restored
from onnx_subgraph.model.local_functions import called
from onnx_subgraph.model.shapes import DECLARED
from onnx_subgraph.operators.names import ENGINE, OWN_DOMAIN
from onnx_subgraph.partitioning.kept import keep
from onnx_subgraph.regions.region import Region
from onnx_subgraph.rewriting.outline import Outline, shared_path


def cut(model: ir.Model, regions: Iterable[Region], backend: str) -> tuple[ir.Node, ...]:
    """Replace regions by engine operators for `backend`, one each. Changes `model` in place.

    It must be possible to replace all regions of a graph together, and every value that crosses a border must be a tensor of
    known dtype.
    """
    outline = Outline(model)
    regions = tuple(regions)
    graphs = dict.fromkeys(region.graph for region in regions)
    positions = {node: place for graph in graphs for place, node in enumerate(graph)}
    engines = tuple(_replaced(model, region, backend, positions, outline) for region in regions)
    if engines:
        model.opset_imports.setdefault(OWN_DOMAIN, 1)
        model.ir_version = max(model.ir_version, IR_VERSION)
        for graph in graphs:
            graph.sort()
    return engines


def _replaced(model: ir.Model, region: Region, backend: str, positions: dict[ir.Node, int], outline: Outline) -> ir.Node:
    region = Region.of(region.graph, region.nodes)  # recompute: its inputs may be results of an engine by now
    inner = enclosed(region, model.opset_imports, constant)
    functions = called(region.nodes, model.functions)
    for domain, version in (item for function in functions for item in function.opset_imports.items()):
        inner.graph.opset_imports.setdefault(domain, version)
    inner.graph.name = ENGINE
    _without_foreign_symbols(inner.graph)
    function = definition(inner.graph, functions)
    function = model.functions.setdefault(function.identifier(), function)
    engine = engine_node(function, inner.arguments, backend, [positions[node] for node in region.nodes])
    engine.name = outline.fresh(f"{shared_path([node.name or '' for node in region.nodes])}{ENGINE}")
    keep(engine, inner.nodes)
    put_in_place(engine, region, inner.nodes)
    for old, new in zip(region.outputs, engine.outputs, strict=True):
        # Shape inference can't look into an engine, so declare the known types and shapes of its results.
        here = (new.type, _without_expressions(new.shape))
        new.meta[DECLARED] = old.meta.get(DECLARED, here) if new.is_graph_output() else here
    _drop_unread(inner.baked)
    return engine


def _without_foreign_symbols(graph: ir.Graph) -> None:
    """Remove output dimensions whose symbols do not occur in the inputs; they mean nothing outside the original model."""
    symbols = {dim.value for value in graph.inputs for dim in value.shape or () if isinstance(dim, ir.SymbolicDim)}
    for value in graph.outputs:
        if value.shape is not None:
            value.shape = ir.Shape(d if isinstance(d, int) or d.value in symbols else ir.SymbolicDim(None) for d in value.shape)


def _without_expressions(shape: ir.Shape | None) -> ir.Shape | None:
    """The shape with names for symbolic dimensions; those computed from others become unknown."""
    if shape is None:
        return None
    named = (d if isinstance(d, int) or (d.value or "").isidentifier() else ir.SymbolicDim(None) for d in shape)
    return restored(ir.Shape(named))


def _drop_unread(values: Iterable[ir.Value]) -> None:
    """Remove constants that only the replaced nodes read."""
    for value in values:
        graph, producer = value.graph, value.producer()
        if graph is None or value.uses() or value.is_graph_output():
            continue
        if producer is not None:
            graph.remove(producer)
        elif value.name is not None and graph.initializers.get(value.name) is value:
            graph.initializers.pop(value.name)
