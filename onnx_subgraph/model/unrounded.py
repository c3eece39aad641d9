"""The number that a constant of a narrow type would be if nothing on the way to it had been rounded.

An exporter computes a scale in the type of the network: Sqrt(1 / Sqrt(64)) is 0.35351563 in float16, and its square is not 1/8.
An operator that takes the scale as an attribute should get the number that is meant.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.folding import ARITHMETIC

NARROW = frozenset((ir.DataType.FLOAT16, ir.DataType.BFLOAT16))
_PASSING = frozenset(("Cast", "CastLike", "Identity", "Reshape", "Squeeze", "Unsqueeze"))
"""Operators that keep the only element. A Cast rounds it, which is left out."""
_DEPTH = 16
"""How many operators are followed."""
_NEAR = 0.01
"""The most that roundings may have changed a number, relative to it. More is an overflow or a cancellation, which counts."""


def unrounded(constants: Constants, value: ir.Value, depth: int = _DEPTH) -> float | None:
    """The number of a constant of one element, computed in float64 from the stored numbers; None for another value."""
    array = constants.array(value)
    if array is None or array.size != 1 or array.dtype.kind in "SUOc":
        return None
    stored = float(array.reshape(-1)[0])
    node = value.producer()
    if node is None or node.domain or not depth or not (value.dtype in NARROW or value.dtype is ir.DataType.FLOAT):
        return stored
    exact = _exactly(constants, node, depth - 1)
    is_rounding = exact is not None and np.isfinite(stored) and abs(exact - stored) <= _NEAR * abs(stored)
    return exact if is_rounding else stored


def _exactly(constants: Constants, node: ir.Node, depth: int) -> float | None:
    """The result of a node for unrounded operands; None for an operator that is not followed."""
    if node.op_type in _PASSING:
        return None if node.inputs[0] is None else unrounded(constants, node.inputs[0], depth)
    operands = [None if operand is None else unrounded(constants, operand, depth) for operand in node.inputs]
    if node.op_type not in ARITHMETIC or None in operands:
        return None
    with np.errstate(all="ignore"):
        return float(ARITHMETIC[node.op_type](*(np.float64(operand) for operand in operands)))
