"""Corrections of the library's rules for onnxruntime's operators (com.microsoft): the results have what onnxruntime gives them.

What follows from values that only a run knows, such as the length of a cache, is left unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext, registry

from onnx_subgraph.model.broadcasting import Dim, broadcast

_OPSET = 13
"""Opset of a standard operator's rule, at which the axes of reductions are attributes."""


def after_fused_matmul(context: ShapeInferenceContext, node: ir.Node) -> None:
    """MatMul of transposed operands. transBatchA and transBatchB move an operand's first axis behind its batch axes."""
    result = node.outputs[0]
    moved = [bool(node.attributes.get_int(f"transBatch{side}", 0)) for side in "AB"]
    shapes = [None if value is None or value.shape is None else list(value.shape.dims) for value in node.inputs[:2]]
    known = [shape for shape in shapes if shape is not None and len(shape) > 1]
    if len(known) < len(shapes):
        result.shape = None if any(moved) else result.shape
        return
    for index, shape in enumerate(known):
        if moved[index]:
            shape[:-1] = [*shape[1:-1], shape[0]]
        if node.attributes.get_int(f"trans{'AB'[index]}", 0):
            shape[-2:] = reversed(shape[-2:])
    a, b = known
    batch = broadcast(context, [a[:-2], b[:-2]])
    if batch is not None:
        result.shape = ir.Shape([*batch, a[-2], b[-1]])


def after_scaled_product(context: ShapeInferenceContext, node: ir.Node) -> None:
    """MatMulInteger with a result scaled to floats; the third input is a scale."""
    _type_of(2, context, node)


def _type_of(index: int, context: ShapeInferenceContext, node: ir.Node) -> None:
    """The first result has the type of this input."""
    value = _input(node, index)
    if value is not None and value.dtype is not None:
        node.outputs[0].dtype = value.dtype


