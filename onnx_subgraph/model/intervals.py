"""Bounds of floats that follow from constants: what a table of weights, a mask of two numbers, or their sum can be.

A bounded value is neither infinite nor NaN, unless the caller lets NaN pass. Operators that round are monotonic in each operand,
so the bounds of a result are results at bounds, in the same type.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import Constants, small
from onnx_subgraph.model.folding import ARITHMETIC, FLOATS
from onnx_subgraph.model.follow import Follow
from onnx_subgraph.operators.elementwise import REARRANGING

_TAKING = REARRANGING | {"Gather", "Expand", "Tile", "Slice", "Split", "Identity"}
"""Operators that give elements of their first operand and no others."""
_RANGES = {
    **dict.fromkeys(("Sigmoid", "HardSigmoid", "Softmax"), (0, 1)),
    **dict.fromkeys(("Tanh", "Erf", "Sin", "Cos"), (-1, 1)),
}
"""Operators whose results are in a range, or NaN, whatever their operands are."""
_SUMS = frozenset(("Add", "Sub", "Mul"))


class Interval(NamedTuple):
    """The least and the most that elements can be, both finite."""

    least: np.floating
    most: np.floating


def interval(constants: Constants, value: ir.Value | None, *, unless_nan: bool = False) -> Interval | None:
    """The bounds of a floating value in every run; None where a bound is not known.

    unless_nan: an element may also be NaN.
    """
    return Follow(partial(_found, constants, unless_nan))(value)


def _found(constants: Constants, unless_nan: bool, value: ir.Value, follow: Follow[Interval]) -> Interval | None:
    if value.dtype is None or value.dtype.numpy() not in FLOATS:
        return None
    node = value.producer()
    if constants.is_constant(value):
        array = small(constants, value)
        if array is not None or node is None:  # else it is too large to be computed here
            return _of(array)
    if node is None or node.domain or not node.inputs:
        return None
    dtype = value.dtype.numpy()
    if unless_nan and node.op_type in _RANGES:
        return _of(np.array(_RANGES[node.op_type], dtype))
    if node.op_type in _TAKING:
        return follow(node.inputs[0])
    if node.op_type == "Cast" and node.inputs[0] is not None and node.inputs[0].dtype == ir.DataType.BOOL:
        return _of(np.array([0, 1], dtype))
    if node.op_type not in ("Where", "Cast", "Concat", *_SUMS):
        return None
    parts = []
    for operand in node.inputs[1:] if node.op_type == "Where" else node.inputs:
        found = follow(operand)
        if found is None:
            return None
        parts.append(found)
    with np.errstate(all="ignore"):
        if node.op_type in _SUMS:
            return _of(np.array([ARITHMETIC[node.op_type](a, b) for a, b in product(*parts)]))
        return _of(np.array([bound for one in parts for bound in one]).astype(dtype))


def _of(array: np.ndarray | None) -> Interval | None:
    if array is None or not array.size or array.dtype not in FLOATS:
        return None
    least, most = array.min(), array.max()  # NaN if there is one
    return Interval(least, most) if np.isfinite(least) and np.isfinite(most) else None
