"""Which attributes and inputs of an operator are axis numbers, and whether they number the axes of its input or of its output.

ONNX says this only in prose: a schema has no type for an axis. A negative number counts from the last axis.
"""

from __future__ import annotations

_AXES = frozenset(
    ("axis", "axes", "batch_axis", "time_axis", "scan_input_axes", "scan_output_axes", "gather_axis", "quantize_axis")
)
_OF_RESULT = frozenset(("Unsqueeze", "OneHot", "ExpandDims"))
_IN_ORDER = frozenset(("Slice", "Pad", "Resize", "CenterCropPad", "Scan", "DynamicSlice"))


def is_axis(name: str) -> bool:
    """Whether the attribute or formal input `name` holds an axis number or a list of axis numbers."""
    return name in _AXES


def counts_in_result(operator: str) -> bool:
    """Whether the axis numbers of an operator refer to its output. For all other operators they refer to the first input."""
    return operator in _OF_RESULT


def is_ordered(operator: str) -> bool:
    """Whether the order of an operator's axes matters: another operand has one element per axis. Otherwise the axes are a set."""
    return operator in _IN_ORDER
