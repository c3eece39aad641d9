"""Arithmetic on the constants of a replacement.

A replacement uses one constant where the model uses two, one after the other. It is refused where rounding tells them apart.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnx_subgraph.emitting.refused import Refused
from onnx_subgraph.language.term import Static

_MANTISSA = {ir.DataType.FLOAT: 23, ir.DataType.FLOAT16: 10, ir.DataType.BFLOAT16: 7, ir.DataType.DOUBLE: 52}
"""Type → the bits of its mantissa."""
_BITS = _MANTISSA[ir.DataType.FLOAT]
"""For a number in a replacement, whose type is known only later."""


def arithmetic(operator: str, inverse: bool, a: Static | np.ndarray, b: Static | np.ndarray) -> np.ndarray:
    """A sum ("+") or product, in float64. inverse: the second operand is subtracted, or divides. Raises Refused."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if operator == "+":
        total = x - y if inverse else x + y
        _check_cancellation(x, y, total, _BITS)
        return total
    with np.errstate(all="ignore"):
        total = x / y if inverse else x * y
    if not all(map(math.isfinite, total.ravel())):
        raise Refused("a constant of the replacement is not finite")
    return np.asarray(total)


def check_held(number: np.ndarray, held: np.ndarray) -> None:
    """Refuse a number that becomes 0 in its type."""
    if number.dtype.kind == "f" and bool(((held == 0) & (number != 0)).any()):
        raise Refused("a constant of the replacement is too small for its type")


def check_folded(node: ir.Node, result: ir.TensorProtocol) -> None:
    """Refuse a sum or product of constants that rounding makes another number."""
    operands = [value.const_value for value in node.inputs if value is not None and value.const_value is not None]
    if node.domain or isinstance(result, ir.LazyTensor) or len(operands) != 2 or len(node.inputs) != 2:
        return
    a, b = (operand.numpy() for operand in operands)
    if node.op_type == "Mul" and bool(((a != 0) & (b != 0) & (result.numpy() == 0)).any()):
        raise Refused("a constant of the replacement would be too small for its type")
    if node.op_type in ("Add", "Sub") and (bits := _MANTISSA.get(result.dtype)) is not None:
        _check_cancellation(a, b, result.numpy(), bits)


def _check_cancellation(a: np.ndarray, b: np.ndarray, total: np.ndarray, bits: int) -> None:
    """Refuse a sum of two large constants that cancel.

    x + 12582912 - 12582912 is x rounded to a whole number in float32, and not x.
    """
    large = np.maximum(np.abs(a), np.abs(b)).astype(np.float64)
    if bool(((large >= 2.0 ** (bits - 7)) & np.isfinite(large) & (np.abs(total) <= large * 2.0**-10)).any()):
        raise Refused("large constants of the replacement cancel, and what is added to them one after the other is rounded")
