"""Whether every element of a value is 0 or 1, as in a mask that multiplies.

The proof is the constant itself, or how the value is computed: from booleans or such constants, by operators that move elements,
or that give 0 or 1 for 0 and 1.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.closure import closed
from onnx_subgraph.model.constants import Constants

_MOST = 256
"""The most values that are looked at."""
_OF_FIRST = frozenset(
    (
        *("Cast", "CastLike", "Identity", "Slice", "Split", "Gather", "GatherND", "GatherElements", "Trilu"),
        *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Tile"),
    )
)
"""Operators that give elements of their first operand, or zeros."""
_OF_ALL = frozenset(("Concat", "Mul", "Min", "Max"))
"""Operators whose result is 0 or 1 if all operands are."""


def binary(constants: Constants, value: ir.Value) -> bool | None:
    """Whether every element is 0 or 1; None where unknown."""
    array = constants.array(value)
    if array is not None:
        return _holds_bits(array)
    seen: dict[ir.Value, None] = {}
    return True if closed(value, lambda one: _behind(constants, one), seen, _MOST) else None


def _holds_bits(array: np.ndarray) -> bool:
    return array.dtype.kind in "bfiu" and bool(np.isin(array, (0, 1)).all())


def _behind(constants: Constants, value: ir.Value) -> list[ir.Value] | None:
    """The values that must be 0 or 1 for this one to be; None where it may be another number."""
    if value.dtype == ir.DataType.BOOL:
        return []
    array, node = constants.array(value), value.producer()
    if array is not None:
        return [] if _holds_bits(array) else None
    sources = () if node is None or node.domain else _sources(constants, node)
    found = [source for source in sources if source is not None]
    return found if sources and len(found) == len(sources) else None


def _sources(constants: Constants, node: ir.Node) -> tuple[ir.Value | None, ...]:
    """The operands that must be 0 or 1 for the result to be; () where that is not enough."""
    if node.op_type in _OF_FIRST:
        return tuple(node.inputs[:1])
    if node.op_type in _OF_ALL:
        return tuple(node.inputs)
    if node.op_type == "Where":
        return tuple(node.inputs[1:])
    first = node.inputs[0] if node.op_type == "Sub" else None
    return tuple(node.inputs[1:]) if first is not None and constants.scalar(first) == 1 else ()
