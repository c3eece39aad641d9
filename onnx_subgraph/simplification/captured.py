"""Weights that only one body of an If, Loop or Scan reads: they move into that body.

onnxruntime packs a weight once, when a session is opened, only if it is in the graph of the node that reads it. A captured weight
is packed in every run, and each run of the body hands it in.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_subgraph.model.nested import within


def move_captured_weights(model: ir.Model) -> int:
    """Move each initializer into the only body that reads it. Returns how many moved. Changes `model`.

    Graph inputs, graph outputs and external data stay.
    """
    moved = 0
    for graph in within(model.graph):  # outer graphs first, so that a weight moves all the way
        for value in [*graph.initializers.values()]:
            body = _reader(value, graph)
            if body is not None and value.name is not None:
                del graph.initializers[value.name]
                body.register_initializer(value)
                moved += 1
    return moved


def _reader(value: ir.Value, graph: ir.Graph) -> ir.Graph | None:
    """The only graph that reads a weight, if that is a body and the weight may move there."""
    if value.is_graph_input() or value.is_graph_output() or value.const_value is None:
        return None
    if isinstance(value.const_value, ir.ExternalTensor):
        return None
    graphs = {usage.node.graph for usage in value.uses()}
    only = next(iter(graphs)) if len(graphs) == 1 else None
    return only if isinstance(only, ir.Graph) and only is not graph else None
