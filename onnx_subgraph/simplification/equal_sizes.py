"""Read a size that several nodes compute from the first of them.

Exporters compute the length of a sequence again in each layer, from another value. Masks and positions then depend on different
values, and nothing shows that they are the same in all layers.
"""

from __future__ import annotations

from collections.abc import Hashable

import onnx_ir as ir

from onnx_subgraph.model.shapes import SHAPE_DATA
from onnx_subgraph.model.surgery import remove


def read_once(graph: ir.Graph) -> int:
    """Let readers of equal sizes read the first value that holds them. Returns how many values lost their readers.

    The elements that inference knows of integers must follow from the inputs (`proved_only`). Not for bodies of a Loop, where a
    dimension may have another size in each iteration.
    """
    first: dict[Hashable, ir.Value] = {}
    unread = 0
    for node in tuple(graph):
        if node.graph is not graph:  # removed with a reader
            continue
        for output in node.outputs:
            key = _elements(output)
            if key is None:
                continue
            kept = first.get(key)
            producer = None if kept is None else kept.producer()
            if kept is None or producer is None or producer.graph is not graph:
                first[key] = output
            elif output.uses() and not output.is_graph_output():
                output.replace_all_uses_with(kept)
                remove(node)
                unread += 1
    return unread


def _elements(value: ir.Value) -> Hashable | None:
    """The type, the shape and the elements of integers that depend on the inputs' sizes; None for other values."""
    data = value.meta.get(SHAPE_DATA)
    if data is None or value.shape is None or value.dtype is None or all(isinstance(d, int) for d in data):
        return None
    elements = tuple(d if isinstance(d, int) else d.value for d in data)
    return None if None in elements else (value.dtype, tuple(value.shape), elements)
