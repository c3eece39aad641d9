"""Which row of its operands a node needs to compute one row of its result.

A row is one element along some axis: the values of one token, for instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import onnx_ir as ir

from onnx_subgraph.model.asked import small
from onnx_subgraph.model.broadcasting import Dim
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import SHAPE_DATA, same_dim, same_shape
from onnx_subgraph.operators.elementwise import is_elementwise
from onnx_subgraph.simplification.axis_orders import layout_of, named_axes

Places = list[tuple[int, int]]
"""Operands of a node, as (index, axis): it computes one row if each of them has this one row along the axis."""

_SHAPED_AS_FIRST = frozenset({"Clip", "CastLike"})
"""Elementwise operators whose further operands have no axis of the first one."""
_SOFTMAX_ALONG_ONE_AXIS = 13
"""The first opset in which Softmax works along one axis, not along all from this axis on."""


def row_operands(constants: Constants, node: ir.Node, axis: int) -> Places | None:
    """The operands of which the node needs one row for one row of its result along `axis`; None where it needs other rows.

    Of other operands it needs all. If several results of the node are read, this is the row of each.
    """
    result, first = node.outputs[0], next(iter(node.inputs), None)
    if first is None or first.shape is None or result.shape is None:
        return None
    if is_elementwise(node.op_type, node.domain):
        return _broadcast(node.inputs[:1] if node.op_type in _SHAPED_AS_FIRST else node.inputs, result.shape, axis)
    if node.domain == "com.microsoft":
        return _of_contrib(node, axis)
    if node.domain:
        return None
    match node.op_type:
        case "MatMul":
            return _of_product(node, result.shape, axis)
        case "Gemm":
            return _of_gemm(node, result.shape, axis)
        case "Attention":
            return _of_attention(node, axis)
        case "Concat":
            is_along = node.attributes.get_int("axis", 0) % len(result.shape) == axis
            return None if is_along else [(index, axis) for index in range(len(node.inputs))]
    before = _before(constants, node, axis)
    return None if before is None else [(0, before)]


def _before(constants: Constants, node: ir.Node, axis: int) -> int | None:
    """The axis of the first operand that is `axis` of the result, if no row depends on others; None if there is none."""
    rank = len(node.outputs[0].shape or ())
    match node.op_type:
        case "Transpose" | "Squeeze" | "Unsqueeze":
            layout = layout_of(constants, node)
            return None if layout is None else layout.order[axis]
        case "Reshape":
            return _before_reshape(constants, node, axis)
        case "Split":
            return None if node.attributes.get_int("axis", 0) % rank == axis else axis
        case "Slice":
            axes = small(constants, node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] is not None else None
            return None if axes is None or axis in axes % rank else axis
        case "Softmax" | "LogSoftmax":
            return None if axis in _normalized(constants, node, rank) else axis
        case "LayerNormalization" | "RMSNormalization" | "SimplifiedLayerNormalization":
            first = node.attributes.get_int("axis", -1) % rank
            return axis if axis < first and all(_has_no_rows(v, rank - first) for v in node.inputs[1:]) else None
        case "QuantizeLinear" | "DequantizeLinear":
            scale = node.inputs[1]
            return axis if scale is not None and scale.shape is not None and not len(scale.shape) else None
        case name:
            return _before_reduction(constants, node, axis) if name.startswith("Reduce") else None


def _has_no_rows(value: ir.Value | None, axes: int) -> bool:
    """Whether a scale or bias has at most the last axes. onnxruntime takes one with a row for each row, too."""
    return value is None or (value.shape is not None and len(value.shape) <= axes)


def _broadcast(operands: Sequence[ir.Value | None], shape: ir.Shape, axis: int) -> Places | None:
    """The operands that have the axis of a result of this shape; None where it is not known which."""
    places = []
    for index, value in enumerate(operands):
        if value is None:
            continue
        if value.shape is None:
            return None
        at = axis - len(shape) + len(value.shape)
        if at < 0 or value.shape[at] == 1:
            continue
        if not same_dim(value.shape[at], shape[axis]):
            return None
        places.append((index, at))
    return places


def _of_product(node: ir.Node, shape: ir.Shape, axis: int) -> Places | None:
    left, right = node.inputs
    if left is None or right is None or left.shape is None or right.shape is None:
        return None
    if min(len(left.shape), len(right.shape)) < 2 or axis == len(shape) - 1:
        return None
    return [(0, len(left.shape) - 2)] if axis == len(shape) - 2 else _broadcast(node.inputs, shape, axis)


def _of_gemm(node: ir.Node, shape: ir.Shape, axis: int) -> Places | None:
    if axis or node.attributes.get_int("transA", 0):
        return None
    addend = _broadcast(node.inputs[2:], shape, axis)
    return None if addend is None else [(0, 0), *((2, at) for _, at in addend)]


def _of_contrib(node: ir.Node, axis: int) -> Places | None:
    """For the operators that onnxruntime adds to the standard."""
    first, rank = node.inputs[0], len(node.outputs[0].shape or ())
    assert first is not None
    match node.op_type:
        case "BiasGelu" | "FastGelu" | "MatMulNBits":
            return [(0, axis)] if axis < rank - 1 else None
        case "SkipLayerNormalization" | "SkipSimplifiedLayerNormalization":
            return [(0, axis), (1, axis)] if axis < rank - 1 and same_shape(first, node.inputs[1]) else None
        case "FusedMatMul":
            is_turned = any(node.attributes.get_int(name, 0) for name in ("transA", "transBatchA", "transBatchB"))
            shape = node.outputs[0].shape
            return None if is_turned or shape is None else _of_product(node, shape, axis)
        case "FusedGemm":
            shape = node.outputs[0].shape
            return None if shape is None else _of_gemm(node, shape, axis)
        case "MultiHeadAttention":
            return _of_multi_head(node, axis)
    return None


def _of_multi_head(node: ir.Node, axis: int) -> Places | None:
    """For MultiHeadAttention, whose queries have the shape [batch, length, heads · size], with keys of their own."""
    inputs = list(node.inputs) + [None for _ in range(6)]
    query, key, padding, bias = inputs[0], inputs[1], inputs[4], inputs[5]
    if query is None or query.shape is None or key is None or any(value is not None for value in inputs[6:]):
        return None
    if axis != 1 or len(query.shape) != 3 or node.attributes.get_int("unidirectional", 0) != 0 or _is_cached(node):
        return None
    if padding is not None and (padding.shape is None or len(padding.shape) > 2):
        return None
    return _with_bias(query, axis, bias, 5)


def _of_attention(node: ir.Node, axis: int) -> Places | None:
    """For Attention of the standard, with queries of the shape [batch, heads, length, size] or [batch, length, width]."""
    query, mask = node.inputs[0], node.inputs[3] if len(node.inputs) > 3 else None
    if query is None or query.shape is None or any(value is not None for value in node.inputs[4:]):
        return None
    if node.attributes.get_int("is_causal", 0) or axis != len(query.shape) - 2 or _is_cached(node):
        return None
    return _with_bias(query, axis, mask, 3)


def _is_cached(node: ir.Node) -> bool:
    """Whether something reads the keys and values that an attention gives beside its result."""
    return any(value.uses() or value.is_graph_output() for value in node.outputs[1:])


def _with_bias(query: ir.Value, axis: int, bias: ir.Value | None, index: int) -> Places | None:
    """The query and, if it has rows, the bias of the scores, whose last two axes are those of queries and keys."""
    if bias is None:
        return [(0, axis)]
    if bias.shape is None or len(bias.shape) < 2:
        return None
    at = len(bias.shape) - 2
    if bias.shape[at] == 1:
        return [(0, axis)]
    return [(0, axis), (index, at)] if query.shape is not None and same_dim(bias.shape[at], query.shape[axis]) else None


def _normalized(constants: Constants, node: ir.Node, rank: int) -> range:
    """The axes along which a Softmax works."""
    is_one = constants.opset(node) >= _SOFTMAX_ALONG_ONE_AXIS
    axis = node.attributes.get_int("axis", -1 if is_one else 1) % rank
    return range(axis, axis + 1 if is_one else rank)


def _before_reduction(constants: Constants, node: ir.Node, axis: int) -> int | None:
    """The axis of the operand of a reduction that the result has as `axis`; None for one that was reduced."""
    source = node.inputs[0]
    assert source is not None and source.shape is not None
    rank = len(source.shape)
    gone = named_axes(constants, node, rank)
    if not gone:
        return None
    kept = [at for at in range(rank) if at not in gone]
    before = axis if node.attributes.get_int("keepdims", 1) else kept[axis]
    return None if before in gone else before


def _before_reshape(constants: Constants, node: ir.Node, axis: int) -> int | None:
    """The axis of the operand of a Reshape that the result has as `axis`; None where it is split or merged."""
    source, shape, result = node.inputs[0], node.inputs[1], node.outputs[0].shape
    assert source is not None and source.shape is not None and result is not None
    before = source.shape
    at = next((at for at, dim in enumerate(before) if same_dim(dim, result[axis]) and _is_at(before, at, result, axis)), None)
    if shape is None or at is None or at == axis:
        return at
    array = small(constants, shape)  # a 0 copies the size of the operand's axis, which is another one then
    sizes = shape.meta.get(SHAPE_DATA) if array is None else array.tolist()
    return None if sizes is None or 0 in sizes[at : at + 1] else at


def _is_at(before: ir.Shape, at: int, after: ir.Shape, axis: int) -> bool:
    """Whether the same number of elements is in front of two axes, or behind them."""
    return _same_product(list(before)[:at], list(after)[:axis]) or _same_product(list(before)[at + 1 :], list(after)[axis + 1 :])


def _same_product(left: list[Dim], right: list[Dim]) -> bool:
    rest = list(right)
    others = []
    for dim in left:
        same = next((at for at, other in enumerate(rest) if same_dim(dim, other)), None)
        if same is None:
            others.append(dim)
        else:
            del rest[same]
    sizes = [[dim for dim in dims if isinstance(dim, int)] for dims in (others, rest)]
    return sum(map(len, sizes)) == len(others) + len(rest) and prod(sizes[0]) == prod(sizes[1])
