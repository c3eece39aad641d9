"""Infer the valid values of an input from the nodes that use it: rows of a table, a mask, a length, or any number.

An integer input is followed forward, through operators that only move or shift values, to the nodes that index with it; the
smallest indexed table bounds it. An input that is compared with 0 or 1, cast to bool, subtracted from one or multiplied by a
large negative number is a mask of zeros and ones; but floats that are only compared may be other numbers, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

Limit = int | str
"""The number of rows of an indexed table: a number, or the name of a symbolic dimension."""

MAX_CONSTANT = 4096
"""Larger constants are not read: shifts, shapes and conditions are smaller."""


@dataclass(frozen=True, slots=True)
class Purpose:
    """The purpose of an input.

    kind: "index" (integers in [low, limit)), "mask" (zeros and ones), "compared" (zeros, ones, and other floats), "length" (a
    small positive integer, or a shape made of such), "number" (anything of its dtype).
    limits: for an "index" the rows of each table that it reaches, and the shift added on the way.
    choices: integers that a "number" is compared with, such as a sample rate that selects a branch.
    longest: the size of the input whose length this one gives; 0 where it gives none.
    """

    kind: Literal["index", "mask", "compared", "length", "number"]
    limits: tuple[tuple[Limit, int], ...] = ()
    choices: tuple[int, ...] = ()
    longest: int = 0


_MOVES = frozenset(
    (
        *("Identity", "Cast", "CastLike", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Slice", "Concat", "Split"),
        *("Expand", "Tile", "Pad", "Gather", "GatherElements", "GatherND", "ScatterND", "ScatterElements", "Where", "Trilu"),
        *("Max", "Min", "Clip", "Mod", "Abs", "Dropout"),
    )
)
_COMPARES = frozenset(("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"))
_SHAPE_INPUT = {
    "Reshape": 1,
    "Expand": 1,
    "ConstantOfShape": 0,
    "Tile": 1,
    "TopK": 1,
    "Slice": (1, 2),
    "Resize": 3,
    "Upsample": 1,
}


def purpose(model: ir.Model, value: ir.Value) -> Purpose:
    """The purpose of a graph input, from its uses and, where they do not tell, from its name."""
    seen: set[tuple[ir.Value, int]] = set()
    found: set[str] = set()
    limits: list[tuple[Limit, int]] = []
    choices: dict[int, None] = {}
    stack: list[tuple[ir.Value, int]] = [(value, 0)]
    while stack:
        current, shift = stack.pop()
        if (current, shift) in seen or len(seen) > 2000:
            continue
        seen.add((current, shift))
        for node, index in current.uses():
            function = model.functions.get(node.op_identifier())
            if function is not None:
                stack.append((function.inputs[index], shift))
                continue
            if node.op_type == "Equal" and (other := constant(node.inputs[1 - index])) is not None and other.size == 1:
                choices[int(other.reshape(-1)[0]) - shift] = None
            limit = _rows(node, index)
            if limit is not None:
                limits.append((limit, shift))
            elif _is_length(node, index):
                found.add("length")
            elif _is_mask(node, index, current):
                found.add("compared" if node.op_type in _COMPARES else "mask")
            stack.extend(_onward(node, index, shift))
    name = (value.name or "").lower()
    integer = value.dtype is not None and value.dtype.is_integer()
    if "mask" in name or value.dtype is ir.DataType.BOOL:
        return Purpose("mask")
    if integer and limits:
        return Purpose("index", tuple(limits))
    if found & {"mask", "compared"} and (integer or not _is_image(value)):
        return Purpose("mask" if integer or "mask" in found else "compared")
    if integer and ("length" in found or "len" in name):
        return Purpose("length")
    return Purpose("number", choices=tuple(choices) if integer else ())


def constant(value: ir.Value | None) -> npt.NDArray[Any] | None:
    """The array of a small constant: an initializer that is not a graph input, or the output of a Constant node; else None."""
    if value is None or value.is_graph_input():
        return None
    tensor = value.const_value
    node = value.producer()
    if tensor is None and node is not None and node.op_type == "Constant":
        return _attribute_constant(node)
    if tensor is None and node is not None and node.op_type in ("Identity", "Cast", "Unsqueeze"):
        return constant(node.inputs[0])
    if tensor is None or tensor.size > MAX_CONSTANT or tensor.dtype is ir.DataType.STRING:
        return None
    return tensor.numpy()


def _attribute_constant(node: ir.Node) -> npt.NDArray[Any] | None:
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.TENSOR:
            tensor = attribute.as_tensor()
            return tensor.numpy() if tensor.size <= MAX_CONSTANT else None
        if attribute.type in (ir.AttributeType.INT, ir.AttributeType.INTS, ir.AttributeType.FLOAT, ir.AttributeType.FLOATS):
            return np.asarray(attribute.value)
    return None


def _rows(node: ir.Node, index: int) -> Limit | None:
    """The number of rows of the table that this node indexes with its input `index`; None if it does not index with it."""
    match node.op_type, index:
        case ("Gather" | "GatherElements" | "ScatterElements" | "Scatter", 1):
            axis = node.attributes.get_int("axis", 0)
            return _dim(node.inputs[0], axis)
        case ("GatherND" | "ScatterND", 1):
            batch = node.attributes.get_int("batch_dims", 0)
            indices = node.inputs[1]
            depth = indices.shape[-1] if indices is not None and indices.shape is not None and len(indices.shape) else 1
            dims = [_dim(node.inputs[0], axis) for axis in range(batch, batch + (depth if isinstance(depth, int) else 1))]
            numbers = [dim for dim in dims if isinstance(dim, int)]
            return min(numbers) if numbers else dims[0]
        case ("OneHot", 0):
            depth_value = constant(node.inputs[1])
            return None if depth_value is None else int(depth_value.reshape(-1)[0])
        case ("EmbedLayerNormalization", 0):
            return _dim(node.inputs[2], 0)
        case ("EmbedLayerNormalization", 1):
            return _dim(node.inputs[4], 0)
        case ("RotaryEmbedding", _) if node.domain == "com.microsoft" and index == 1:
            return _dim(node.inputs[2], 0)
        case ("RotaryEmbedding", 3):
            return _dim(node.inputs[1], 0)
        case _:
            return None


def _dim(value: ir.Value | None, axis: int) -> Limit:
    shape = None if value is None else value.shape
    if shape is None and value is not None and value.const_value is not None:
        shape = ir.Shape(value.const_value.shape.numpy())
    if shape is None or not -len(shape) <= axis < len(shape):
        return 1  # only row 0 is sure to exist
    dim = shape[axis]
    return dim if isinstance(dim, int) else (dim.value or 1)


def _is_length(node: ir.Node, index: int) -> bool:
    if node.op_type == "Range":
        return True
    at = _SHAPE_INPUT.get(node.op_type)
    return at is not None and (index in at if isinstance(at, tuple) else index == at)


def _is_mask(node: ir.Node, index: int, value: ir.Value) -> bool:
    if node.op_type in ("And", "Or", "Not", "Xor", "If") or (node.op_type == "Where" and index == 0):
        return True
    if node.op_type == "Cast":
        return node.attributes.get_int("to", 0) == int(ir.DataType.BOOL)
    if node.op_type in _COMPARES:
        return _is_scalar(node.inputs[1 - index], (0.0, 1.0, 0.5))
    if node.op_type == "Sub" and index == 1:
        return _is_scalar(node.inputs[0], (1.0,))
    if node.op_type == "Mul":
        other = constant(node.inputs[1 - index])
        return other is not None and other.size == 1 and float(other.reshape(-1)[0]) <= -1e3
    return node.op_type == "Attention" and node.domain == "com.microsoft" and index == 3


def _is_scalar(value: ir.Value | None, numbers: tuple[float, ...]) -> bool:
    array = constant(value)
    return array is not None and array.size == 1 and array.dtype.kind in "iufb" and float(array.reshape(-1)[0]) in numbers


def _onward(node: ir.Node, index: int, shift: int) -> Iterator[tuple[ir.Value, int]]:
    """The values that receive the elements of input `index`, and the total shift."""
    if node.op_type in _MOVES:
        # an index, shape or condition is not passed on to the result
        carries = index in (1, 2) if node.op_type == "Where" else index == 0 or node.op_type in ("Concat", "Max", "Min")
        if carries:
            yield from ((output, shift) for output in node.outputs)
    elif node.op_type in ("Add", "Sub") and len(node.inputs) == 2:
        other = constant(node.inputs[1 - index])
        if other is not None and other.size and other.dtype.kind in "iu" and not (node.op_type == "Sub" and index == 1):
            sign = 1 if node.op_type == "Add" else -1
            yield node.outputs[0], shift + sign * int(other.max() if sign > 0 else other.min())
        elif other is None and node.inputs[1 - index] is not None:
            yield node.outputs[0], shift


def _is_image(value: ir.Value) -> bool:
    return value.shape is not None and len(value.shape) >= 3
