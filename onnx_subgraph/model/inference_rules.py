"""Rules of shape inference for operators where the library's are not sound or not complete on real graphs.

For broadcasting and slicing the library guesses: it broadcasts two different symbols to the first. `shape_arithmetic` has the
rules for integers that are sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import onnx_ir as ir
import sympy
from onnx_shape_inference import SYM_DATA_KEY, ShapeInferenceContext

from onnx_subgraph.model import shape_arithmetic
from onnx_subgraph.model.broadcasting import Dim, after_broadcasting, broadcast, dim_of, expression_of
from onnx_subgraph.model.folding import is_disputed

Rule = Callable[[ShapeInferenceContext, ir.Node], None]

_BROADCASTING = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Mod", "Pow", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "And", "Or", "Xor"),
        *("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Max", "Min", "Sum", "Mean", "Where"),
    )
)

_ENDLESS = 10**9
"""tf2onnx writes this number for the end of an axis. No axis that only a run knows is as long."""
EARLY = {"Slice": ("starts", "ends", "axes"), "TopK": ("k",)}
"""Operator that the library supports from opset 10 on → the attributes that became inputs then, in order."""


def as_later(rule: Rule, given: Sequence[str], context: ShapeInferenceContext, node: ir.Node) -> None:
    """Infer an operator before opset 10 with the rule of opset 10, where some attributes have become inputs."""
    read, result = node.inputs[0], node.outputs[0]
    assert read is not None
    data = ir.Value(name=read.name, shape=read.shape, type=read.type, const_value=read.const_value)
    if (elements := context.get_symbolic_value(read)) is not None:
        context.set_symbolic_value(data, elements)
    attributes = {name: node.attributes[name] for name in given if name in node.attributes}
    constants = [_vector(attribute, name) for name, attribute in attributes.items()]
    others = [attribute for name, attribute in node.attributes.items() if name not in given]
    later = ir.Node("", node.op_type, [data, *constants], others, num_outputs=len(node.outputs), name=node.name)
    for mine, theirs in zip(node.outputs, later.outputs, strict=True):
        theirs.shape, theirs.type = mine.shape, mine.type
    rule(context, later)
    node.meta.update(later.meta)
    for mine, theirs in zip(node.outputs, later.outputs, strict=True):
        mine.shape, mine.type = theirs.shape, theirs.type
    if (elements := context.get_symbolic_value(later.outputs[0])) is not None:
        context.set_symbolic_value(result, elements)


def _vector(attribute: ir.Attr, name: str) -> ir.Value:
    numbers = attribute.value if isinstance(attribute.value, (tuple, list)) else [attribute.value]
    return ir.val(name, const_value=ir.Tensor(np.array(numbers, np.int64), name=name))


def constant(rule: Rule, context: ShapeInferenceContext, node: ir.Node) -> None:
    """Constant: puts its tensor on the value, so that later rules read it at once."""
    attribute = node.attributes.get("value")
    if attribute is None or attribute.is_ref() or len(node.attributes) > 1:
        rule(context, node)
        return
    output = node.outputs[0]
    output.const_value = attribute.value
    context.set_shape_and_dtype(output, attribute.value.shape, attribute.value.dtype)


def after_early_layer_normalization(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Before opset 17 LayerNormalization is onnxruntime's operator; its result has the dtype of the scale."""
    scale = node.inputs[1] if len(node.inputs) > 1 else None
    if scale is not None and scale.dtype is not None:
        node.outputs[0].dtype = scale.dtype


def _after_matmul(context: ShapeInferenceContext, node: ir.Node) -> None:
    a, b, y = (value.shape if value is not None else None for value in (*node.inputs[:2], node.outputs[0]))
    if a is None or b is None or y is None or len(a) < 3 or len(b) < 3:
        return
    batch = broadcast(context, [a.dims[:-2], b.dims[:-2]])
    if batch is not None:
        node.outputs[0].shape = ir.Shape([*batch, *y.dims[-2:]])


