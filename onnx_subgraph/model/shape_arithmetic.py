"""Rules of shape inference for the arithmetic on shapes, of which each element is a dimension or an expression of dimensions.

TorchScript writes `Where(Equal(shape, -1), 1, shape)` and `Reshape(OneHot(axis, rank, [1, n]), [-1])`, the latter for the
repeats of one axis. tf2onnx writes the product of some dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import sympy
from onnx_shape_inference import ShapeInferenceContext

from onnx_subgraph.model.broadcasting import Dim, after_broadcasting, dim_of, expression_of

LONGEST_SHAPE = 64
"""Maximum number of elements of an integer tensor that are tracked one by one; shapes are short."""


def never_negative(context: ShapeInferenceContext, dim: Dim) -> bool:
    """Whether a dimension is never negative."""
    expression = expression_of(dim)
    if expression is None:
        return False
    return bool(expression.is_nonnegative) and not any(context.is_generated_symbol(str(s)) for s in expression.free_symbols)


def after_equal(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Equal of sizes."""
    after_broadcasting(context, node)
    operands = _paired(context, node.inputs)
    if operands is None:
        return
    results = [_equal(context, a, b) for a, b in operands]
    context._symbolic_values[node.outputs[0]] = [
        context.new_symbolic_dim() if result is None else int(result) for result in results
    ]


def _equal(context: ShapeInferenceContext, a: Dim, b: Dim) -> bool | None:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if a == b and not isinstance(a, int) and a.value is not None:
        return True
    number, other = (a, b) if isinstance(a, int) else (b, a)
    if isinstance(number, int) and number < 0 and never_negative(context, other):
        return False
    return None


def _paired(context: ShapeInferenceContext, inputs: Sequence[ir.Value | None]) -> list[tuple[Dim, ...]] | None:
    """The known elements of several 0-D or 1-D integer values, broadcast and zipped; None where some are unknown."""
    columns = [context.get_symbolic_value(value) if value is not None else None for value in inputs]
    known = [column for column in columns if column is not None]
    if len(known) != len(columns) or not known:
        return None
    length = max(map(len, known))
    if length > LONGEST_SHAPE or any(len(column) not in (1, length) for column in known):
        return None
    return list(zip(*(column * length if len(column) == 1 else column for column in known), strict=True))


def after_where(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Where of sizes."""
    after_broadcasting(context, node)
    operands = _paired(context, node.inputs)
    if operands is None:
        return
    chosen = [
        (b if condition == 0 else a) if isinstance(condition, int) or a == b else context.new_symbolic_dim()
        for condition, a, b in operands
    ]
    context.set_symbolic_value(node.outputs[0], chosen)


def after_max(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Max of sizes. Paddle writes it before an Expand: of its sizes, and of the shape of the value behind ones."""
    after_broadcasting(context, node)
    operands = _paired(context, node.inputs)
    if operands is not None:
        largest = [_largest(context, numbers) for numbers in operands]
        context.set_symbolic_value(node.outputs[0], [context.new_symbolic_dim() if dim is None else dim for dim in largest])


def _largest(context: ShapeInferenceContext, dims: Sequence[Dim]) -> Dim | None:
    """The dimension that no other one is above; None where it is not known."""
    return next((dim for dim in dims if all(_is_at_least(context, dim, other) for other in dims)), None)


def _is_at_least(context: ShapeInferenceContext, dim: Dim, other: Dim) -> bool:
    """Whether a dimension is never below another. One with a name is 1 at least."""
    if not isinstance(other, int):
        return not isinstance(dim, int) and dim.value is not None and dim == other
    if isinstance(dim, int):
        return dim >= other
    expression = expression_of(dim)
    return expression is not None and never_negative(context, dim) and (other <= 0 or bool((expression - other).is_nonnegative))


def after_div(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Divide dimensions by numbers, or by a factor of theirs.

    Rounding towards zero equals rounding down, because dimensions are never negative. Division by 0 fails in a run.
    """
    after_broadcasting(context, node)
    if node.outputs[0].dtype not in (ir.DataType.INT64, ir.DataType.INT32):
        return
    operands = _paired(context, node.inputs)
    quotients = [_quotient(context, a, b) for a, b in operands or ()]
    if quotients and None not in quotients:
        context.set_symbolic_value(node.outputs[0], quotients)


def _quotient(context: ShapeInferenceContext, a: Dim, b: Dim) -> Dim | None:
    expression, factor = expression_of(a), expression_of(b)
    if expression is None or factor is None or factor == 0:
        return None
    if not isinstance(b, int):
        exact = sympy.cancel(expression / factor)
        return dim_of(exact) if exact.is_integer else None
    return dim_of(sympy.floor(expression / b)) if b > 0 and never_negative(context, a) else None


def after_constant_of_shape(context: ShapeInferenceContext, node: ir.Node) -> None:
    """ConstantOfShape, whose shape is known and which may be a shape itself."""
    shape, result = node.inputs[0], node.outputs[0]
    sizes = context.get_symbolic_value(shape) if shape is not None else None
    if sizes is None:
        return
    result.shape = ir.Shape(list(sizes))
    attribute = node.attributes.get("value")
    tensor = attribute.as_tensor() if attribute is not None else None
    if tensor is not None and result.dtype in (ir.DataType.INT64, ir.DataType.INT32) and len(sizes) <= 1:
        count = sizes[0] if sizes else 1
        if isinstance(count, int) and 0 <= count <= LONGEST_SHAPE:
            context.set_symbolic_value(result, [int(tensor.numpy().reshape(-1)[0])] * count)


def after_reduce_prod(context: ShapeInferenceContext, node: ir.Node) -> None:
    """The product of sizes. A result of several elements is the sizes themselves: no axes, and noop_with_empty_axes."""
    source, result = node.inputs[0], node.outputs[0]
    if source is None or source.shape is None or len(source.shape) != 1 or result.shape is None:
        return
    factors = [expression_of(size) for size in context.get_symbolic_value(source) or ()]
    if factors and None not in factors and all(dim == 1 for dim in result.shape):
        context.set_symbolic_value(result, [dim_of(sympy.prod(factors))])


def repeats_of_one_axis(context: ShapeInferenceContext, node: ir.Node) -> None:
    """The elements of a Reshape of a OneHot that has one index: at this index the second value, elsewhere the first."""
    hot = None if node.inputs[0] is None else node.inputs[0].producer()
    result = node.outputs[0]
    if hot is None or hot.domain or hot.op_type != "OneHot" or result.shape is None or len(result.shape) != 1:
        return
    index, depth, values = (None if value is None else context.get_symbolic_value(value) for value in hot.inputs)
    if index is None or depth is None or values is None or (len(index), len(depth), len(values)) != (1, 1, 2):
        return
    count, place = depth[0], index[0]
    if isinstance(count, int) and isinstance(place, int) and 0 < count <= LONGEST_SHAPE and -count <= place < count:
        off, on = values
        context.set_symbolic_value(result, [on if position == place % count else off for position in range(count)])
