"""Assignments that write every element: what was there before does not matter.

`y[..., :n] = a; y[..., n:] = b` in torch becomes two ScatterNDs along the first axis, each between Transposes. The result is a
and b side by side, a Concat. That of `y[..., 0::2] = a; y[..., 1::2] = b` is the pairs (a, b). A loop over tokens that is traced
with one token assigns the whole result once: `y[:, :, 0] = a`.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import small
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import same_shape
from onnx_subgraph.model.surgery import constant, unsqueeze

Parts = list[tuple[np.ndarray, ir.Value]]
"""The rows that each of several ScatterNDs writes, and what it writes there; ordered by the first row."""


def as_joined(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """The nodes that give the result of ScatterNDs that write each row once, or of a Transpose of it; [] for other nodes.

    Rows that are written in turn only count behind a Transpose: it shows that they were another axis in the exported code.
    """
    if node.op_type == "ScatterND" and not node.domain and _are(parts := _parts(constants, node), _side_by_side(parts)):
        name = node.name or node.outputs[0].name
        return [ir.Node("", "Concat", [value for _, value in parts], [ir.AttrInt64("axis", 0)], name=f"{name}_joined")]
    if node.op_type == "Transpose" and not node.domain and node.inputs[0] is not None:
        scatter = node.inputs[0].producer()
        if scatter is not None and _are(parts := _parts(constants, scatter), _in_turn(parts)):
            return _interleaved(parts, node, constants.opset(node))
    return []


def writes_all(constants: Constants, node: ir.Node) -> bool:
    """Whether a ScatterND, with those before it, writes as many rows as there are: it may become a Concat."""
    return node.op_type == "ScatterND" and not node.domain and bool(_parts(constants, node))


def written(constants: Constants, node: ir.Node) -> ir.Value | None:
    """What a ScatterND or ScatterElements writes, if it writes every element, each in its place; None for other nodes."""
    if node.domain or node.op_type not in ("ScatterND", "ScatterElements") or len(node.inputs) != 3:
        return None
    data, indices, updates = node.inputs
    if data is None or indices is None or updates is None or not same_shape(updates, data):
        return None
    places = small(constants, indices)
    if places is None or not places.size or data.shape is None or node.attributes.get_string("reduction", "none") != "none":
        return None
    sizes = tuple(data.shape.dims)
    if node.op_type == "ScatterND":
        grid = places.shape[:-1]
        every = len(grid) == places.shape[-1] and grid == sizes[: len(grid)] and _are_coordinates(places)
    else:
        every = places.shape == sizes and _counts_along(places, node.attributes.get_int("axis", 0))
    return updates if every else None


def _are_coordinates(places: np.ndarray) -> bool:
    """Whether the rows along the last axis are the indices of their own places."""
    return np.array_equal(places, np.moveaxis(np.indices(places.shape[:-1]), 0, -1))


def _counts_along(places: np.ndarray, axis: int) -> bool:
    """Whether every element is its own index along this axis."""
    count = np.arange(places.shape[axis]).reshape([-1 if at == axis % places.ndim else 1 for at in range(places.ndim)])
    return np.array_equal(places, np.broadcast_to(count, places.shape))


def _parts(constants: Constants, last: ir.Node) -> Parts:
    """What this ScatterND and those before it write; [] where that is not known, or not as many rows as there are."""
    parts: Parts = []
    node: ir.Node | None = last
    while node is not None and node.op_type == "ScatterND" and not node.domain:
        data, indices, updates = node.inputs
        rows = None if indices is None else constants.array(indices)
        is_plain = node.attributes.get_string("reduction", "none") == "none"
        if (
            data is None
            or updates is None
            or rows is None
            or not is_plain
            or rows.ndim != 2
            or rows.shape[1] != 1
            or not rows.size
        ):
            return []
        parts.append((rows[:, 0], updates))
        if data.shape is not None and data.shape[0] == sum(len(rows) for rows, _ in parts):
            return sorted(parts, key=lambda part: int(part[0][0]))
        node = constants.see_through(data).producer()
    return []


def _are(parts: Parts, rows: list[np.ndarray]) -> bool:
    return bool(parts) and all(np.array_equal(mine, row) for (mine, _), row in zip(parts, rows, strict=True))


def _side_by_side(parts: Parts) -> list[np.ndarray]:
    """The rows of such parts that follow each other."""
    sizes = [len(rows) for rows, _ in parts]
    return [np.arange(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]


def _in_turn(parts: Parts) -> list[np.ndarray]:
    """The rows of such parts that have one row each in turn."""
    return [np.arange(first, sum(len(rows) for rows, _ in parts), len(parts)) for first in range(len(parts))]


def _interleaved(parts: Parts, transpose: ir.Node, opset: int) -> list[ir.Node]:
    """The nodes that put the rows of these parts in turn, along the last axis, and then transpose them.

    Only the last size of their Reshape is a number. The others are copied, also if one is 0.
    """
    result, order = str(transpose.outputs[0].name), list(transpose.attributes.get_ints("perm") or ())
    rank = len(order)
    if rank < 2:
        return []
    swap = [rank - 1, *range(1, rank - 1), 0]
    nodes: list[ir.Node] = []

    def made(node: ir.Node, what: str) -> ir.Value:
        nodes.append(node)
        node.outputs[0].name = f"{result}__{what}"
        return node.outputs[0]

    def transposed(value: ir.Value, perm: list[int], what: str) -> ir.Value:
        return made(ir.Node("", "Transpose", [value], [ir.AttrInt64s("perm", perm)], name=f"{result}_{what}"), what)

    columns: list[ir.Value] = []
    for place, (_, value) in enumerate(parts):
        column = _before(value, swap) or transposed(value, swap, f"column_{place}")
        *axes, apart = unsqueeze(column, [rank], opset, f"{result}__column_{place}")
        nodes += axes
        columns.append(made(apart, f"apart_{place}"))
    pairs = made(ir.Node("", "Concat", columns, [ir.AttrInt64("axis", rank)], name=f"{result}_pairs"), "pairs")
    sizes = constant(np.array([0] * (rank - 1) + [sum(len(rows) for rows, _ in parts)], np.int64), f"{result}__shape")
    nodes.append(sizes)
    joined = made(ir.Node("", "Reshape", [pairs, sizes.outputs[0]], name=f"{result}_joined"), "joined")
    if order != swap:
        transposed(joined, [swap[axis] for axis in order], "transposed")
    return nodes


def _before(value: ir.Value, perm: list[int]) -> ir.Value | None:
    """What a Transpose with this permutation gives the value from; None where it is not from one."""
    node = value.producer()
    is_such = node is not None and node.op_type == "Transpose" and list(node.attributes.get_ints("perm") or ()) == perm
    return node.inputs[0] if node is not None and is_such else None