def _after_q_gemm(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Quantized to the type of the zero point of the result; floats without one."""
    node.outputs[0].dtype = ir.DataType.FLOAT
    _type_of(8, context, node)


def _after_gemm_float8(context: ShapeInferenceContext, node: ir.Node) -> None:
    after_fused_matmul(context, node)
    node.outputs[0].dtype = ir.DataType(node.attributes.get_int("dtype", ir.DataType.FLOAT))


def _broadcast_of(indices: tuple[int, ...], context: ShapeInferenceContext, node: ir.Node) -> None:
    """The first result has the shape that these inputs broadcast to."""
    shapes = [_dims(node, index) for index in indices]
    known = [shape for shape in shapes if shape is not None]
    result = broadcast(context, known) if len(known) == len(shapes) else None
    node.outputs[0].shape = None if result is None else ir.Shape(result)


def _as_standard(standard: str, context: ShapeInferenceContext, node: ir.Node) -> None:
    """A standard operator on the first input; with channels_last, its channels are the last axis."""
    x, y, rule = node.inputs[0], node.outputs[0], registry.get("", standard, version=_OPSET)
    dims = _dims(node, 0)
    y.shape = None
    if x is None or dims is None or rule is None:
        return
    last = bool(node.attributes.get_int("channels_last", 0)) and len(dims) > 2
    data = ir.Value(name=x.name, type=x.type, shape=ir.Shape([dims[0], dims[-1], *dims[1:-1]] if last else dims))
    attributes = [attribute for name, attribute in node.attributes.items() if name != "channels_last"]
    call = ir.Node("", standard, [data], attributes, num_outputs=1)
    rule(context, call)
    sizes = None if call.outputs[0].shape is None else call.outputs[0].shape.dims
    if sizes is not None:
        y.shape = ir.Shape([sizes[0], *sizes[2:], sizes[1]] if last else sizes)


def _after_attention(past: int, context: ShapeInferenceContext, node: ir.Node) -> None:
    """Attention with projections: a third of the columns of the weights is the width of the value, unless an attribute gives it.

    past: the index of the input that precedes the keys and values.
    """
    x, hidden = _dims(node, 0), _width_of_value(context, node)
    node.outputs[0].shape = None if x is None else ir.Shape([*x[:-1], hidden])
    if len(node.outputs) < 2:
        return
    before, heads = _dims(node, past), node.attributes.get_int("num_heads", 0)
    given = _input(node, past) is not None
    if given and before is not None and len(before) == 5:
        length = before[3] + x[1] if x is not None and len(x) == 3 else context.new_symbolic_dim()
        shared = node.attributes.get_int("past_present_share_buffer", 0)
        node.outputs[1].shape = ir.Shape(before if shared else [*before[:3], length, before[4]])
    elif x is None or len(x) != 3 or not heads:
        node.outputs[1].shape = None
    else:
        length = context.new_symbolic_dim() if given else x[1]
        node.outputs[1].shape = ir.Shape([2, x[0], heads, length, hidden // heads])


def _width_of_value(context: ShapeInferenceContext, node: ir.Node) -> Dim:
    sizes = node.attributes.get_ints("qkv_hidden_sizes")
    if sizes:
        return sizes[2]
    bias, weights = _dims(node, 2), _dims(node, 1)
    columns = bias[0] if bias is not None and len(bias) == 1 else None
    if columns is None and weights is not None and len(weights) == 2:
        columns = weights[1]
    return context.new_symbolic_dim() if columns is None else columns // 3


def _after_multi_head_attention(context: ShapeInferenceContext, node: ir.Node) -> None:
    """The value has a width of its own. Keys and values follow those of the past, of which the length must be known."""
    query, value = _dims(node, 0), _dims(node, 2)
    if query is None or len(query) != 3:
        return
    heads = node.attributes.get_int("num_heads", 0)
    size: Dim | None = None  # of a head of the value
    if value is not None and len(value) in (3, 4) and heads:
        size = value[2] // heads if len(value) == 3 else value[3]
    if _input(node, 2) is not None:
        width = value[2] if value is not None and len(value) == 3 else None if size is None else size * heads
        node.outputs[0].shape = ir.Shape([query[0], query[1], context.new_symbolic_dim() if width is None else width])
    past = _dims(node, 6)
    unknown = _input(node, 6) is not None and (past is None or _input(node, 8) is not None)
    for index, result in enumerate(node.outputs[1:3]):
        if result.shape is None or len(result.shape) != 4:
            continue
        dims = list(result.shape.dims)
        dims[2] = context.new_symbolic_dim() if unknown else dims[2]
        if index and _input(node, 2) is not None:
            dims[3] = context.new_symbolic_dim() if size is None else size
        result.shape = ir.Shape(dims)


def _after_decoder_attention(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Keys and values are in the buffers of the past, which have their own sizes."""
    shared = node.attributes.get_int("past_present_share_buffer", 0)
    for result, index in zip(node.outputs[1:3], (5, 6), strict=False):
        dims = _dims(node, index)
        result.shape = None if dims is None or not shared else ir.Shape(dims)


def _after_group_query_attention(context: ShapeInferenceContext, node: ir.Node) -> None:
    """The past is followed by the new keys and values, or has room for them: then its length stays."""
    sliding = node.attributes.get_int("sliding_window_cache", 0)
    if sliding or _input(node, 3) is None:
        return
    for result in node.outputs[1:3]:
        if result.shape is not None and len(result.shape) == 4:
            result.shape = ir.Shape([*result.shape.dims[:2], context.new_symbolic_dim(), result.shape[3]])


def _after_sparse_attention(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Without a key, the query has all three. Keys and values are in the buffers of the past."""
    query, heads = _dims(node, 0), node.attributes.get_int("num_heads", 0)
    if _input(node, 1) is None and query is not None and heads:
        size = query[-1] // (heads + 2 * node.attributes.get_int("kv_num_heads", 0))
        node.outputs[0].shape = ir.Shape([*query[:-1], heads * size])
    for result, index in zip(node.outputs[1:3], (3, 4), strict=False):
        past = _dims(node, index)
        result.shape = None if past is None else ir.Shape(past)


def _after_dynamic_sparse_attention(context: ShapeInferenceContext, node: ir.Node) -> None:
    """The types of the result and of the cache are not those of the query."""
    node.outputs[0].type = None
    for result, index in zip(node.outputs[1:3], (3, 4), strict=False):
        past = _input(node, index)
        result.type = None if past is None else past.type


def _last_unknown(context: ShapeInferenceContext, node: ir.Node) -> None:
    """The last dimension is that of the weights, in an order that the node chooses."""
    dims = _dims(node, 0)
    node.outputs[0].shape = None if dims is None else ir.Shape([*dims[:-1], context.new_symbolic_dim()])


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _dims(node: ir.Node, index: int) -> tuple[Dim, ...] | None:
    value = _input(node, index)
    return None if value is None or value.shape is None else tuple(value.shape.dims)


MICROSOFT: dict[str, Callable[[ShapeInferenceContext, ir.Node], None]] = {
    **dict.fromkeys(("FusedMatMul", "TransposeMatMul"), after_fused_matmul),
    **dict.fromkeys(("Attention", "PackedAttention"), partial(_after_attention, 4)),
    "DecoderMaskedMultiHeadAttention": _after_decoder_attention,
    "DynamicSparseAttention": _after_dynamic_sparse_attention,
    "GemmFloat8": _after_gemm_float8,
    "GroupQueryAttention": _after_group_query_attention,
    "MultiHeadAttention": _after_multi_head_attention,
    "QAttention": partial(_after_attention, 8),
    "QEmbedLayerNormalization": partial(_type_of, 8),
    "QGemm": _after_q_gemm,
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), partial(_broadcast_of, (0, 3))),
    "QLinearAveragePool": partial(_as_standard, "AveragePool"),
    "QLinearConcat": partial(_type_of, 1),
    "QLinearGlobalAveragePool": partial(_as_standard, "GlobalAveragePool"),
    "QLinearReduceMean": partial(_as_standard, "ReduceMean"),
    "QLinearWhere": partial(_broadcast_of, (0, 1, 4)),
    "QOrderedAttention": _last_unknown,
    "SparseAttention": _after_sparse_attention,
}
"""Operator → the rule that follows the library's."""
