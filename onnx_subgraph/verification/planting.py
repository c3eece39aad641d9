"""Plant errors in a model, to learn whether a check would show them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.nested import within
from onnx_subgraph.model.shapes import copied

STATED = 1e-3
"""The relative error that must be seen at every fusion …"""
UNITS = 2.0
"""… or this many units in the last place, if that is more."""

_FLOATS = {
    ir.DataType.DOUBLE: 2.0**-52,
    ir.DataType.FLOAT: 2.0**-23,
    ir.DataType.FLOAT16: 2.0**-10,
    ir.DataType.BFLOAT16: 2.0**-7,
}


def planted(model: ir.Model, names: Collection[str], error: float | None = None) -> ir.Model | None:
    """A copy in which the values of these names have a relative error; None where none of them can be changed.

    error: the relative error; None for the one that must be seen. Integers are increased by one, booleans are inverted.
    """
    copy = copied(model)
    roots = (copy.graph, *(function.graph for function in copy.functions.values()))
    graphs = [graph for root in roots for graph in within(root)]
    found = [(graph, v) for graph in graphs for node in graph for v in node.outputs if v.name in names]
    changed = [plant(graph, value, error) for graph, value in found]
    return copy if any(changed) else None


def plant(graph: ir.Graph, value: ir.Value, error: float | None, *, within: bool = False) -> bool:
    """Change a value of `graph` for all its readers. Returns whether that was possible.

    within: the graph stands alone, and its outputs keep their names.
    """
    producer, change = value.producer(), _change(value, error)
    if producer is None or value.dtype is None or not change:
        return False
    result, name = change[-1].outputs[0], value.name
    result.dtype, result.shape = value.dtype, value.shape
    for number, node in enumerate(change):
        node.outputs[0].name = f"{name}__planted_{number}"
    uses = list(value.uses())
    graph.insert_after(producer, change)
    for user, index in uses:
        if user is not change[-1]:
            user.replace_input_with(index, result)
    if value.is_graph_output() or within:
        value.name, result.name = f"{name}__plain", name
        graph.outputs[list(graph.outputs).index(value)] = result
    return True


def _change(value: ir.Value, error: float | None) -> list[ir.Node]:
    """Nodes whose last result differs from `value`; empty where its dtype is not supported."""
    dtype = value.dtype
    if dtype is ir.DataType.BOOL:
        return [ir.node("Not", [value])]
    if dtype is not None and dtype in _FLOATS:
        op, number = "Mul", 1 + (max(STATED, UNITS * _FLOATS[dtype]) if error is None else error)
    elif dtype is not None and dtype.is_integer():
        op, number = "Add", 1.0
    else:
        return []
    constant = ir.node("Constant", [], {"value": ir.tensor(np.asarray(number).astype(dtype.numpy()), dtype=dtype)})
    return [constant, ir.node(op, [value, constant.outputs[0]])]
