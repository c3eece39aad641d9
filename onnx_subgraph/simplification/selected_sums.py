"""Sums of all elements along some axes, added one by one, as one ReduceSum.

torch.export decomposes adaptive average pooling with windows of several sizes: it gathers each window, zeroes what is too much,
and adds the elements `window[..., i, :, j]`, hundreds of them for large images. The sum is the same, in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import Constants
from onnx_subgraph.model.surgery import constant

_FEWEST = 4
"""The fewest addends of a sum that is written so. A sum of two or three elements is part of other formulas."""
_AXES_AS_INPUT = 13
"""The opset from which ReduceSum has its axes as an input."""
_SUMMED = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.INT32, ir.DataType.INT64)
"""The types of onnxruntime's ReduceSum."""

_Path = list[tuple[ir.Value, int, int]]
"""The value that an element is taken of, the axis and the index; the last one taken comes first."""


def as_reduced(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """The ReduceSum that gives the result of the last Add of all elements along some axes; [] for other nodes."""
    if node.op_type != "Add" or node.domain or constants.opset(node) < _AXES_AS_INPUT or _goes_on(node):
        return []
    if node.outputs[0].dtype not in _SUMMED:
        return []
    paths = [_path(constants, value) for value in _addends(node)]
    if len(paths) < _FEWEST or not all(paths):
        return []
    for depth in range(1, len(paths[0]) + 1):
        source = paths[0][depth - 1][0]
        taken = [next((path[:at] for at in range(1, len(path) + 1) if path[at - 1][0] is source), []) for path in paths]
        axes = _axes(source, taken)
        if axes:
            numbers = constant(np.array(axes, np.int64), f"{node.outputs[0].name}__axes")
            name = node.name or node.outputs[0].name
            return [numbers, ir.node("ReduceSum", [source, numbers.outputs[0]], {"keepdims": 0}, name=name)]
    return []


def _goes_on(node: ir.Node) -> bool:
    """Whether another Add continues the sum."""
    uses = list(node.outputs[0].uses())
    return len(uses) == 1 and uses[0].node.op_type == "Add" and not node.outputs[0].is_graph_output()


def _addends(node: ir.Node) -> list[ir.Value]:
    """The addends of a chain of Adds that nothing else reads."""
    found: list[ir.Value] = []
    pending = [value for value in node.inputs if value is not None]
    for value in pending:
        maker = value.producer()
        if maker is not None and maker.op_type == "Add" and not maker.domain and maker.graph is node.graph and _goes_on(maker):
            pending += [operand for operand in maker.inputs if operand is not None]
        else:
            found.append(value)
    return found


def _path(constants: Constants, value: ir.Value) -> _Path:
    """What a value is an element of: by Gathers of a single index, which drop their axes. Indices count from 0."""
    path: _Path = []
    while (node := value.producer()) is not None and node.op_type == "Gather" and not node.domain:
        source, index = node.inputs[0], None if node.inputs[1] is None else constants.array(node.inputs[1])
        if source is None or source.shape is None or index is None or index.ndim:
            break
        axis = node.attributes.get_int("axis", 0) % len(source.shape)
        size = source.shape[axis]
        if not isinstance(size, int) or not size:
            break
        path.append((source, axis, int(index) % size))
        value = source
    return path


def _axes(source: ir.Value, paths: Sequence[_Path]) -> list[int]:
    """The axes of `source` of which the paths take each element once; [] if they do not."""
    assert source.shape is not None
    found: set[tuple[tuple[int, int], ...]] = set()
    for path in paths:
        left = list(range(len(source.shape)))
        found.add(tuple(sorted((left.pop(axis), index) for _, axis, index in reversed(path))))
    axes = {tuple(axis for axis, _ in places) for places in found}
    if len(found) != len(paths) or len(axes) != 1 or not min(axes):
        return []
    (only,) = axes
    sizes = [size for axis in only if isinstance(size := source.shape[axis], int)]
    return list(only) if len(found) == prod(sizes) else []
