"""Whether a value repeats along its last axis: two equal halves, or each element twice.

Tables of cosines and sines for rotary embeddings do, because two elements share an angle. The proof is the constant itself, or
how the value is computed: a value concatenated with itself, then only operations that are elementwise, by row, or on other axes.
Values of pairs may also be concatenated with each other along the last axis.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.follow import Follow
from onnx_subgraph.operators.elementwise import REGROUPING

ELEMENTWISE = frozenset({"Abs", "Cast", "Cos", "Exp", "Identity", "Neg", "Reciprocal", "Sin", "Sqrt"})
BROADCASTING = frozenset({"Add", "Sub", "Mul", "Div"})

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
    stays = node.outputs[0].shape is not None and (base is _each_twice or not _along_last(node))
    return [v for v in node.inputs if v is not None] if stays else []


def _joined_to_itself(constants: Constants, value: ir.Value) -> bool | None:
    array = constants.array(value)
    if array is not None:
        half = array.shape[-1] // 2 if array.ndim else 0
        return half > 0 and bool(np.array_equal(array[..., :half], array[..., half:]))
    node = value.producer()
    if node is None or node.domain or node.op_type != "Concat" or len(node.inputs) != 2 or not _along_last(node):
        return None
    first, second = node.inputs
    return (
        True
        if first is not None and second is not None and constants.see_through(first) is constants.see_through(second)
        else None
    )


def _each_twice(constants: Constants, value: ir.Value) -> bool | None:
    array = constants.array(value)
    if array is not None:
        return array.ndim > 0 and array.shape[-1] % 2 == 0 and bool(np.array_equal(array[..., ::2], array[..., 1::2]))
    node = value.producer()
    if node is None or node.domain or node.op_type not in REGROUPING or node.inputs[0] is None:
        return None
    pairs = constants.see_through(node.inputs[0])
    rows, last = (pairs.shape[-2] if pairs.shape is not None and len(pairs.shape) > 1 else None), _last(value)
    if not (isinstance(rows, int) and last == 2 * rows and _last(pairs) == 2):
        return None
    repeated = pairs.producer()
    if repeated is None or repeated.domain or repeated.inputs[0] is None or _last(repeated.inputs[0]) != 1:
        return None
    if repeated.op_type in ("Expand", "Tile"):
        return True
    return True if repeated.op_type == "Concat" and _along_last(repeated) and _joined_to_itself(constants, pairs) else None


def _last(value: ir.Value) -> int | None:
    """The size of the last axis, None where unknown; 1 for a scalar."""
    dim = None if value.shape is None else value.shape[-1] if len(value.shape) else 1
    return dim if isinstance(dim, int) else None


def _along_last(node: ir.Node) -> bool:
    rank = None if node.outputs[0].shape is None else node.outputs[0].shape.rank()
    return rank is not None and node.attributes.get_int("axis", 0) in (-1, rank - 1)


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
