"""Reshapes to constant shapes, Transposes and Gathers that are Reshapes, and chains of both that are one Transpose.

A Reshape does not copy the elements, in contrast to a Transpose, and can be joined with the Reshapes around it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import small
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.dimension_names import Dim
from onnx_subgraph.model.shapes import same_dim
from onnx_subgraph.model.surgery import constant, squeeze, unsqueeze
from onnx_subgraph.simplification.axis_orders import layout_of

_SHAPE_AS_INPUT = 5
"""The first opset in which the shape of a Reshape is an input."""


def as_reshape(node: ir.Node, opset: int) -> list[ir.Node]:
    """The Reshape, behind its shape, that gives the result of a Transpose which only moves axes of size 1; [] for other nodes.

    Such a Transpose comes from a batch of one behind the length. Shapes must follow from the inputs (`proved_only`).
    """
    if node.op_type != "Transpose" or node.domain or opset < _SHAPE_AS_INPUT:
        return []
    source, order, result = node.inputs[0], node.attributes.get("perm"), node.outputs[0]
    if source is None or source.shape is None or order is None or order.is_ref():
        return []
    axes = order.as_ints()
    moved = [axis for axis in axes if source.shape[axis] != 1]
    sizes = [source.shape[axis] for axis in axes]
    if moved != sorted(moved) or 0 in sizes:
        return []
    numbers = [
        size if isinstance(size, int) else 0 if at == axis else -1
        for at, (axis, size) in enumerate(zip(axes, sizes, strict=True))
    ]
    if numbers.count(-1) > 1 or (-1 in numbers and 0 in numbers):
        return []
    made = constant(np.array(numbers, np.int64), f"{result.name}__shape")
    return [made, ir.Node("", "Reshape", [source, made.outputs[0]], name=f"{node.name or result.name}_reshaped")]


def as_transpose(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """The Transpose that gives the result of a chain of Transposes and of nodes that add and remove axes of size 1.

    [] if there is no such chain, or something else reads a value between. Einsums with an axis for groups are computed so.
    """
    layout, source = layout_of(constants, node), node.inputs[0] if node.inputs else None
    found: tuple[ir.Value, list[int]] | None = None
    while layout is not None and source is not None:
        maker = source.producer()
        if maker is None or maker.graph is not node.graph or len(source.uses()) > 1 or source.is_graph_output():
            break
        before = layout_of(constants, maker)
        if before is None:
            break
        layout, source = before.then(layout), maker.inputs[0]
        order = layout.as_permutation()
        if source is not None and order is not None and order != sorted(order):
            found = source, order
    if found is None:
        return []
    name = node.name or node.outputs[0].name
    return [ir.Node("", "Transpose", [found[0]], [ir.AttrInt64s("perm", found[1])], name=f"{name}_transposed")]


def as_one_step(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """The Unsqueeze or Squeeze that gives the result of two, or the Gather of an element that gets its axis back at once.

    [] for other nodes, and where something else reads the value between. torch's `x[:, :, None, None]` adds one axis after the
    other, and a size is gathered as a number, which becomes a vector.
    """
    between = node.inputs[0] if node.inputs else None
    maker = None if between is None else between.producer()
    if node.op_type not in ("Unsqueeze", "Squeeze") or node.domain or between is None or maker is None or maker.domain:
        return []
    source, name, opset = maker.inputs[0] if maker.inputs else None, str(node.name or node.outputs[0].name), constants.opset(node)
    if source is None or maker.graph is not node.graph or len(between.uses()) > 1 or between.is_graph_output():
        return []
    if maker.op_type == "Gather" and node.op_type == "Unsqueeze":
        return _gathered(constants, maker, node.outputs[0], name)
    first, second = layout_of(constants, maker), layout_of(constants, node)
    if maker.op_type != node.op_type or first is None or second is None:
        return []
    layout = first.then(second)
    if node.op_type == "Squeeze":
        return squeeze(source, list(layout.dropped), opset, name)
    return unsqueeze(source, [axis for axis, old in enumerate(layout.order) if old is None], opset, name)


def _gathered(constants: Constants, gather: ir.Node, result: ir.Value, name: str) -> list[ir.Node]:
    """The Gather that gives an element of a vector as a vector; [] for another Gather."""
    place = None if gather.inputs[1] is None else small(constants, gather.inputs[1])
    if place is None or place.ndim or result.shape is None or len(result.shape) != 1:
        return []
    made = constant(place.reshape(1), f"{result.name}__place")
    return [made, ir.Node("", "Gather", [gather.inputs[0], made.outputs[0]], [ir.AttrInt64("axis", 0)], name=f"{name}_gathered")]


def as_squeeze(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """The Squeeze that gives the result of a Gather of the only element along an axis; [] for other nodes.

    A loop over the tokens of a sequence, traced with one token, has such Gathers. Shapes must follow from the inputs.
    """
    if node.op_type != "Gather" or node.domain or node.inputs[0] is None or node.inputs[1] is None:
        return []
    source, place, axis = node.inputs[0], small(constants, node.inputs[1]), node.attributes.get_int("axis", 0)
    if place is None or place.ndim or int(place) not in (0, -1) or source.shape is None or source.shape[axis] != 1:
        return []
    return squeeze(source, [axis % source.shape.rank()], constants.opset(node), str(node.name or node.outputs[0].name))


def target(
    source: ir.Shape | None, result: ir.Shape | None, requested: Sequence[Dim], names: Collection[str]
) -> list[int] | None:
    """The target of a Reshape as numbers: 0 copies a dimension of the operand, -1 is computed from the others.

    requested: the elements of the target as far as they are known. names: those of sizes that are at least 1. None where numbers
    cannot express the shape. Uses both -1 and 0 only where no copied dimension can be 0, or the target has the -1: it cannot be
    computed then.
    """
    if source is None or result is None or any(dim == 0 for dim in result):
        return None
    unknown = [axis for axis, dim in enumerate(result) if not isinstance(dim, int)]
    if len(unknown) == 1:
        return [dim if isinstance(dim, int) else -1 for dim in result]
    copied = [axis for axis in unknown if axis < len(source) and same_dim(source[axis], result[axis])]
    others = [axis for axis in unknown if axis not in copied]
    computed = [axis for axis, dim in enumerate(requested) if dim == -1]
    if len(others) > 1 or (others and others != computed and not all(_is_named(result[axis], names) for axis in copied)):
        return None
    return [dim if isinstance(dim, int) else -1 if axis in others else 0 for axis, dim in enumerate(result)]


def _is_named(dim: Dim, names: Collection[str]) -> bool:
    return isinstance(dim, ir.SymbolicDim) and dim.value in names
