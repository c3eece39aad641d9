"""Nodes that a pattern looks through only where it says so: a Cast between floats, a guard against NaN."""

from __future__ import annotations

import onnx_ir as ir

from onnx_subgraph.matching.view import FLOATS, View


def guarded(view: View, where: ir.Node) -> tuple[ir.Value | None, tuple[ir.Node, ...]]:
    """The p of Where(IsNaN(p), 0, p), and the nodes of the guard; None where it is another Where."""
    condition, zero, value = where.inputs
    if condition is None or zero is None or value is None:
        return None, ()
    test = view.producer(view.through(condition)[0])
    number = view.scalar(zero)
    if test is None or test.op_type != "IsNaN" or number is None or number.number != 0 or test.inputs[0] is None:
        return None, ()
    return (value, (where, test)) if view.same(test.inputs[0], value) else (None, ())


def is_float_cast(node: ir.Node) -> bool:
    """Whether a Cast goes from one float type to another."""
    value = node.inputs[0]
    return value is not None and value.dtype in FLOATS and node.outputs[0].dtype in FLOATS
