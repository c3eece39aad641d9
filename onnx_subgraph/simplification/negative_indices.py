"""Leave out what makes negative indices positive: `Where(i < 0, i + n, i)`, where Gather takes elements along an axis of size n.

Gather, GatherElements and GatherND count negative indices from the end. Keras and JAX add the size before. An index below -n is
an error now; before, it was one only below -2n.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_subgraph.model.asked import Constants
from onnx_subgraph.model.counting import number
from onnx_subgraph.model.dimension_names import Dim
from onnx_subgraph.model.shapes import dims, same_dim, same_shape
from onnx_subgraph.model.uniform import element
from onnx_subgraph.operators.elementwise import REARRANGING

_FROM_THE_END = 11
"""The opset from which Gather counts negative indices from the end."""
_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
_SIGNED = (ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT64)
"""Types to which a cast of integers keeps the sign."""
_MOVING = REARRANGING | {"Expand", "Identity", "Tile"}
"""Operators that give elements of their first operand and no others."""
_COMPARED = {"Less": (0, True), "GreaterOrEqual": (0, False), "Greater": (1, True), "LessOrEqual": (1, False)}
"""Operator → the operand that is compared with 0, and whether the result is true where this is negative."""


def negative_indices(constants: Constants, node: ir.Node, *, is_proved: bool) -> ir.Value | None:
    """The indices, negative ones too, that a Where makes positive; None for other nodes, or where a reader needs them so.

    is_proved: whether one name always stands for one size there (`within_proved`).
    """
    if node.op_type != "Where" or node.domain or constants.opset(node) < _FROM_THE_END:
        return None
    condition, *sides = node.inputs
    for index, shifted, where_negative in ((sides[1], sides[0], True), (sides[0], sides[1], False)):
        if index is None or index.dtype not in _INTEGERS or _is_negative(constants, condition, index) is not where_negative:
            continue
        size = _added(constants, index, shifted)
        if size is None or not (is_proved or isinstance(size, int)) or not same_shape(index, node.outputs[0]):
            continue
        if _only_index(node.outputs[0], size):
            return index
    return None


def _is_negative(constants: Constants, condition: ir.Value | None, index: ir.Value) -> bool | None:
    """Whether a condition is true where an index is negative (True) or where it is not (False); None for other conditions."""
    node = None if condition is None else condition.producer()
    if node is None or node.domain:
        return None
    if node.op_type == "Not":
        inner = _is_negative(constants, node.inputs[0], index)
        return None if inner is None else not inner
    place, answer = _COMPARED.get(node.op_type, (None, False))
    if place is None or _uncast(node.inputs[place]) is not _uncast(index):
        return None
    bound = element(constants, node.inputs[1 - place])
    return answer if bound is not None and bound == 0 else None


def _added(constants: Constants, index: ir.Value, shifted: ir.Value | None) -> Dim | None:
    """The number or size that is added to an index."""
    node = None if shifted is None else shifted.producer()
    if node is None or node.domain or node.op_type != "Add":
        return None
    for one, other in (node.inputs, reversed(node.inputs)):
        if _uncast(one) is _uncast(index) and other is not None:
            size, everywhere = number(constants, other), element(constants, other)
            return size if everywhere is None else int(everywhere)
    return None


def _uncast(value: ir.Value | None) -> ir.Value | None:
    """The integers that a value has been cast from, with their signs."""
    node = None if value is None else value.producer()
    while node is not None and not node.domain and node.op_type == "Cast" and node.outputs[0].dtype in _SIGNED:
        source = node.inputs[0]
        if source is None or source.dtype not in _INTEGERS:
            break
        value, node = source, source.producer()
    return value


def _only_index(value: ir.Value, size: Dim) -> bool:
    """Whether a value has no other use than as indices along axes of this size."""
    uses, maker = list(value.uses()), value.producer()
    is_here = maker is not None and all(user.graph is maker.graph for user, _ in uses)
    return is_here and bool(uses) and not value.is_graph_output() and all(_is_index(user, at, size) for user, at in uses)


def _is_index(user: ir.Node, place: int, size: Dim) -> bool:
    if user.domain:
        return False
    if user.op_type == "Concat":
        return _is_column(user, place, size)
    if place == 0:
        return (user.op_type in _MOVING or _is_widened(user)) and _only_index(user.outputs[0], size)
    shape, places = dims(user.inputs[0]), dims(user.inputs[1])
    if shape is None or places is None or place != 1:
        return False
    if user.op_type in ("Gather", "GatherElements"):
        return same_dim(shape[user.attributes.get_int("axis", 0)], size)
    return user.op_type == "GatherND" and _are_of_size(user, 0, places[-1], size)


def _is_widened(user: ir.Node) -> bool:
    return user.op_type == "Cast" and not user.domain and user.outputs[0].dtype == ir.DataType.INT64


def _is_column(joined: ir.Node, place: int, size: Dim) -> bool:
    """Whether an operand of a Concat gives columns of the indices of GatherND, along axes of this size."""
    shapes = [dims(operand) for operand in joined.inputs]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or joined.attributes.get_int("axis", 0) not in (-1, len(known[0]) - 1):
        return False
    before = [shape[-1] for shape in known[:place]]
    numbers = [dim for dim in before if isinstance(dim, int)]
    return len(numbers) == len(before) and _are_columns(joined.outputs[0], sum(numbers), known[place][-1], size)


def _are_columns(indices: ir.Value, first: int, count: Dim, size: Dim) -> bool:
    """Whether indices have no other use than by GatherND, whose axes for these columns are of this size."""
    if indices.is_graph_output():
        return False
    for user, at in indices.uses():
        if _is_widened(user):
            if not _are_columns(user.outputs[0], first, count, size):
                return False
        elif user.op_type != "GatherND" or user.domain or at != 1 or not _are_of_size(user, first, count, size):
            return False
    return True


def _are_of_size(gather: ir.Node, first: int, count: Dim, size: Dim) -> bool:
    """Whether the axes to which these columns of the indices of a GatherND belong are of this size."""
    shape: Sequence[Dim] | None = dims(gather.inputs[0])
    if shape is None or not isinstance(count, int):
        return False
    first += gather.attributes.get_int("batch_dims", 0)
    return all(same_dim(dim, size) for dim in shape[first : first + count])
