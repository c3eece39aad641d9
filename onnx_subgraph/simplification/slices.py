"""Slices along only those axes that they cut.

TensorFlow's exporter writes the start and the end of every axis, also of those that are taken whole. Patterns name the others.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_subgraph.model.asked import small
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import same_dim
from onnx_subgraph.model.surgery import constant

_AS_INPUTS = 10
"""The first opset in which the starts and ends of a Slice are inputs."""


def as_fewer_axes(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """The Slice along those axes that a Slice cuts, behind its numbers; [] for other nodes, and where it cuts all or none."""
    source, result = next(iter(node.inputs), None), node.outputs[0]
    if node.op_type != "Slice" or node.domain or constants.opset(node) < _AS_INPUTS or source is None:
        return []
    given = [None if value is None else small(constants, value) for value in node.inputs[1:]]
    known = all(array is not None for array, value in zip(given, node.inputs[1:], strict=True) if value is not None)
    if source.shape is None or result.shape is None or len(given) < 3 or given[2] is None or not known:
        return []
    axes, steps = given[2].tolist(), None if len(given) < 4 or given[3] is None else given[3].tolist()
    before, after = source.shape, result.shape
    cut = [
        at for at, axis in enumerate(axes) if not same_dim(before[axis], after[axis]) or (steps is not None and steps[at] != 1)
    ]
    if len(cut) in (0, len(axes)):
        return []
    name = node.name or result.name
    numbers = [
        None if array is None else constant(array[cut], f"{result.name}__{what}")
        for what, array in zip(("starts", "ends", "axes", "steps"), given, strict=False)
    ]
    inputs = [source, *(None if number is None else number.outputs[0] for number in numbers)]
    return [*filter(None, numbers), ir.Node("", "Slice", inputs, name=f"{name}_cut")]
