"""Integers that count along axes: what Range gives, or a constant, with further axes, sums, and products with sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import Constants, small
from onnx_subgraph.model.dimension_names import Dim
from onnx_subgraph.model.follow import Follow
from onnx_subgraph.model.shapes import SHAPE_DATA, dims, same_dim
from onnx_subgraph.operators.elementwise import REGROUPING

_INTEGERS = frozenset((ir.DataType.INT32, ir.DataType.INT64))
_FOLLOWED = REGROUPING | {"Add", "Cast", "Expand", "Identity", "Mul"}
"""Operators whose results count if their operands do."""
_WIDEST = 1 << 31
"""The largest difference between elements of a constant that counts. Differences of larger integers could overflow."""


@dataclass(frozen=True, slots=True)
class Stride:
    """How integers grow along an axis. by: from one to the next. source: what has them without the other axes, if it is known."""

    by: Dim
    source: ir.Value | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """Integers that are `start` plus a stride for each step along some axes.

    shape: of the integers. strides: axis → its stride; along other axes they are all the same.
    """

    start: int
    shape: tuple[Dim, ...]
    strides: dict[int, Stride]


def count(constants: Constants, value: ir.Value | None) -> Count | None:
    """How integers count along their axes; None if they do not, or if that is not known."""
    return Follow(partial(_found, constants))(value)


def _found(constants: Constants, value: ir.Value, follow: Follow[Count]) -> Count | None:
    shape = dims(value)
    if shape is None or value.dtype not in _INTEGERS:
        return None
    known, node = number(constants, value), value.producer()
    if isinstance(known, int):
        return Count(known, shape, {})
    if constants.is_constant(value):
        return count_of(small(constants, value))
    if node is None or node.domain:
        return None
    if node.op_type == "Range":
        start, step = (None if v is None else constants.scalar(v) for v in (node.inputs[0], node.inputs[2]))
        return Count(start, shape, {0: Stride(step, value)}) if isinstance(start, int) and isinstance(step, int) else None
    if node.op_type in _COMBINED:
        return _COMBINED[node.op_type](constants, node, follow, shape)
    if node.op_type not in _FOLLOWED:
        return None
    parts = [follow(operand) for operand in node.inputs[: 2 if node.op_type in ("Add", "Mul") else 1]]
    if node.op_type == "Mul":
        return _product(constants, node, parts, shape)
    if any(part is None for part in parts):
        return None
    first, *others = [part for part in parts if part is not None]
    if node.op_type in ("Cast", "Identity"):
        return first
    if node.op_type in REGROUPING:
        return _rearranged(first, shape)
    strides, more = _behind(first, shape), _behind(others[0], shape) if others else {}
    if strides is None or more is None or strides.keys() & more.keys():
        return None
    return Count(first.start + sum(other.start for other in others), shape, strides | more)


def count_of(array: np.ndarray | None) -> Count | None:
    """How the elements of a constant count."""
    if array is None or not array.size or int(array.max()) - int(array.min()) > _WIDEST:
        return None
    first = array[(0,) * array.ndim]
    strides = {axis: int(array.take(1, axis).flat[0] - first) for axis in range(array.ndim) if array.shape[axis] > 1}
    counted = first + sum(
        by * np.arange(array.shape[axis]).reshape(-1, *[1] * (array.ndim - axis - 1)) for axis, by in strides.items()
    )
    if not np.array_equal(np.broadcast_to(counted, array.shape), array):
        return None
    return Count(int(first), array.shape, {axis: Stride(by) for axis, by in strides.items() if by})


def _product(constants: Constants, node: ir.Node, parts: Sequence[Count | None], shape: tuple[Dim, ...]) -> Count | None:
    """The product of a number, and what counts by ones from 0 along one axis or is 0."""
    for counting, factor in zip(parts, reversed(node.inputs), strict=True):
        size = number(constants, factor)
        if counting is None or size is None or counting.start:
            continue
        if [stride.by for stride in counting.strides.values()] in ([], [1]):
            axes = _behind(counting, shape)
            return None if axes is None else Count(0, shape, {axis: Stride(size) for axis in axes})
    return None


def _difference(constants: Constants, node: ir.Node, follow: Follow[Count], shape: tuple[Dim, ...]) -> Count | None:
    """For a Sub of integers whose strides are known numbers."""
    parts = [follow(operand) for operand in node.inputs]
    strides: dict[int, int] = {}
    for part, sign in zip(parts, (1, -1), strict=True):
        known = None if part is None else _behind(part, shape)
        if known is None or not all(isinstance(stride.by, int) for stride in known.values()):
            return None
        for axis, stride in known.items():
            assert isinstance(stride.by, int)
            strides[axis] = strides.get(axis, 0) + sign * stride.by
    first, second = (part.start if part is not None else 0 for part in parts)
    return Count(first - second, shape, {axis: Stride(by) for axis, by in strides.items() if by})


def _part(constants: Constants, node: ir.Node, follow: Follow[Count], shape: tuple[Dim, ...]) -> Count | None:
    """For a Slice of neighbours, from a known place on."""
    counted, given = follow(node.inputs[0]), [None if value is None else small(constants, value) for value in node.inputs]
    if counted is None or len(given) < 4 or given[1] is None or given[3] is None:
        return None
    if len(given) > 4 and (given[4] is None or not np.all(given[4] == 1)):
        return None
    start, strides = counted.start, dict(counted.strides)
    for first, axis in zip(given[1].tolist(), (given[3] % len(shape)).tolist(), strict=True):
        by = strides[axis].by if axis in strides else 0
        if first < 0 or not isinstance(by, int):
            return None
        start += first * by
        if axis in strides:
            strides[axis] = Stride(by)
    return Count(start, shape, strides)


def _joined(constants: Constants, node: ir.Node, follow: Follow[Count], shape: tuple[Dim, ...]) -> Count | None:
    """For a Concat of integers that go on counting, as of positions behind the one before them."""
    axis = node.attributes.get_int("axis", 0) % len(shape)
    parts = [part for part in map(follow, node.inputs) if part is not None]
    if not parts or len(parts) < len(node.inputs):
        return None
    strides = {at: stride.by for at, stride in parts[-1].strides.items() if isinstance(stride.by, int)}
    if len(strides) < len(parts[-1].strides):
        return None
    by, at = strides.get(axis, 0), 0
    for index, part in enumerate(parts):
        own = {place: stride.by for place, stride in part.strides.items()} | ({axis: by} if part.shape[axis] == 1 and by else {})
        size = part.shape[axis] if index < len(parts) - 1 else 0
        if own != strides or part.start != parts[0].start + at * by or not isinstance(size, int):
            return None
        at += size
    return Count(parts[0].start, shape, {place: Stride(stride) for place, stride in strides.items()})


_COMBINED: dict[str, Callable[[Constants, ir.Node, Follow[Count], tuple[Dim, ...]], Count | None]] = {
    "Concat": _joined,
    "Slice": _part,
    "Sub": _difference,
}


def number(constants: Constants, value: ir.Value | None) -> Dim | None:
    """The only element of integers, as a number or as a size; None for others."""
    if value is None or value.shape is None or not all(dim == 1 for dim in value.shape):
        return None
    data = value.meta.get(SHAPE_DATA)
    if data is not None and len(data) == 1:
        return data[0]  # type: ignore[no-any-return]
    found = constants.scalar(value)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _rearranged(counted: Count, shape: tuple[Dim, ...]) -> Count | None:
    """The same integers with other axes of size 1."""
    before = [axis for axis, dim in enumerate(counted.shape) if not same_dim(dim, 1)]
    after = [axis for axis, dim in enumerate(shape) if not same_dim(dim, 1)]
    if len(before) != len(after) or not all(same_dim(counted.shape[a], shape[b]) for a, b in zip(before, after, strict=True)):
        return None
    places = dict(zip(before, after, strict=True))
    return Count(counted.start, shape, {places[axis]: stride for axis, stride in counted.strides.items() if axis in places})


def _behind(counted: Count, shape: tuple[Dim, ...]) -> dict[int, Stride] | None:
    """The strides after broadcasting to a shape; None if an axis along which they count may change its size."""
    more = len(shape) - len(counted.shape)
    if more < 0 or not all(same_dim(counted.shape[axis], shape[axis + more]) for axis in counted.strides):
        return None
    return {axis + more: stride for axis, stride in counted.strides.items()}
