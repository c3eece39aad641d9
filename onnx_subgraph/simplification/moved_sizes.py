"""Sizes that are joined, and then moved, as one Concat of them in their last order.

torch has the padding of the last axis first, ONNX has that of the first axis first, and all starts before all ends. TorchScript's
exporter joins the amounts with zeros, makes pairs of them, reverses these, and transposes them. The amounts are often computed
from a length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import Constants, small
from onnx_subgraph.model.surgery import constant
from onnx_subgraph.operators.elementwise import REARRANGING
from onnx_subgraph.simplification.axis_orders import layout_of

_MOST = 64
"""The longest vector whose elements are followed; that of the amounts of padding of an image has 8."""


class _Element(NamedTuple):
    """An element of a vector: of this value at this place, or this number."""

    source: ir.Value | None
    number: int


def as_sizes(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """The Concat, behind its constants, that gives a vector of integers whose elements were moved; [] for other nodes.

    Also [] where a vector would have to be taken apart for it.
    """
    result = node.outputs[0]
    is_vector = result.shape is not None and len(result.shape) == 1 and result.dtype == ir.DataType.INT64
    if node.domain or not is_vector or node.op_type not in _MOVING or constants.is_constant(result):
        return []
    elements = _elements(constants, result)
    if elements is None or not _is_joined(node):
        return []
    parts = _parts(list(elements.flat))
    if len(parts) < 2:  # a part alone is what the matcher looks through to
        return []
    made = [
        constant(np.array(part, np.int64), f"{result.name}__sizes_{at}")
        for at, part in enumerate(parts)
        if isinstance(part, list)
    ]
    numbers = iter(made)
    operands = [next(numbers).outputs[0] if isinstance(part, list) else part for part in parts]
    return [*made, ir.Node("", "Concat", operands, [ir.AttrInt64("axis", 0)], name=f"{node.name or result.name}_joined")]


def _is_joined(node: ir.Node) -> bool:
    """Whether there is a Concat behind operators that move elements."""
    value = node.inputs[0]
    while value is not None and (maker := value.producer()) is not None and not maker.domain:
        if maker.op_type == "Concat":
            return True
        if maker.op_type not in _MOVING:
            return False
        value = maker.inputs[0]
    return False


def _parts(elements: Sequence[_Element]) -> list[ir.Value | list[int]]:
    """What a Concat must join to give these elements: vectors, and numbers; [] if it needs only a part of a vector."""
    parts, at = list[ir.Value | list[int]](), 0
    while at < len(elements):
        source, number = elements[at]
        if source is None:
            if not parts or not isinstance(parts[-1], list):
                parts.append([])
            last = parts[-1]
            assert isinstance(last, list)
            last.append(number)
            at += 1
            continue
        size = source.shape[0] if source.shape is not None else None
        if not isinstance(size, int) or list(elements[at : at + size]) != [_Element(source, i) for i in range(size)]:
            return []
        parts.append(source)
        at += size
    return parts


def _elements(constants: Constants, value: ir.Value | None) -> np.ndarray | None:
    """The elements of a small value, in its shape; None if they are not known."""
    if value is None or value.shape is None or not all(isinstance(dim, int) for dim in value.shape):
        return None
    shape = tuple(value.shape.numpy())
    if not 0 < np.prod(shape, dtype=int) <= _MOST:
        return None
    array, node = small(constants, value), value.producer()
    if array is not None:
        return _table([_Element(None, int(number)) for number in array.flat], shape)
    followed = _MOVING.get(node.op_type) if node is not None and not node.domain else None
    if node is not None and followed is not None and (elements := followed(constants, node)) is not None:
        return elements
    return _table([_Element(value, at) for at in range(shape[0])], shape) if len(shape) == 1 else None


def _table(elements: Sequence[_Element], shape: tuple[int, ...]) -> np.ndarray:
    table = np.empty(len(elements), object)
    for at, element in enumerate(elements):
        table[at] = element  # at once, numpy would make a matrix of the tuples
    return table.reshape(shape)


def _joined(constants: Constants, node: ir.Node) -> np.ndarray | None:
    parts = [_elements(constants, value) for value in node.inputs]
    known = [part for part in parts if part is not None]
    return np.concatenate(known, node.attributes.get_int("axis", 0)) if len(known) == len(parts) else None


def _moved(constants: Constants, node: ir.Node) -> np.ndarray | None:
    """For an operator that keeps the order of the elements, or transposes them."""
    before, shape = _elements(constants, node.inputs[0]), node.outputs[0].shape
    if before is None or shape is None or not all(isinstance(dim, int) for dim in shape):
        return None
    if node.op_type == "Transpose":
        layout = layout_of(constants, node)
        order = None if layout is None else layout.as_permutation()
        return None if order is None else before.transpose(order)
    return before.reshape(tuple(shape.numpy()))


def _cut(constants: Constants, node: ir.Node) -> np.ndarray | None:
    """For a Slice."""
    before = _elements(constants, node.inputs[0])
    given = [None if value is None else small(constants, value) for value in node.inputs[1:]]
    if before is None or len(given) < 2 or any(array is None for array in given):
        return None
    numbers = [array.tolist() for array in given if array is not None]
    count = len(numbers[0])
    axes = numbers[2] if len(numbers) > 2 else range(count)
    steps = numbers[3] if len(numbers) > 3 else [1 for _ in range(count)]
    for start, end, axis, step in zip(*numbers[:2], axes, steps, strict=True):
        if start < -before.shape[axis] and step < 0:
            return None  # the standard takes the first element then
        before = np.moveaxis(np.moveaxis(before, axis, 0)[start:end:step], 0, axis)
    return before


_MOVING: dict[str, Callable[[Constants, ir.Node], np.ndarray | None]] = {
    "Concat": _joined,
    "Slice": _cut,
    **dict.fromkeys(sorted(REARRANGING), _moved),
}
