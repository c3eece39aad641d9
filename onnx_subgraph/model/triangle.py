"""Values that are one number on and below the diagonal of their last two axes, and another one above: causal masks.

A mask of a length that is known only in a run is cut from a constant, or computed from ones by Trilu, or from positions.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import Constants, small
from onnx_subgraph.model.counting import count
from onnx_subgraph.model.folding import fold
from onnx_subgraph.model.follow import Follow
from onnx_subgraph.model.shapes import same_dim
from onnx_subgraph.model.uniform import element, only
from onnx_subgraph.operators.elementwise import is_elementwise

HIDDEN = -1e29
"""A mask of at most this hides a score, however large the score is. In float16, only the lowest number and -inf are."""
_SPREADING = frozenset(("Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Tile", "Unsqueeze"))
"""Operators that repeat or regroup the matrices of their first operand, if the sizes of the last two axes stay."""
_COLUMN = {"LessOrEqual": 0, "Greater": 0, "GreaterOrEqual": 1, "Less": 1}
"""Operators that compare positions of columns and rows → the operand that must hold those of the columns to give a triangle."""


class Triangle(NamedTuple):
    """The numbers, without axes, on and below the diagonal of the last two axes, and above it."""

    below: np.ndarray
    above: np.ndarray


def causal(constants: Constants, value: ir.Value) -> bool | None:
    """Whether a mask lets each row of scores see the columns up to its own: 0 there, `HIDDEN` or less behind, or true and false.

    None where that is not known.
    """
    found = triangle(constants, value)
    if found is None:
        return None if constants.array(value) is None else False
    if found.below.dtype == bool:
        return bool(found.below and not found.above)
    hidden = float(np.finfo(np.float16).min) if found.above.dtype == np.float16 else HIDDEN
    return float(found.below) == 0 and float(found.above) <= hidden


def triangle(constants: Constants, value: ir.Value | None) -> Triangle | None:
    """The two numbers of a value in every run; None if it is no triangle, or if that is not known."""
    return Follow(partial(_found, constants))(value)


def _found(constants: Constants, value: ir.Value, follow: Follow[Triangle]) -> Triangle | None:
    everywhere = element(constants, value)
    if everywhere is not None:
        return Triangle(everywhere, everywhere)
    array, node = constants.array(value), value.producer()
    if array is not None:
        return _of(array)
    if node is None or node.domain or value is not node.outputs[0]:
        return None
    if node.op_type in _COLUMN and _compares_positions(constants, node):
        is_below = node.op_type.endswith("OrEqual")
        return Triangle(np.array(is_below), np.array(not is_below))
    parts = [follow(operand) for operand in node.inputs[: None if is_elementwise(node.op_type) else 1]]
    if not all(
        part is not None and (part.below is part.above or node.op_type == "Slice" or _keeps(operand, value))
        for part, operand in zip(parts, node.inputs, strict=False)
    ):
        return None
    known = [part for part in parts if part is not None]
    if node.op_type == "Trilu":
        return _cut(constants, node, known[0])
    if node.op_type in _SPREADING or (node.op_type == "Slice" and _begins_at_0(constants, node)):
        return known[0]
    if not is_elementwise(node.op_type):
        return None
    results = [fold(node, [part[side] for part in known], constants.opset(node)) for side in (0, 1)]
    numbers = [None if result is None else only(np.asarray(result[0])) for result in results]
    return None if numbers[0] is None or numbers[1] is None else Triangle(numbers[0], numbers[1])


def _of(array: np.ndarray) -> Triangle | None:
    """The numbers of a constant."""
    if array.ndim < 2 or min(array.shape[-2:]) < 2:
        return None
    lower = np.tri(*array.shape[-2:]).astype(bool)
    below, above = only(array[..., lower]), only(array[..., ~lower])
    return None if below is None or above is None else Triangle(below, above)


def _cut(constants: Constants, node: ir.Node, given: Triangle) -> Triangle | None:
    """The numbers of a Trilu, which sets those above the diagonal to 0, or those on and below it; None for another diagonal."""
    upper = node.attributes.get("upper")
    if upper is not None and upper.is_ref():
        return None
    is_upper = upper is None or upper.as_int() == 1
    offset = constants.scalar(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else 0
    zero = np.zeros_like(given.below)
    if is_upper:
        return Triangle(zero, given.above) if offset == 1 else None
    return Triangle(given.below, zero) if offset == 0 else None


def _keeps(operand: ir.Value | None, result: ir.Value) -> bool:
    """Whether the last two axes of an operand have the sizes of those of the result."""
    if operand is None or operand.shape is None or result.shape is None or min(len(operand.shape), len(result.shape)) < 2:
        return False
    return all(same_dim(operand.shape[axis], result.shape[axis]) for axis in (-2, -1))


def _begins_at_0(constants: Constants, node: ir.Node) -> bool:
    """Whether a Slice takes the first elements of each axis that it cuts."""
    numbers = [small(constants, value) if value is not None else None for value in node.inputs]
    starts, steps = (numbers[at] if at < len(numbers) else None for at in (1, 4))
    has_steps = len(node.inputs) > 4 and node.inputs[4] is not None
    return starts is not None and not starts.any() and (not has_steps or (steps is not None and bool((steps == 1).all())))


def _compares_positions(constants: Constants, node: ir.Node) -> bool:
    """Whether one operand holds the position of each column, and the other one that of each row."""
    column = _COLUMN[node.op_type]
    return _counts(constants, node.inputs[column], -1) and _counts(constants, node.inputs[1 - column], -2)


def _counts(constants: Constants, value: ir.Value | None, axis: int) -> bool:
    """Whether integers are their own positions along one axis."""
    found = count(constants, value)
    if found is None or found.start or list(found.strides) != [len(found.shape) + axis]:
        return False
    return next(iter(found.strides.values())).by == 1