def _after_resize(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Onnxruntime multiplies a size by its scale in float32, which may round up to a whole number."""
    source, result = node.inputs[0], node.outputs[0]
    scales = ir.convenience.get_const_tensor(node.inputs[-1]) if node.inputs[-1] is not None else None
    if source is None or source.shape is None or result.shape is None or scales is None or scales.dtype != ir.DataType.FLOAT:
        return
    factors = scales.numpy().reshape(-1)
    if len(factors) != len(source.shape) or len(result.shape) != len(source.shape) or "axes" in node.attributes:
        return
    sizes = zip(source.shape, factors, result.shape, strict=True)
    result.shape = ir.Shape(int(np.float32(size) * factor) if isinstance(size, int) else now for size, factor, now in sizes)


def _after_slice(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Limit the end of a slice to the end of a symbolic dimension, also with a step. Other axes keep their size."""
    data, result = node.inputs[0], node.outputs[0]
    if data is None or data.shape is None or result.shape is None or len(node.inputs) < 3:
        return
    operands = [context.get_symbolic_value(value) if value is not None else None for value in node.inputs[1:]]
    starts, ends = operands[0], operands[1]
    count = len(data.shape if starts is None else starts)
    axes = operands[2] if len(operands) > 2 and node.inputs[3] is not None else list(range(count))
    steps = operands[3] if len(operands) > 3 and node.inputs[4] is not None else [1] * len(starts or ())
    if len(data.shape) != len(result.shape):
        return
    if axes is None or not all(isinstance(axis, int) for axis in axes):  # the library then takes the first axes, and steps of 1
        result.shape = ir.Shape([context.new_symbolic_dim() for _ in data.shape])
        return
    cut = {axis % len(data.shape) for axis in axes if isinstance(axis, int)}
    sizes = [size if axis in cut else data.shape[axis] for axis, size in enumerate(result.shape.dims)]
    if starts is None or ends is None or steps is None:
        result.shape = ir.Shape([context.new_symbolic_dim() if axis in cut else size for axis, size in enumerate(sizes)])
        return
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not isinstance(axis, int) or not isinstance(start, int):
            continue
        if not isinstance(end, int):
            if not shape_arithmetic.never_negative(context, end):  # a negative one counts from the end
                sizes[axis] = context.new_symbolic_dim()
            continue
        size = data.shape[axis]
        if isinstance(size, int) and isinstance(step, int) and step:
            sizes[axis] = _take(context, data, result, range(size), slice(start, end, step))
            continue
        if not isinstance(step, int) or step < 1:
            sizes[axis] = context.new_symbolic_dim()
            continue
        if end >= 2**31 - 1 or end < 0 or start < 0:
            continue
        whole = expression_of(size)
        if whole is None:
            sizes[axis] = context.new_symbolic_dim()
            continue
        last = whole if end >= _ENDLESS else sympy.Min(whole, sympy.Integer(end))
        sizes[axis] = dim_of(sympy.floor((sympy.Max(0, last - start) + step - 1) / step))
    result.shape = ir.Shape(sizes)


def _take(context: ShapeInferenceContext, data: ir.Value, result: ir.Value, places: range, part: slice) -> Dim:
    """The size of a part of an axis. Sets the elements of a vector: the library takes too few of those back to the first one."""
    elements = context.get_symbolic_value(data) if data.shape is not None and len(data.shape) == 1 else None
    if is_disputed(len(places), part.start, part.stop, part.step):
        forget(context, result)
        unknown: Dim = context.new_symbolic_dim()
        return unknown
    if elements is not None:
        context.set_symbolic_value(result, [elements[place] for place in places[part]])
    return len(places[part])


def _is_computed(node: ir.Node, index: int) -> bool:
    """Whether a node has an operand at a position, and its elements are not known before the run."""
    operand = node.inputs[index] if index < len(node.inputs) else None
    return operand is not None and ir.convenience.get_const_tensor(operand) is None


def _after_split(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Parts have the sizes in the second operand. The library infers equal parts where these sizes are not known."""
    source = node.inputs[0]
    if not _is_computed(node, 1) or source is None or source.shape is None or node.inputs[1] is None:
        return
    axis, known = node.attributes.get_int("axis", 0) % len(source.shape), context.get_symbolic_value(node.inputs[1]) or ()
    sizes = known if len(known) == len(node.outputs) else [context.new_symbolic_dim() for _ in node.outputs]
    for result, size in zip(node.outputs, sizes, strict=True):
        result.shape = ir.Shape(size if at == axis else dim for at, dim in enumerate(source.shape))
        forget(context, result)


def forget(context: ShapeInferenceContext, result: ir.Value) -> None:
    """Remove the elements that the library gave a result; where all are numbers, it made them a constant."""
    context._symbolic_values.pop(result, None)
    result.metadata_props.pop(SYM_DATA_KEY, None)
    result.const_value = None


def _after_squeeze(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Without axes, every axis of size 1 goes. A dimension that may be 1, or computed axes, leave the rank unknown."""
    source, result = node.inputs[0], node.outputs[0]
    has_axes = (len(node.inputs) > 1 and node.inputs[1] is not None) or "axes" in node.attributes
    is_known = source is None or (source.shape is not None and all(isinstance(dim, int) for dim in source.shape))
    if _is_computed(node, 1) or not (has_axes or is_known):
        result.shape = None


def _after_choice(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Unique and Compress along an axis keep the other axes. The library infers one row, for Compress if the rank is unknown."""
    source, result = node.inputs[0], node.outputs[0]
    if "axis" not in node.attributes:
        return
    if source is None or source.shape is None or result.shape is None:
        result.shape = None
        return
    axis = node.attributes.get_int("axis", 0) % len(source.shape)
    number = result.shape[axis if len(result.shape) == len(source.shape) else 0]
    result.shape = ir.Shape(number if at == axis else dim for at, dim in enumerate(source.shape))


def _after_expand(context: ShapeInferenceContext, node: ir.Node) -> None:
    data, target = node.inputs[0], node.inputs[1]
    if data is None or target is None or data.shape is None:
        return
    sizes = context.get_symbolic_value(target)
    if sizes is None:
        return
    # A size of -1 is outside the standard. onnxruntime and the exporters that write it treat it as 1.
    result = broadcast(context, [data.shape.dims, [1 if size == -1 else size for size in sizes]])
    node.outputs[0].shape = None if result is None else ir.Shape(result)


def _after_reshape(context: ShapeInferenceContext, node: ir.Node) -> None:
    """No shape where the number of elements would change: such a node does not run, and nothing behind it is known."""
    shape_arithmetic.repeats_of_one_axis(context, node)
    source, result = node.inputs[0], node.outputs[0]
    if source is None or source.shape is None or result.shape is None:
        return
    (number, names), (other, others) = _elements(source.shape), _elements(result.shape)
    if names == others and None not in names and number and other and number != other:
        shapes = f"{source.shape} and {result.shape}"
        result.shape = None
        raise ValueError(f"the number of elements differs: {shapes}")


def _elements(shape: ir.Shape) -> tuple[int, list[str | None]]:
    """The product of the known dimensions, and the names of the others."""
    names = [dim.value for dim in shape if not isinstance(dim, int)]
    return prod(dim for dim in shape if isinstance(dim, int)), sorted(names, key=str)


def _after_stft(context: ShapeInferenceContext, node: ir.Node) -> None:
    """The number of frames that fit completely: floor((length - size) / step) + 1, by the operator's specification."""
    signal, step, window, size, result = *[*node.inputs, None, None][:4], node.outputs[0]
    length = None if signal is None or signal.shape is None or len(signal.shape) < 2 else expression_of(signal.shape[1])
    steps, sizes = (None if value is None else context.get_symbolic_value(value) for value in (step, size))
    frame = sizes[0] if sizes else window.shape[0] if window is not None and window.shape is not None else None
    if length is None or result.shape is None or not steps or not isinstance(steps[0], int) or not isinstance(frame, int):
        return
    frames = dim_of(sympy.floor((length - frame) / sympy.Integer(steps[0])) + 1)
    result.shape = ir.Shape([result.shape[0], frames, *result.shape.dims[2:]])


def _after_loop(context: ShapeInferenceContext, node: ir.Node) -> None:
    """What is carried has the sizes that the operand and the result of a step share: there may be no step."""
    for first, result in zip(node.inputs[2:], node.outputs, strict=False):
        before, after = (None if value is None or value.shape is None else value.shape.dims for value in (first, result))
        if after is not None and isinstance(result.type, ir.TensorType | None):
            alike = before is not None and len(before) == len(after)
            pairs = zip(before or (), after, strict=True) if alike else ()
            shape = ir.Shape(a if a == b else context.new_symbolic_dim() for a, b in pairs)
            result.shape = shape if alike else None


def _after_if(context: ShapeInferenceContext, node: ir.Node) -> None:
    """No shape where that of one branch is not known. The library takes that of the other one."""
    branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    for results in zip(node.outputs, *(branch.outputs for branch in branches), strict=False):
        if any(result.shape is None for result in results):
            results[0].shape = None


def _after_array_feature_extractor(context: ShapeInferenceContext, node: ir.Node) -> None:
    """A column for each index, however many axes the indices have; of a vector, a row of them."""
    source, indices, result = node.inputs[0], node.inputs[1], node.outputs[0]
    if source is None or source.shape is None or indices is None or indices.shape is None or not len(source.shape):
        result.shape = None
        return
    number, names = _elements(indices.shape)
    columns = indices.shape[0] if len(indices.shape) == 1 else context.new_symbolic_dim() if names else number
    result.shape = ir.Shape([*(source.shape.dims[:-1] or [1]), columns])


AFTER: dict[str, Rule] = {
    **dict.fromkeys(_BROADCASTING, after_broadcasting),
    "Div": shape_arithmetic.after_div,
    "Equal": shape_arithmetic.after_equal,
    "Max": shape_arithmetic.after_max,
    "Where": shape_arithmetic.after_where,
    "ConstantOfShape": shape_arithmetic.after_constant_of_shape,
    "Expand": _after_expand,
    "If": _after_if,
    "Loop": _after_loop,
    "MatMul": _after_matmul,
    "ReduceProd": shape_arithmetic.after_reduce_prod,
    "Reshape": _after_reshape,
    **dict.fromkeys(("Resize", "Upsample"), _after_resize),
    "STFT": _after_stft,
    "Slice": _after_slice,
    "Split": _after_split,
    "Squeeze": _after_squeeze,
    **dict.fromkeys(("Compress", "Unique"), _after_choice),
    "ai.onnx.ml.ArrayFeatureExtractor": _after_array_feature_extractor,
}
