"""Whether every element of a value is 0 or 1, as in a mask that multiplies.

The proof is the constant itself, or how the value is computed: from booleans or such constants, by operators that move elements,
or that give 0 or 1 for 0 and 1.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.constants import Constants

DEEPEST = 16
"""Maximum number of nodes to look behind a value."""
_OF_FIRST = frozenset(
    (
        *("Cast", "CastLike", "Identity", "Slice", "Split", "Gather", "GatherND", "GatherElements", "Trilu"),
        *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Tile"),
    )
)
"""Operators that give elements of their first operand, or zeros."""
_OF_ALL = frozenset(("Concat", "Mul", "Min", "Max"))
"""Operators whose result is 0 or 1 if all operands are."""


def binary(constants: Constants, value: ir.Value, depth: int = 0) -> bool | None:
    """Whether every element is 0 or 1; None where unknown."""
    if value.dtype == ir.DataType.BOOL:
        return True
    array, node = constants.array(value), value.producer()
    if array is not None:
        return array.dtype.kind in "fiu" and bool(np.isin(array, (0, 1)).all())
    if node is None or node.domain or depth >= DEEPEST:
        return None
    sources = _sources(constants, node)
    return True if sources and all(source is not None and binary(constants, source, depth + 1) for source in sources) else None


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
