"""A region of a graph becomes one engine operator.

The definition is written in names of its own, so that the equal layers of a network, which differ in their weights alone, have
one definition. Small constants belong to it; larger ones are inputs, and stay where they are in the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import onnx_ir as ir

from onnx_subgraph.backends.subgraph import constant
from onnx_subgraph.engine.operator import DOMAIN, IR_VERSION, OP_TYPE, definition, engine_node
from onnx_subgraph.matching.region import Region
from onnx_subgraph.model.nested import bodies
from onnx_subgraph.model.shapes import DECLARED
from onnx_subgraph.rewriting.apply import REPLACES
from onnx_subgraph.rewriting.outline import Outline, shared_path

SMALL = 1 << 10
"""Integer constants of as many bytes, and single numbers of any type, belong to the definition: shapes, axes, indices."""


def cut(model: ir.Model, regions: Iterable[Region], backend: str) -> tuple[ir.Node, ...]:
    """Replace regions of the main graph by engine operators for `backend`, one each. Changes `model` in place.

    The regions can all be replaced together, and whatever crosses their borders is a tensor of a known dtype.
    """
    outline = Outline(model)
    positions = {node: place for place, node in enumerate(model.graph)}
    engines = tuple(_replaced(model, region, backend, positions, outline) for region in regions)
    if engines:
        model.opset_imports.setdefault(DOMAIN, 1)
        model.ir_version = max(model.ir_version, IR_VERSION)
        model.graph.sort()
    return engines


def _replaced(model: ir.Model, region: Region, backend: str, positions: dict[ir.Node, int], outline: Outline) -> ir.Node:
    region = Region.of(model.graph, region.nodes)  # its inputs may be results of an engine by now
    inner = [value for value in region.inputs if _belongs_inside(value)]
    weights = [value for value in region.inputs if constant(value) is not None and value not in inner]
    flowing = [value for value in region.inputs if constant(value) is None]
    inputs = [*flowing, *weights]
    graph = _body(model, region, inputs, inner)
    function = definition(graph, _called(region.nodes, model))
    function = model.functions.setdefault(function.identifier(), function)
    engine = engine_node(function, inputs, backend, [positions[node] for node in region.nodes])
    names = [node.name or "" for node in region.nodes]
    engine.name = outline.fresh(f"{shared_path(names)}{OP_TYPE}")
    engine.metadata_props[REPLACES] = json.dumps(names, ensure_ascii=False)
    for inner_node in (n for node in region.nodes for body in bodies(node) for n in body.all_nodes()):
        for index in range(len(inner_node.inputs)):
            inner_node.replace_input_with(index, None)
    ir.convenience.replace_nodes_and_values(model.graph, region.nodes[-1], region.nodes, [engine], region.outputs, engine.outputs)
    for old, new in zip(region.outputs, engine.outputs, strict=True):
        new.metadata_props.update(old.metadata_props)
        new.doc_string = old.doc_string
        # Shape inference does not see through an engine: what it knows of the results is declared.
        new.meta[DECLARED] = old.meta[DECLARED] if new.is_graph_output() else (new.type, _without_expressions(new.shape))
    _drop_unread(model.graph, inner)
    return engine


def _without_expressions(shape: ir.Shape | None) -> ir.Shape | None:
    """The shape with names for its symbolic dimensions, and none for those that are computed from others."""
    if shape is None:
        return None
    named = (d if isinstance(d, int) or (d.value or "").isidentifier() else ir.SymbolicDim(None) for d in shape)
    return ir.Shape(named)


def _belongs_inside(value: ir.Value) -> bool:
    tensor = constant(value)
    if tensor is None or tensor.dtype == ir.DataType.STRING:
        return False
    return tensor.size == 1 or (tensor.nbytes <= SMALL and tensor.dtype.is_integer())


def _body(model: ir.Model, region: Region, inputs: Sequence[ir.Value], inner: Sequence[ir.Value]) -> ir.Graph:
    """A copy of a region as a graph of its own, in names of its own, with a Constant node for each of `inner`."""
    graph = ir.GraphView([*inputs, *inner], region.outputs, nodes=region.nodes, opset_imports=dict(model.opset_imports)).clone()
    stand_ins = list(graph.inputs)[len(inputs) :]
    del graph.inputs[len(inputs) :]
    constants = []
    for stand_in, value in zip(stand_ins, inner, strict=True):
        tensor = constant(value)
        assert tensor is not None
        node = ir.node("Constant", [], {"value": ir.Tensor(tensor.numpy(), dtype=tensor.dtype)})
        stand_in.replace_all_uses_with(node.outputs[0])
        constants.append(node)
    for first in list(graph)[:1]:
        graph.insert_before(first, constants)
    for value in graph.inputs:
        value.const_value = None  # before it is renamed: the tensor is that of the model
    _name_anew(graph)
    symbols = {dim.value for value in graph.inputs for dim in value.shape or () if isinstance(dim, ir.SymbolicDim)}
    for value in graph.outputs:  # what is not a size of the inputs says nothing to those who only see the region
        if value.shape is not None:
            value.shape = ir.Shape(d if isinstance(d, int) or d.value in symbols else ir.SymbolicDim(None) for d in value.shape)
    return graph


def _name_anew(graph: ir.Graph) -> None:
    """Names that depend on the structure alone, and nothing that was noted on nodes and values."""
    taken = {name for node in graph for body in bodies(node) for name in _names(body)}

    def name(value: ir.Value | ir.Node, stem: str) -> None:
        value.name = stem if stem not in taken else f"{stem}_"
        while value.name in taken:
            value.name += "_"
        value.doc_string = None
        value.metadata_props.clear()
        value.meta.clear()

    graph.name, graph.doc_string = OP_TYPE, None
    for index, value in enumerate(graph.inputs):
        name(value, f"input_{index}")
    results = {value: index for index, value in enumerate(graph.outputs)}
    for index, node in enumerate(graph):
        name(node, f"{node.op_type}_{index}")
        for place, output in enumerate(node.outputs):
            if output in results:
                name(output, f"output_{results[output]}")
                continue
            output.type = output.shape = None
            if output.name:
                name(output, f"{node.op_type}_{index}_{place}")


def _names(graph: ir.Graph) -> set[str]:
    found = {str(value.name) for value in graph.inputs} | set(graph.initializers)
    for node in graph.all_nodes():
        found.update(str(value.name) for value in node.outputs)
        for body in bodies(node):
            found.update(str(value.name) for value in body.inputs)
            found.update(body.initializers)
    return found


def _called(nodes: Iterable[ir.Node], model: ir.Model) -> list[ir.Function]:
    """The model-local functions that these nodes call, and those that they call."""
    found: dict[ir.OperatorIdentifier, ir.Function] = {}
    queue = [inner for node in nodes for inner in (node, *(n for body in bodies(node) for n in body.all_nodes()))]
    while queue:
        function = model.functions.get(queue.pop().op_identifier())
        if function is not None and function.identifier() not in found:
            found[function.identifier()] = function
            queue += function.all_nodes()
    return [found[identifier] for identifier in sorted(found)]


def _drop_unread(graph: ir.Graph, values: Iterable[ir.Value]) -> None:
    """Remove constants that only the replaced nodes read."""
    for value in values:
        if value.uses() or value.is_graph_output():
            continue
        producer = value.producer()
        if producer is not None:
            graph.remove(producer)
        elif value.name is not None and graph.initializers.get(value.name) is value:
            graph.initializers.pop(value.name)
