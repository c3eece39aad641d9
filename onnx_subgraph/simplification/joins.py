"""What is taken of joined values is taken of the one that has it.

Networks with rotary embeddings join the angles with themselves and take the cosines; a fused operator needs those of one half.
Detection networks stack the results of all layers of their decoder and read the last one, or stack the sides of boxes and take
them apart again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import Constants, small
from onnx_subgraph.model.repetition import ELEMENTWISE
from onnx_subgraph.model.shapes import same_dim
from onnx_subgraph.model.surgery import TO_THE_END, constant, sliced


class _Part(NamedTuple):
    """What a node takes along the axis of a Concat: of which operand, and which elements of that. indices: None for all of it.

    A Gather takes these indices, a Slice from the first to before the second.
    """

    operand: ir.Value
    indices: np.ndarray | None


def as_parts(constants: Constants, node: ir.Node) -> dict[ir.Value, list[ir.Node]]:
    """The nodes that give what a Gather, Slice or Split takes of a Concat, by its results; {} for other nodes.

    Operators on single elements may stand between, if one result is read and nothing else reads what they give.
    """
    if node.domain or node.op_type not in ("Gather", "Slice", "Split") or not node.inputs or node.inputs[0] is None:
        return {}
    read = [index for index, result in enumerate(node.outputs) if result.uses() or result.is_graph_output()]
    between: list[ir.Node] = []
    joined = node.inputs[0].producer()
    while joined is not None and not joined.domain and joined.op_type in ELEMENTWISE:
        if len(joined.outputs[0].uses()) > 1 or joined.outputs[0].is_graph_output() or len(read) > 1:
            return {}
        between.append(joined)
        joined = None if joined.inputs[0] is None else joined.inputs[0].producer()
    if joined is None or joined.domain or joined.op_type != "Concat":
        return {}
    made = {}
    for index in read:
        part = _part(constants, joined, node, index)
        if part is None:
            return {}
        made[node.outputs[index]] = _taken(part, between, node, index)
    return made


def _taken(part: _Part, between: Sequence[ir.Node], node: ir.Node, index: int) -> list[ir.Node]:
    """The nodes that give a result of `node`, from the operand of the Concat."""
    name, (value, indices), made = f"{node.outputs[index].name}__part", part, list[ir.Node]()
    for old in reversed(between):
        made.append(ir.Node("", old.op_type, [value], list(old.attributes.values()), name=f"{old.name or name}_part"))
        value = made[-1].outputs[0]
        value.name = f"{name}_{len(made)}"
    axis = node.attributes.get_int("axis", 0)
    if indices is None:
        return made or [ir.Node("", "Identity", [value], name=name)]
    if node.op_type == "Slice":
        start, end, axis = indices.tolist()
        return [*made, *sliced(value, start, end, axis, name)]
    place = constant(indices, f"{name}_place")
    return [*made, place, ir.Node("", "Gather", [value, place.outputs[0]], [ir.AttrInt64("axis", axis)], name=name)]


def _part(constants: Constants, joined: ir.Node, node: ir.Node, index: int) -> _Part | None:
    """What one result of a node takes of a Concat; None if it is not all of one operand."""
    operands = [value for value in joined.inputs if value is not None and value.shape is not None]
    if len(operands) < len(joined.inputs) or not operands:
        return None
    rank = len(operands[0].shape or ())
    axis = joined.attributes.get_int("axis", 0) % rank
    if any(value.shape is None or len(value.shape) != rank for value in operands):
        return None
    if node.op_type == "Split":
        return _of_split(operands, node, index) if node.attributes.get_int("axis", 0) % rank == axis else None
    sizes = [size if value.shape is not None and isinstance(size := value.shape[axis], int) else None for value in operands]
    if node.op_type == "Gather":
        places = None if node.inputs[1] is None else small(constants, node.inputs[1])
        is_along = places is not None and places.size and node.attributes.get_int("axis", 0) % rank == axis
        return _of_gather(operands, sizes, places) if is_along and places is not None else None
    numbers = [None if value is None else small(constants, value) for value in node.inputs[1:]]
    if len(numbers) < 3 or any(number is None or number.size != 1 for number in numbers):
        return None
    start, end, along, *steps = (int(number.item()) for number in numbers if number is not None)
    return _of_slice(operands, sizes, start, end, axis) if along % rank == axis and steps in ([], [1]) else None


def _of_split(operands: Sequence[ir.Value], split: ir.Node, index: int) -> _Part | None:
    """For a result of a Split that is a whole operand, because those before it have the sizes of the results before."""
    if len(operands) <= index:
        return None
    for value, result in zip(operands, split.outputs[: index + 1], strict=False):
        axis = split.attributes.get_int("axis", 0)
        if value.shape is None or result.shape is None or not same_dim(value.shape[axis], result.shape[axis]):
            return None
    return _Part(operands[index], None)


def _of_gather(operands: Sequence[ir.Value], sizes: Sequence[int | None], places: np.ndarray) -> _Part | None:
    """For indices that are all in one operand, of a known size."""
    for at, (operand, size) in enumerate(zip(operands, sizes, strict=True)):
        before, behind = _sum(sizes[:at]), _sum(sizes[at + 1 :])
        shift = None if before is None else -before, None if behind is None or size is None else behind + size
        if size is None or any(shift[negative] is None for negative in {int(place < 0) for place in places.flat}):
            continue
        found = np.where(places < 0, places + (shift[1] or 0), places + (shift[0] or 0)).astype(places.dtype)
        if np.all((found >= 0) & (found < size)):
            return _Part(operand, found)
    return None


def _of_slice(operands: Sequence[ir.Value], sizes: Sequence[int | None], start: int, end: int, axis: int) -> _Part | None:
    """For a Slice that begins and ends within one operand, whatever sizes are not known."""
    for at, (operand, size) in enumerate(zip(operands, sizes, strict=True)):
        before, behind = _sum(sizes[:at]), _sum(sizes[at + 1 :])
        first, last = _first(start, before, size, behind), _last(end, before, size, behind)
        if first is None or last is None:
            continue
        is_whole = first == 0 and last in (TO_THE_END, size)
        return _Part(operand, None if is_whole else np.array([first, last, axis], np.int64))
    return None


def _first(start: int, before: int | None, size: int | None, behind: int | None) -> int | None:
    """The start of a Slice as one of the operand between these sizes; None where it may begin before that."""
    if start >= 0:
        return start - before if before is not None and start >= before else None
    known = size is not None and behind is not None
    return start + behind + size if known and size is not None and behind is not None and start + behind >= -size else None


def _last(end: int, before: int | None, size: int | None, behind: int | None) -> int | None:
    """The end of a Slice as one of the operand between these sizes; None where it may end behind that."""
    if end >= TO_THE_END:
        return TO_THE_END if behind == 0 else None
    if end >= 0:
        return end - before if before is not None and size is not None and before <= end <= before + size else None
    if behind is None or end + behind > 0:
        return None
    return end + behind or TO_THE_END


def _sum(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
