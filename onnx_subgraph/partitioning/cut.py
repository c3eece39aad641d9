"""A region of a graph becomes one engine operator.

Its definition is the region enclosed, so that the equal layers of a network, which differ in their weights alone, have one
definition. What is not baked into it stays where it is in the model, and is read.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from onnx_subgraph.backends.subgraph import constant
from onnx_subgraph.engine.operator import IR_VERSION, definition, engine_node
from onnx_subgraph.model.dimension_names import restored
from onnx_subgraph.model.local_functions import called
from onnx_subgraph.model.shapes import DECLARED
from onnx_subgraph.operators.names import ENGINE, OWN_DOMAIN
from onnx_subgraph.regions.region import Region
from onnx_subgraph.rewriting.enclosure import enclosed, put_in_place
from onnx_subgraph.rewriting.outline import Outline, shared_path


def cut(model: ir.Model, regions: Iterable[Region], backend: str) -> tuple[ir.Node, ...]:
    """Replace regions by engine operators for `backend`, one each. Changes `model` in place.

    The regions of a graph can all be replaced together, and whatever crosses their borders is a tensor of a known dtype.
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
    region = Region.of(region.graph, region.nodes)  # its inputs may be results of an engine by now
    inner = enclosed(region, model.opset_imports, constant)
    functions = called(region.nodes, model.functions)
    for domain, version in (item for function in functions for item in function.opset_imports.items()):
        inner.graph.opset_imports.setdefault(domain, version)
    inner.graph.name = ENGINE
    _without_strange_sizes(inner.graph)
    function = definition(inner.graph, functions)
    function = model.functions.setdefault(function.identifier(), function)
    engine = engine_node(function, inner.arguments, backend, [positions[node] for node in region.nodes])
    engine.name = outline.fresh(f"{shared_path([node.name or '' for node in region.nodes])}{ENGINE}")
    put_in_place(engine, region, inner.nodes)
    for old, new in zip(region.outputs, engine.outputs, strict=True):
        # Shape inference does not see through an engine: what it knows of the results is declared.
        here = (new.type, _without_expressions(new.shape))
        new.meta[DECLARED] = old.meta.get(DECLARED, here) if new.is_graph_output() else here
    _drop_unread(inner.baked)
    return engine


def _without_strange_sizes(graph: ir.Graph) -> None:
    """Forget the sizes of outputs that are no sizes of the inputs: they say nothing to those who only see the region."""
    symbols = {dim.value for value in graph.inputs for dim in value.shape or () if isinstance(dim, ir.SymbolicDim)}
    for value in graph.outputs:
        if value.shape is not None:
            value.shape = ir.Shape(d if isinstance(d, int) or d.value in symbols else ir.SymbolicDim(None) for d in value.shape)


def _without_expressions(shape: ir.Shape | None) -> ir.Shape | None:
    """The shape with names for its symbolic dimensions, and none for those that are computed from others."""
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
