"""Which attributes and inputs of operators are numbers of axes, and which value's axes they count.

ONNX says so in prose alone: a schema has no type for an axis. A negative number counts from the back.
"""

from __future__ import annotations

_AXES = frozenset(
    ("axis", "axes", "batch_axis", "time_axis", "scan_input_axes", "scan_output_axes", "gather_axis", "quantize_axis")
)
_OF_RESULT = frozenset(("Unsqueeze", "OneHot", "ExpandDims"))
_IN_ORDER = frozenset(("Slice", "Pad", "Resize", "CenterCropPad", "Scan", "DynamicSlice"))


def is_axis(name: str) -> bool:
    """Whether the attribute or formal input called `name` holds the number of an axis, or a list of them."""
    return name in _AXES


def counts_in_result(operator: str) -> bool:
    """Whether the axes of an operator are those of its result; of all others they are those of the first input."""
    return operator in _OF_RESULT


def is_ordered(operator: str) -> bool:
    """Whether the axes of an operator go with other operands, one by one; of all others a list of axes is a set."""
    return operator in _IN_ORDER
