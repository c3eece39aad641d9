"""Whether a value repeats along its last axis: two equal halves, or each element twice.

Tables of cosines and sines for rotary embeddings do, because two elements share an angle. The proof is the constant itself, or
how the value is computed: joined or stacked with itself, then only operations that are elementwise, by row, or on other axes.
Values of pairs may also be concatenated with each other along the last axis.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.follow import Follow
from onnx_subgraph.operators.elementwise import REGROUPING

ELEMENTWISE = frozenset({"Abs", "Cast", "Cos", "Exp", "Identity", "Neg", "Reciprocal", "Sin", "Sqrt"})
BROADCASTING = frozenset({"Add", "Sub", "Mul", "Div"})

Repetition = Literal["halves", "pairs"]
"""Two equal halves of each row, or each element twice."""

Base = Callable[[Constants, ir.Value], "bool | None"]
"""Whether a value repeats, judged by the value and its own node alone; None where unknown."""


def doubled(constants: Constants, value: ir.Value) -> bool | None:
    """Whether the two halves of each row are equal; None where unknown."""
    return Follow(partial(_repeats, constants, _joined_to_itself))(value)


def paired(constants: Constants, value: ir.Value) -> bool | None:
    """Whether each row has every element twice in succession; None where unknown."""
    return Follow(partial(_repeats, constants, _each_twice))(value)


def _repeats(constants: Constants, base: Base, value: ir.Value, follow: Follow[bool]) -> bool | None:
    source = constants.see_through(value)
    found = base(constants, source)
    node = source.producer()
    if found is not None or node is None or node.domain:
        return found
    rows = _joined(node, base) if node.op_type == "Concat" else _rows(constants, node)
    # Never False here: rows that do not repeat can still give a result that does, as Abs of [1, -1].
    return True if rows and all(map(follow, rows)) else None


def _rows(constants: Constants, node: ir.Node) -> list[ir.Value]:
    """The operands whose rows a node preserves; its result repeats if all of them do. [] where there are none."""
    inputs = [v for v in node.inputs if v is not None]
    if node.op_type in BROADCASTING:
        return [v for v in inputs if _last(v) != 1]
    if node.op_type in ELEMENTWISE:
        return inputs[:1]
    last = _last(node.outputs[0])
    if last is None or not inputs or _last(inputs[0]) != last:
        return []
    whole = node.op_type in REGROUPING or (node.op_type == "Gather" and _is_of_rows(node)) or _keeps_last(constants, node)
    return inputs[:1] if whole else []


def _joined(node: ir.Node, base: Base) -> list[ir.Value]:
    """The values that a Concat joins, if each of its rows repeats where theirs do; else [].

    Along the last axis only pairs do, because a value of pairs has an even length. The result has other halves.
    """
    stays = node.outputs[0].shape is not None and (base is _each_twice or not _along(node, -1))
    return [v for v in node.inputs if v is not None] if stays else []


def _joined_to_itself(constants: Constants, value: ir.Value) -> bool | None:
    array = constants.array(value)
    if array is not None:
        half = array.shape[-1] // 2 if array.ndim else 0
        return half > 0 and bool(np.array_equal(array[..., :half], array[..., half:]))
    node, axis = value.producer(), -1
    if node is not None and node.op_type == "Transpose" and not node.domain and node.inputs[0] is not None:
        order = node.attributes.get_ints("perm") or (0,)
        node, axis = constants.see_through(node.inputs[0]).producer(), order[-1] - len(order)
    if node is None or node.domain or node.op_type != "Concat" or not _along(node, axis):
        return _merges_copies(constants, value, -2)
    return _is_one_value(constants, node)


def _each_twice(constants: Constants, value: ir.Value) -> bool | None:
    array = constants.array(value)
    if array is not None:
        return array.ndim > 0 and array.shape[-1] % 2 == 0 and bool(np.array_equal(array[..., ::2], array[..., 1::2]))
    return _merges_copies(constants, value, -1)


def _merges_copies(constants: Constants, value: ir.Value, axis: int) -> bool | None:
    """Whether the last axis merges two axes, and along one of them (-1 or -2) are two copies; None where unknown."""
    node = value.producer()
    if node is None or node.domain or node.op_type not in REGROUPING or node.inputs[0] is None:
        return None
    apart = constants.see_through(node.inputs[0])
    rows, row = (None, None) if apart.shape is None or len(apart.shape) < 2 else apart.shape[-2:]
    if not isinstance(rows, int) or not isinstance(row, int) or _last(value) != rows * row or (rows, row)[axis] != 2:
        return None
    made = apart.producer()
    one = None if made is None or made.domain or made.inputs[0] is None else made.inputs[0].shape
    if made is None or one is None or (len(one) >= -axis and one[axis] != 1):
        return None
    if made.op_type in ("Expand", "Tile"):
        return True
    return _is_one_value(constants, made) if made.op_type == "Concat" and _along(made, axis) else None


def _is_one_value(constants: Constants, node: ir.Node) -> bool | None:
    """Whether a Concat joins one value with itself; None where it joins others, which may be equal."""
    if len(node.inputs) != 2 or node.inputs[0] is None or node.inputs[1] is None:
        return None
    return True if constants.see_through(node.inputs[0]) is constants.see_through(node.inputs[1]) else None


def _last(value: ir.Value) -> int | None:
    """The size of the last axis, None where unknown; 1 for a scalar."""
    dim = None if value.shape is None else value.shape[-1] if len(value.shape) else 1
    return dim if isinstance(dim, int) else None


def _along(node: ir.Node, axis: int) -> bool:
    """Whether a node works along this axis, counted from the end."""
    rank = None if node.outputs[0].shape is None else node.outputs[0].shape.rank()
    return rank is not None and node.attributes.get_int("axis", 0) in (axis, rank + axis)


def _is_of_rows(node: ir.Node) -> bool:
    """Whether a Gather is along another axis than the last."""
    table = node.inputs[0]
    rank = 0 if table is None or table.shape is None else table.shape.rank()
    return rank > 1 and node.attributes.get_int("axis", 0) % rank != rank - 1


def _keeps_last(constants: Constants, node: ir.Node) -> bool:
    """Whether a node repeats, slices or moves only axes other than the last."""
    if node.op_type == "Transpose":
        order = node.attributes.get_ints("perm") or ()
        return bool(order) and order[-1] == len(order) - 1
    if node.op_type == "Slice" and len(node.inputs) > 4 and node.inputs[4] is not None:
        steps = constants.array(node.inputs[4])
        return steps is not None and bool((steps == 1).all())
    return node.op_type in ("Slice", "Expand")
