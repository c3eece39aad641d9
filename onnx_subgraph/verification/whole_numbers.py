"""Floats that are whole numbers by the way they are computed: counts, votes, labels, and numbers that were rounded to integers.

Their sums and products are exact in every form of a graph, as long as they are below 2²⁴, where float32 begins to round whole
numbers. So no fusion may change them. Larger ones are rounded like other numbers (`rounded`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

_WIDE = frozenset((ir.DataType.FLOAT, ir.DataType.DOUBLE))
"""Types whose whole numbers are exact beyond any count. float16 rounds those above 2048."""
_MAKING = frozenset(("Ceil", "Floor", "Round", "Sign"))
_FROM_FIRST = frozenset(
    (
        *("Identity", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Slice", "Split", "Expand", "Tile", "Gather"),
        *("GatherElements", "GatherND", "Neg", "Abs", "Relu", "Trilu", "ReduceMax", "ReduceMin", "ReduceSum", "CumSum", "TopK"),
    )
)
"""Operators whose results are whole if the first operand is."""
_FROM_ALL = frozenset(("Add", "Sub", "Mul", "Sum", "Max", "Min", "Clip", "Concat", "MatMul"))
_MOST = 1 << 12
"""The most elements of a constant that are looked at."""
_LARGEST = float(1 << 24)


def whole_numbers(nodes: Iterable[ir.Node]) -> set[ir.Value]:
    """The results of these nodes that are whole numbers in every run. nodes: in the order of their computation."""
    found = set[ir.Value]()
    for node in nodes:
        if not node.domain and _is_whole(node, found):
            found.update(value for value in node.outputs if value.dtype in _WIDE)
    return found


def _is_whole(node: ir.Node, found: set[ir.Value]) -> bool:
    operands = list(node.inputs)
    if node.op_type in _MAKING:
        return True
    if node.op_type in ("Cast", "CastLike"):
        source = operands[0]
        is_integer = source is not None and source.dtype is not None and not source.dtype.is_floating_point()
        return is_integer or _given(source, found)
    if node.op_type in _FROM_FIRST:
        return _given(operands[0], found)
    if node.op_type == "Where":
        return all(_given(operand, found) for operand in operands[1:])
    return node.op_type in _FROM_ALL and all(operand is None or _given(operand, found) for operand in operands)


def _given(value: ir.Value | None, found: set[ir.Value]) -> bool:
    if value is None or value in found:
        return value is not None
    tensor = value.const_value
    if tensor is None or tensor.size > _MOST or value.is_graph_input() or value.dtype not in _WIDE:
        return False
    array = tensor.numpy()
    return bool((np.isfinite(array) & (array == np.floor(array)) & (np.abs(array) <= _LARGEST)).all())
