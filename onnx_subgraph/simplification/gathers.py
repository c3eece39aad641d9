"""Gathers in simpler form: those of all elements, which only add axes of size 1 to a value or a part of it, and those of rows.

torch vectorizes the function of a mask: it gathers `mask[batch, key]` for every batch and key, with indices that Range makes. The
result is the mask with further axes. Some Reshapes do no more. torch.export gathers rows, `cos[positions]`, by GatherND. Both
exporters gather the rows that a mask chooses, `boxes[scores > 0.5]`, at the places that NonZero gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir

from onnx_subgraph.model.asked import Constants, small
from onnx_subgraph.model.counting import Count, Stride, count, count_of
from onnx_subgraph.model.dimension_names import Dim
from onnx_subgraph.model.shapes import dims, same_dim
from onnx_subgraph.model.surgery import unsqueeze
from onnx_subgraph.operators.elementwise import REARRANGING, REGROUPING
from onnx_subgraph.simplification.axis_orders import named_axes


def as_gather(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """The Gather that gives the result of a GatherND of rows, whose indices got an axis for it; [] for other nodes."""
    if node.op_type != "GatherND" or node.domain or None in node.inputs or node.attributes.get_int("batch_dims", 0) != 0:
        return []
    table, places = node.inputs
    maker = None if places is None else places.producer()
    if places is None or places.shape is None or maker is None or maker.op_type != "Unsqueeze" or maker.domain:
        return []
    rank = len(places.shape)
    if named_axes(constants, maker, rank) != {rank - 1}:
        return []
    name = node.name or node.outputs[0].name
    return [ir.Node("", "Gather", [table, maker.inputs[0]], [ir.AttrInt64("axis", 0)], name=name)]


def as_compress(node: ir.Node) -> list[ir.Node]:
    """The Compress that gives the rows that a mask chooses, if nothing else reads their places; [] for other nodes.

    Rows only: along a later axis, with a mask that chooses little, onnxruntime's Compress takes up to four times as long.
    """
    maker = _maker_of_places(node.inputs[1]) if _gathers_rows(node) else None
    mask = maker.inputs[0] if maker is not None else None
    if maker is None or mask is None or mask.dtype != ir.DataType.BOOL or mask.shape is None or len(mask.shape) != 1:
        return []
    if not _are_for_rows(maker.outputs[0]):
        return []
    name = node.name or node.outputs[0].name
    return [ir.Node("", "Compress", [node.inputs[0], mask], [ir.AttrInt64("axis", 0)], name=name)]


def _gathers_rows(node: ir.Node) -> bool:
    """Whether a node gathers rows at places that are a vector, for GatherND a column."""
    if node.domain or len(node.inputs) != 2 or node.inputs[1] is None or node.inputs[1].shape is None:
        return False
    shape = node.inputs[1].shape
    if node.op_type == "GatherND":
        return len(shape) == 2 and shape[1] == 1 and not node.attributes.get_int("batch_dims", 0)
    return node.op_type == "Gather" and len(shape) == 1 and not node.attributes.get_int("axis", 0)


def _maker_of_places(places: ir.Value | None) -> ir.Node | None:
    """The NonZero whose places these are, in the same order; None for other values."""
    maker = None if places is None else places.producer()
    while maker is not None and _keeps_places(maker):
        source = maker.inputs[0]
        maker = None if source is None else source.producer()
    return maker if maker is not None and maker.op_type == "NonZero" and not maker.domain else None


def _are_for_rows(places: ir.Value) -> bool:
    """Whether only nodes that gather rows read these places."""
    if places.is_graph_output():
        return False
    return all(
        _are_for_rows(reader.outputs[0]) if _keeps_places(reader) else index == 1 and _gathers_rows(reader)
        for reader, index in places.uses()
    )


def _keeps_places(node: ir.Node) -> bool:
    """Whether a node keeps the order of the places that it gets: it may give them other axes."""
    source = next(iter(node.inputs), None)
    if node.domain or node.op_type not in REARRANGING or source is None:
        return False
    return node.op_type != "Transpose" or (source.shape is not None and sum(dim != 1 for dim in source.shape) <= 1)


class Unsqueezed(NamedTuple):
    """A value that gets axes of size 1. columns: indices of the columns of this matrix that are taken; None for all."""

    source: ir.Value
    axes: list[int]
    columns: ir.Value | None = None


def as_unsqueeze(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """The Unsqueeze, behind what it needs, that gives the result of a GatherND, Gather or Reshape; [] for other nodes.

    A Reshape to a constant shape stays: it costs no more. Shapes and elements that inference knows must follow from the inputs
    (`proved_only`).
    """
    found = _unsqueezed(constants, node)
    if found is None:
        return []
    result, name, nodes = node.outputs[0].name, node.name or node.outputs[0].name, list[ir.Node]()
    source = found.source
    if found.columns is not None:
        nodes.append(ir.Node("", "Gather", [source, found.columns], [ir.AttrInt64("axis", 1)], name=f"{name}_columns"))
        source = nodes[0].outputs[0]
        source.name = f"{result}__columns"
    return [*nodes, *unsqueeze(source, found.axes, constants.opset(node), str(name))]


def _unsqueezed(constants: Constants, node: ir.Node) -> Unsqueezed | None:
    if node.domain or len(node.inputs) != 2 or node.inputs[0] is None or node.inputs[1] is None:
        return None
    if node.op_type == "GatherND" and not node.attributes.get_int("batch_dims", 0):
        return _of_pairs(constants, node.inputs[0], node.inputs[1])
    if node.op_type == "Gather" and not node.attributes.get_int("axis", 0):
        return _of_flat(constants, node.inputs[0], node.inputs[1], node.outputs[0])
    if node.op_type == "Reshape" and not constants.is_constant(node.inputs[1]):
        return _of_reshapes(node)
    return None


def _of_pairs(constants: Constants, matrix: ir.Value, indices: ir.Value) -> Unsqueezed | None:
    """For GatherND from a matrix, with pairs of a row and a column."""
    halves, shape = _halves(constants, indices), indices.shape
    strides: list[tuple[int, Stride] | None] = []
    for found in halves:
        if found is None or found.start or len(found.strides) > 1 or any(stride.by != 1 for stride in found.strides.values()):
            return None
        strides.append(next(iter(found.strides.items()), None))
    return _of_matrix(matrix, strides, tuple(shape.dims)[:-1]) if len(strides) == 2 and shape is not None else None


def _halves(constants: Constants, indices: ir.Value) -> list[Count | None]:
    """How the first and the second of each pair along the last axis count; [] where they are not told apart."""
    array, shape, pairs = small(constants, indices), indices.shape, indices.producer()
    if array is not None:
        return [count_of(array[..., half]) for half in range(2)] if array.shape[-1:] == (2,) else []
    if pairs is None or pairs.op_type != "Concat" or pairs.domain or shape is None or len(pairs.inputs) != 2:
        return []
    if pairs.attributes.get_int("axis", 0) not in (-1, len(shape) - 1):
        return []
    found = [count(constants, part) for part in pairs.inputs]
    return [one if one is not None and same_dim(one.shape[-1], 1) else None for one in found]


def _of_flat(constants: Constants, source: ir.Value, indices: ir.Value, result: ir.Value) -> Unsqueezed | None:
    """For Gather from a matrix that was flattened, at row · columns + column."""
    flat, after = source.producer(), dims(result)
    if flat is None or not _keeps_order(flat) or after is None:
        return None
    matrix, found = flat.inputs[0], count(constants, indices)
    shape = dims(matrix)
    if matrix is None or shape is None or len(shape) != 2 or found is None or found.start or len(found.strides) not in (1, 2):
        return None
    row, column = [None, *sorted(found.strides.items())][-2:]
    is_row_major = row is None or same_dim(row[1].by, shape[1])
    return _of_matrix(matrix, [row, column], after) if column is not None and column[1].by == 1 and is_row_major else None


def _of_matrix(matrix: ir.Value, strides: Sequence[tuple[int, Stride] | None], shape: Sequence[Dim]) -> Unsqueezed | None:
    """All rows of a matrix, and all columns or those of a Range, along these axes of the result; the only row along no axis.

    A column that the matrix does not have is an error then; in a flattened matrix it was one of the next row.
    """
    sizes, (rows, columns) = dims(matrix), strides
    if sizes is None or len(sizes) != 2 or columns is None or columns[0] >= len(shape):
        return None
    column, by = columns
    row = next((axis for axis in range(column) if same_dim(shape[axis], 1)), column) if rows is None else rows[0]
    others = [axis for axis in range(len(shape)) if axis not in (row, column)]
    if row >= column or not same_dim(shape[row], sizes[0]) or not all(same_dim(shape[axis], 1) for axis in others):
        return None
    if same_dim(shape[column], sizes[1]):
        return Unsqueezed(matrix, others)
    return None if by.source is None else Unsqueezed(matrix, others, by.source)


def _of_reshapes(node: ir.Node) -> Unsqueezed | None:
    """For a Reshape, maybe behind others, that adds axes to a value: to the earliest one."""
    shape, source = dims(node.outputs[0]), node.inputs[0]
    found: Unsqueezed | None = None
    while source is not None and shape is not None:
        before = dims(source)
        if before is not None and (axes := _added(before, shape)):
            found = Unsqueezed(source, axes)
        maker = source.producer()
        source = maker.inputs[0] if maker is not None and _keeps_order(maker) else None
    return found


def _keeps_order(node: ir.Node) -> bool:
    return not node.domain and node.op_type in REGROUPING


def _added(before: Sequence[Dim], after: Sequence[Dim]) -> list[int]:
    """The axes of size 1 that make the second shape out of the first; [] if there are no such axes."""
    axes, rest = [], list(before)
    for axis, dim in enumerate(after):
        if rest and same_dim(rest[0], dim):
            rest.pop(0)
        elif same_dim(dim, 1):
            axes.append(axis)
        else:
            return []
    return [] if rest else axes
