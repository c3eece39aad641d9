"""Values whose elements are all one number, whatever their shape is: a mask that hides nothing.

Exporters write one where a network has no mask: a constant True, expanded to the batch, chooses 0 over -inf for every score.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import Constants, small
from onnx_subgraph.model.counting import count
from onnx_subgraph.model.folding import FLOATS, fold
from onnx_subgraph.model.follow import Follow
from onnx_subgraph.model.intervals import interval
from onnx_subgraph.operators.elementwise import REARRANGING, is_elementwise

_SPREADING = REARRANGING | {"Expand", "Tile", "Slice", "Gather", "Identity"}
"""Operators that give elements of their first operand and no others."""
_LARGEST = 1 << 31
"""A bound of integers that every type of them here holds."""
_NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "half_pixel"}
"""The attributes of Resize that say whether it does the same, and their defaults."""


def element(constants: Constants, value: ir.Value | None) -> np.ndarray | None:
    """The number, without axes, that every element of a value is in every run. None if they differ, or if it is not known."""
    return Follow(partial(_found, constants))(value)


def _found(constants: Constants, value: ir.Value, follow: Follow[np.ndarray]) -> np.ndarray | None:
    array = small(constants, value)
    if array is not None:
        return only(array)
    node = value.producer()
    if node is None or node.domain:
        return None
    if node.op_type in _SPREADING or node.op_type == "Split" or _is_nearest(node):
        return follow(node.inputs[0])
    if value is not node.outputs[0]:
        return None
    if node.op_type == "ConstantOfShape":
        given = node.attributes.get("value")
        return np.zeros((), np.float32) if given is None else None if given.is_ref() else only(given.as_tensor().numpy())
    if node.op_type == "Concat":
        return _joined(node, follow)
    if node.op_type == "Where":
        condition = follow(node.inputs[0])
        return None if condition is None else follow(node.inputs[1 if condition else 2])
    if (number := _whatever_operands(constants, node, follow)) is not None:
        return number
    if not is_elementwise(node.op_type):
        return None
    operands = []
    for operand in node.inputs:
        number = follow(operand)
        if number is None:
            return None
        operands.append(number)
    results = fold(node, operands, constants.opset(node))
    return only(np.asarray(results[0])) if results else None


def _whatever_operands(constants: Constants, node: ir.Node, follow: Follow[np.ndarray]) -> np.ndarray | None:
    """The number that an operator gives everywhere though its operands are not one number, or though it is not elementwise."""
    value = node.outputs[0]
    match node.op_type:
        case "GreaterOrEqual" if _is_never_less(constants, node):
            return np.array(True)
        case "IsInf" | "IsNaN" if interval(constants, node.inputs[0], unless_nan=node.op_type == "IsInf") is not None:
            return np.array(False)
        case "Sub" if value.dtype in (ir.DataType.INT32, ir.DataType.INT64):
            counted = count(constants, value)  # what counts in the same way, as positions and those before them
            is_number = counted is not None and not counted.strides and abs(counted.start) < _LARGEST
            return np.array(counted.start, value.dtype.numpy()) if is_number and counted is not None else None
        case "CumSum":
            number = follow(node.inputs[0])
            return number if number is not None and number.dtype.kind == "i" and number == 0 else None
    return None


def _is_nearest(node: ir.Node) -> bool:
    """Whether a node is a Resize that gives elements of its operand, and no others."""
    if node.op_type != "Resize" or any(attribute.is_ref() for attribute in node.attributes.values()):
        return False
    mode, places = (node.attributes.get_string(name, default) for name, default in _NEAREST.items())
    return mode == "nearest" and places != "tf_crop_and_resize"  # which extrapolates by another number


def _joined(node: ir.Node, follow: Follow[np.ndarray]) -> np.ndarray | None:
    """The number that all operands of a Concat have."""
    numbers = [follow(operand) for operand in node.inputs]
    known = [number for number in numbers if number is not None]
    return only(np.stack(known)) if known and len(known) == len(numbers) else None


def is_never_minus_zero(constants: Constants, value: ir.Value | None) -> bool:
    """Whether no element of a floating value is -0 in any run: a table without one, spread, or something added to it."""
    return bool(Follow(partial(_without_minus_zero, constants))(value))


def _without_minus_zero(constants: Constants, value: ir.Value, follow: Follow[bool]) -> bool | None:
    array, node = small(constants, value), value.producer()
    if array is not None:
        return array.dtype in FLOATS and not bool((np.signbit(array) & (array == 0)).any())
    if node is None or node.domain or not node.inputs:
        return None
    if node.op_type in (*_SPREADING, "Split"):
        return follow(node.inputs[0])
    if node.op_type == "Add":  # the sum of two zeros is -0 only if both are
        return any(follow(operand) for operand in node.inputs)
    return node.op_type == "Concat" and all(follow(operand) for operand in node.inputs)


def _is_never_less(constants: Constants, node: ir.Node) -> bool:
    """Whether the first operand counts up from the second one, a number, or from more."""
    counted, bound = count(constants, node.inputs[0]), element(constants, node.inputs[1])
    if counted is None or bound is None or not all(isinstance(s.by, int) and s.by >= 0 for s in counted.strides.values()):
        return False
    return bool(counted.start >= bound)


def only(array: np.ndarray) -> np.ndarray | None:
    """The number that all elements of an array are, bit by bit."""
    flat = array.reshape(-1)
    return flat[0:1].reshape(()) if flat.size and flat.tobytes() == flat[:1].tobytes() * flat.size else None
