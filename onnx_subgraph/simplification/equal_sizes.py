"""Read a size that several nodes compute from the first of them.

Exporters compute the length of a sequence again in each layer, from another value. Masks and positions then depend on different
values, and nothing shows that they are the same in all layers.
"""

from __future__ import annotations

from collections.abc import Hashable

import onnx_ir as ir

from onnx_subgraph.model.nested import graph_around
from onnx_subgraph.model.shapes import SHAPE_DATA
from onnx_subgraph.model.surgery import remove


def read_once(graph: ir.Graph) -> int:
    """Let readers of equal sizes read the first value that holds them. Returns how many values lost their readers.

    If the first one is of int64 and a later one of int32, the later one becomes a Cast of the first. The elements that inference
    knows of integers must follow from the inputs (`proved_only`, `within_proved`).
    """
    first: dict[tuple[ir.DataType, Hashable], ir.Value] = {}
    unread = 0
    for node in tuple(graph):
        if node.graph is not graph:  # removed with a reader
            continue
        for output in node.outputs:
            elements = _elements(output)
            if elements is None or output.dtype is None:
                continue
            kept = _there(first.get((output.dtype, elements)), graph)
            wide = _there(first.get((ir.DataType.INT64, elements)), graph) if output.dtype == ir.DataType.INT32 else None
            is_read = bool(output.uses()) and not output.is_graph_output()
            if kept is None and wide is not None and is_read and not _is_cast(node, elements):
                kept = first[output.dtype, elements] = _narrowed(wide, output, node)
            if kept is None:
                first[output.dtype, elements] = output
            elif is_read:
                output.replace_all_uses_with(kept)
                remove(node)
                unread += 1
    return unread


def _there(value: ir.Value | None, graph: ir.Graph) -> ir.Value | None:
    """The value, if a node of the graph still computes it."""
    producer = None if value is None else value.producer()
    return None if producer is None or producer.graph is not graph else value


def _is_cast(node: ir.Node, elements: Hashable) -> bool:
    """Whether a node is a Cast of a value that holds these elements."""
    return node.op_type == "Cast" and node.inputs[0] is not None and _elements(node.inputs[0]) == elements


def _narrowed(wide: ir.Value, size: ir.Value, node: ir.Node) -> ir.Value:
    """A Cast of `wide` to int32 in front of `node`, which computes the equal `size`."""
    made = ir.node("Cast", [wide], {"to": ir.DataType.INT32}, metadata_props=dict(node.metadata_props))
    result = made.outputs[0]
    result.name, result.type, result.shape = f"{size.name}__cast", size.type, size.shape
    result.meta.update(size.meta)
    graph_around(node).insert_before(node, made)
    return result


def _elements(value: ir.Value) -> Hashable | None:
    """The shape and the elements of integers that depend on the inputs' sizes; None for other values."""
    data = value.meta.get(SHAPE_DATA)
    if data is None or value.shape is None or all(isinstance(d, int) for d in data):
        return None
    elements = tuple(d if isinstance(d, int) else d.value for d in data)
    return None if None in elements else (tuple(value.shape), elements)
