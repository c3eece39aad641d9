"""Rules that make onnx-shape-inference sound and complete on real graphs.

Every operator's rule is wrapped: an error leaves a gap instead of ending the inference, and an inferred dimension overrides a
declared one. Some rules are added or replaced: arithmetic on shapes as TorchScript writes it (`Where(Equal(shape, -1), 1,
shape)`); broadcasting and slicing, where the library guesses (it broadcasts two different symbols to the first).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import numpy as np
import onnx_ir as ir
import sympy
from onnx_shape_inference import SYM_DATA_KEY, ShapeInferenceContext, registry

from onnx_subgraph.model import symbolic
from onnx_subgraph.model.dimensions import symbols
from onnx_subgraph.model.folding import fold
from onnx_subgraph.model.gaps import PROBLEM

Dim = int | ir.SymbolicDim
Rule = Callable[[ShapeInferenceContext, ir.Node], None]

_BROADCASTING = frozenset(
    {
        *(
            "Add",
            "Sub",
            "Mul",
            "Div",
            "Mod",
            "Pow",
            "BitShift",
            "BitwiseAnd",
            "BitwiseOr",
            "BitwiseXor",
            "Equal",
            "Less",
            "Greater",
        ),
        *("LessOrEqual", "GreaterOrEqual", "And", "Or", "Xor", "Max", "Min", "Sum", "Mean", "Where"),
    }
)
_FOLDED = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL, ir.DataType.FLOAT)
_LONGEST_SHAPE = 64
"""Maximum number of elements of an integer tensor that are tracked one by one; shapes are short."""
_LONGEST_JOINED = 4096
"""Maximum number of elements of a Concat that the library may track. It creates a symbol for each unknown element."""
_LONGEST_EXPRESSION = 2000
"""In characters. A longer expression becomes a new symbol; otherwise products of products would exhaust memory."""
_MOST_SYMBOLS = 2
"""Maximum number of symbols in a maximum; the cost of sympy's Max is quadratic in it."""


@functools.cache
def install() -> None:
    """Wrap every rule of the library and add ours, once per process."""
    symbolic.install()
    registry.collect()
    for domain, operator, versions in list(registry.iter_supported()):
        for version in versions:
            rule = registry.get(domain, operator, version)
            if rule is None:
                continue
            extended = functools.partial(_extended, _AFTER[operator], rule) if not domain and operator in _AFTER else rule
            if not domain and operator == "Constant":
                extended = functools.partial(_constant, rule)
            registry.register(domain, operator, version)(functools.partial(_guarded, extended))
    for operator, given in _EARLY.items():
        later = registry.get("", operator, 10)
        if later is not None:
            registry.register("", operator, 1)(functools.partial(_as_later, later, given))
    normalization = registry.get("", "LayerNormalization", 17)
    if normalization is not None:
        early = functools.partial(_extended, _after_early_layer_normalization, normalization)
        registry.register("", "LayerNormalization", 1)(early)
    fused = registry.get("com.microsoft", "FusedMatMul", 1)
    if fused is not None:
        registry.register("com.microsoft", "FusedMatMul", 1)(functools.partial(_extended, _after_fused_matmul, fused))
    product = registry.get("", "MatMulInteger", 10)
    if product is not None:
        scaled = functools.partial(_guarded, functools.partial(_extended, _after_scaled_product, product))
        for operator in ("DynamicQuantizeMatMul", "MatMulIntegerToFloat"):
            registry.register("com.microsoft", operator, 1)(scaled)


_EARLY = {"Slice": ("starts", "ends", "axes"), "TopK": ("k",)}
"""Operator that the library supports from opset 10 on → the attributes that became inputs then, in order."""


def _as_later(rule: Rule, given: Sequence[str], context: ShapeInferenceContext, node: ir.Node) -> None:
    """Infer an operator before opset 10 with the rule of opset 10, where some attributes have become inputs."""
    read, result = node.inputs[0], node.outputs[0]
    assert read is not None
    data = ir.Value(name=read.name, shape=read.shape, type=read.type, const_value=read.const_value)
    if (elements := context.get_symbolic_value(read)) is not None:
        context.set_symbolic_value(data, elements)
    attributes = {name: node.attributes[name] for name in given if name in node.attributes}
    constants = [ir.Value(name=name, const_value=_vector(attribute, name)) for name, attribute in attributes.items()]
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


def _vector(attribute: ir.Attr, name: str) -> ir.TensorProtocol:
    numbers = attribute.value if isinstance(attribute.value, (tuple, list)) else [attribute.value]
    return ir.Tensor(np.array(numbers, np.int64), name=name)


def _constant(rule: Rule, context: ShapeInferenceContext, node: ir.Node) -> None:
    """Constant: puts its tensor on the value, so that later rules read it at once.

    The library's rule serves functions, where the tensor may differ by call.
    """
    attribute = node.attributes.get("value")
    if context.resolved_attrs or attribute is None or attribute.is_ref() or len(node.attributes) > 1:
        rule(context, node)
        return
    output = node.outputs[0]
    output.const_value = attribute.value
    context.set_shape_and_dtype(output, attribute.value.shape, attribute.value.dtype)


def _after_early_layer_normalization(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Before opset 17 LayerNormalization is onnxruntime's operator; its result has the dtype of the scale."""
    scale = node.inputs[1] if len(node.inputs) > 1 else None
    if scale is not None and scale.dtype is not None:
        node.outputs[0].dtype = scale.dtype


def _after_fused_matmul(context: ShapeInferenceContext, node: ir.Node) -> None:
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


def _after_scaled_product(context: ShapeInferenceContext, node: ir.Node) -> None:
    """MatMulInteger with a result scaled to floats; the third input is a scale."""
    scale = node.inputs[2]
    if scale is not None and scale.dtype is not None:
        node.outputs[0].dtype = scale.dtype


def _extended(after: Rule, rule: Rule, context: ShapeInferenceContext, node: ir.Node) -> None:
    """Apply the library's rule, then ours, which may correct the results. Ours runs even where the library's fails."""
    try:
        rule(context, node)
    finally:
        after(context, node)


def _guarded(rule: Rule, context: ShapeInferenceContext, node: ir.Node) -> None:
    declared = [output.shape for output in node.outputs]
    for output in node.outputs:
        output.shape = None
    node.meta.pop(PROBLEM, None)
    try:
        (_join if _is_long_join(node) else rule)(context, node)
    except Exception as error:  # A rule may fail on an odd node; the other nodes are still worth inferring.
        node.meta[PROBLEM] = f"{type(error).__name__}: {error}"
    for output, shape in zip(node.outputs, declared, strict=True):
        _shorten(context, output)
        output.shape = _merged(context, _with_numbers(output.shape), shape)
    _fold(context, node)


def _is_long_join(node: ir.Node) -> bool:
    """Whether a node concatenates vectors that cannot be shapes: floats, or more elements than a shape can have."""
    if node.op_type != "Concat" or node.domain:
        return False
    if any(value is not None and value.dtype is not None and value.dtype.is_floating_point() for value in node.inputs):
        return all(value is not None and value.shape is not None and len(value.shape) == 1 for value in node.inputs)
    shapes = [None if value is None else value.shape for value in node.inputs]
    if not all(shape is not None and len(shape) == 1 for shape in shapes):
        return False
    return sum(shape[0] for shape in shapes if shape is not None and isinstance(shape[0], int)) > _LONGEST_JOINED


def _join(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Infer the size and type of concatenated vectors, but not their elements."""
    sizes = [value.shape[0] for value in node.inputs if value is not None and value.shape is not None]
    known = [size for size in sizes if isinstance(size, int)]
    node.outputs[0].shape = ir.Shape([sum(known)]) if len(known) == len(sizes) else ir.Shape([context.new_symbolic_dim()])
    dtypes = [value.dtype for value in node.inputs if value is not None and value.dtype is not None]
    if dtypes:
        node.outputs[0].dtype = dtypes[0]


def _shorten(context: ShapeInferenceContext, output: ir.Value) -> None:
    """Replace every expression in the shape or the elements of a result by a symbol where it is too long."""
    if output.shape is not None and any(map(_is_long, output.shape)):
        output.shape = ir.Shape([context.new_symbolic_dim() if _is_long(dim) else dim for dim in output.shape])
    if len(output.metadata_props.get(SYM_DATA_KEY, "")) > _LONGEST_EXPRESSION:
        elements = context.get_symbolic_value(output) or []
        context.set_symbolic_value(output, [context.new_symbolic_dim() if _is_long(dim) else dim for dim in elements])


def _is_long(dim: Dim) -> bool:
    return isinstance(dim, ir.SymbolicDim) and len(dim.value or "") > _LONGEST_EXPRESSION


def _fold(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Compute the elements of a small result with known operands: paddings, sizes and scales are often computed."""
    output = node.outputs[0] if len(node.outputs) == 1 and not node.domain and node.inputs else None
    if output is None or output.const_value is not None or output.dtype not in _FOLDED or output.shape is None:
        return
    if not all(isinstance(dim, int) for dim in output.shape) or _size(output.shape) > _LONGEST_SHAPE:
        return
    operands = [ir.convenience.get_const_tensor(value) if value is not None else None for value in node.inputs]
    if any((tensor is None) != (value is None) for tensor, value in zip(operands, node.inputs, strict=True)):
        return
    if any(tensor is not None and tensor.size > _LONGEST_SHAPE for tensor in operands):
        return
    results = fold(node, [None if tensor is None else tensor.numpy() for tensor in operands], context.opset)
    if results is not None and isinstance(results[0], np.ndarray) and results[0].size <= _LONGEST_SHAPE:
        output.const_value = ir.Tensor(results[0], name=output.name)


def _size(shape: ir.Shape) -> int:
    return math.prod(shape.numpy())


def _with_numbers(shape: ir.Shape | None) -> ir.Shape | None:
    """The shape with constant expressions as numbers (`SymbolicDim("3")`), and exact quotients cancelled."""
    if shape is None or not any(isinstance(dim, ir.SymbolicDim) and not (dim.value or "x").isidentifier() for dim in shape):
        return shape
    return ir.Shape([_plain(dim) for dim in shape])


def _plain(dim: Dim) -> Dim:
    if isinstance(dim, int) or dim.value is None:
        return dim
    if dim.value.isdecimal():
        return int(dim.value)
    return _cancelled(dim.value) if dim.value.startswith("floor(") else dim


@functools.cache
def _cancelled(text: str) -> ir.SymbolicDim:
    """Cancel an exact quotient, which needs no rounding: floor(12*batch*seq/seq) gives 12*batch."""
    dim = ir.SymbolicDim(text)
    expression = _expression(dim)
    if expression is None or expression.func is not sympy.floor:
        return dim
    quotient = sympy.cancel(expression.args[0])
    return ir.SymbolicDim(quotient) if quotient.is_integer else dim


def _merged(context: ShapeInferenceContext, inferred: ir.Shape | None, declared: ir.Shape | None) -> ir.Shape | None:
    """The inferred dimension where it is known, the declared one where inference had to create a symbol."""
    if inferred is None or declared is None:
        return inferred if declared is None else context.name_anonymous_dims_in_shape(declared)
    if len(inferred) != len(declared):
        return inferred
    return ir.Shape([_merged_dim(context, ours, theirs) for ours, theirs in zip(inferred, declared, strict=True)])


def _merged_dim(context: ShapeInferenceContext, inferred: Dim, declared: Dim) -> Dim:
    if isinstance(inferred, int) or not _invented(context, inferred):
        return inferred
    if isinstance(declared, int):
        return declared
    if declared.value is None:
        return inferred
    if str(inferred.value).isidentifier():  # Equating whole expressions would take sympy seconds.
        context.add_symbolic_equality(inferred, declared)
    return declared


def _invented(context: ShapeInferenceContext, dim: ir.SymbolicDim) -> bool:
    """Whether the expression contains a symbol that the library created for an unknown size."""
    return any(context.is_generated_symbol(name) for name in symbols(dim))


# Broadcasting and slicing

_MAXIMA: WeakKeyDictionary[ShapeInferenceContext, dict[frozenset[str], Dim]] = WeakKeyDictionary()
"""Per inference: the names of the two dimensions of a broadcast → the symbol for the result."""


def _expression(dim: Dim) -> sympy.Expr | None:
    if isinstance(dim, int):
        return sympy.Integer(dim)
    try:
        return (dim + 0)._expr if dim.value is not None else None
    except Exception:
        return None


def _dim(expression: sympy.Expr) -> Dim:
    return int(expression) if expression.is_Integer else ir.SymbolicDim(expression)


def broadcast_dim(context: ShapeInferenceContext, a: Dim, b: Dim) -> Dim | None:
    """The size that two dimensions broadcast to; None where they cannot. Two different symbols give their maximum.

    A maximum of more symbols becomes a symbol, the same one each time; otherwise it would grow along a residual stream.
    """
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        return None
    if isinstance(a, int) or isinstance(b, int):
        return a if isinstance(a, int) else b  # The other one is 1 or equal; otherwise the model could not run.
    left, right = _expression(a), _expression(b)
    unknown: Dim = context.new_symbolic_dim()
    if left is None or right is None:
        return unknown
    if len(left.free_symbols | right.free_symbols) <= _MOST_SYMBOLS:
        return _dim(sympy.Max(left, right))
    maxima: dict[frozenset[str], Dim] = _MAXIMA.setdefault(context, {})
    return maxima.setdefault(frozenset({str(a), str(b)}), unknown)


def broadcast(context: ShapeInferenceContext, shapes: Sequence[Sequence[Dim]]) -> list[Dim] | None:
    """The shape that shapes broadcast to by numpy's rules; None where they cannot."""
    rank = max(map(len, shapes))
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, rank - len(shape)):
            size = broadcast_dim(context, result[axis], dim)
            if size is None:
                return None
            result[axis] = size
    return result


def _after_broadcasting(context: ShapeInferenceContext, node: ir.Node) -> None:
    shapes = [value.shape for value in node.inputs if value is not None]
    known = [tuple(shape.dims) for shape in shapes if shape is not None]
    if shapes and len(known) == len(shapes):
        result = broadcast(context, known)
        node.outputs[0].shape = None if result is None else ir.Shape(result)


def _after_matmul(context: ShapeInferenceContext, node: ir.Node) -> None:
    a, b, y = (value.shape if value is not None else None for value in (*node.inputs[:2], node.outputs[0]))
    if a is None or b is None or y is None or len(a) < 3 or len(b) < 3:
        return
    batch = broadcast(context, [a.dims[:-2], b.dims[:-2]])
    if batch is not None:
        node.outputs[0].shape = ir.Shape([*batch, *y.dims[-2:]])


def _after_slice(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Limit the end of a slice to the end of a symbolic dimension. Other axes keep their size."""
    data, result = node.inputs[0], node.outputs[0]
    if data is None or data.shape is None or result.shape is None or len(node.inputs) < 3:
        return
    operands = [context.get_symbolic_value(value) if value is not None else None for value in node.inputs[1:]]
    starts, ends = operands[0], operands[1]
    count = len(data.shape if starts is None else starts)
    axes = operands[2] if len(operands) > 2 and node.inputs[3] is not None else list(range(count))
    steps = operands[3] if len(operands) > 3 and node.inputs[4] is not None else [1] * len(starts or ())
    if axes is None or not all(isinstance(axis, int) for axis in axes) or len(data.shape) != len(result.shape):
        return
    cut = {axis % len(data.shape) for axis in axes if isinstance(axis, int)}
    sizes = [size if axis in cut else data.shape[axis] for axis, size in enumerate(result.shape.dims)]
    if starts is None or ends is None or steps is None:
        result.shape = ir.Shape(sizes)
        return
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not isinstance(axis, int) or not isinstance(start, int) or not isinstance(end, int) or step != 1:
            continue
        size = data.shape[axis]
        if isinstance(size, int) or end >= 2**31 - 1 or end < 0 or start < 0:
            continue
        whole = _expression(size)
        sizes[axis] = (
            context.new_symbolic_dim() if whole is None else _dim(sympy.Max(0, sympy.Min(whole, sympy.Integer(end)) - start))
        )
    result.shape = ir.Shape(sizes)


# Arithmetic on shapes


def _never_negative(context: ShapeInferenceContext, dim: Dim) -> bool:
    expression = _expression(dim)
    if expression is None:
        return False
    return bool(expression.is_nonnegative) and not any(context.is_generated_symbol(str(s)) for s in expression.free_symbols)


def _after_equal(context: ShapeInferenceContext, node: ir.Node) -> None:
    _after_broadcasting(context, node)
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
    if isinstance(number, int) and number < 0 and _never_negative(context, other):
        return False
    return None


def _paired(context: ShapeInferenceContext, inputs: Sequence[ir.Value | None]) -> list[tuple[Dim, ...]] | None:
    """The known elements of several 0-D or 1-D integer values, broadcast and zipped; None where some are unknown."""
    columns = [context.get_symbolic_value(value) if value is not None else None for value in inputs]
    known = [column for column in columns if column is not None]
    if len(known) != len(columns) or not known:
        return None
    length = max(map(len, known))
    if length > _LONGEST_SHAPE or any(len(column) not in (1, length) for column in known):
        return None
    return list(zip(*(column * length if len(column) == 1 else column for column in known), strict=True))


def _after_where(context: ShapeInferenceContext, node: ir.Node) -> None:
    _after_broadcasting(context, node)
    operands = _paired(context, node.inputs)
    if operands is None:
        return
    chosen = [
        (b if condition == 0 else a) if isinstance(condition, int) or a == b else context.new_symbolic_dim()
        for condition, a, b in operands
    ]
    context.set_symbolic_value(node.outputs[0], chosen)


def _after_div(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Divide dimensions by numbers. Rounding towards zero equals rounding down, because dimensions are never negative."""
    _after_broadcasting(context, node)
    if node.outputs[0].dtype not in (ir.DataType.INT64, ir.DataType.INT32):
        return
    operands = _paired(context, node.inputs)
    quotients = [_quotient(context, a, b) for a, b in operands or ()]
    if quotients and None not in quotients:
        context.set_symbolic_value(node.outputs[0], quotients)


def _quotient(context: ShapeInferenceContext, a: Dim, b: Dim) -> Dim | None:
    expression = _expression(a)
    if expression is None or not isinstance(b, int) or b <= 0 or not _never_negative(context, a):
        return None
    return _dim(sympy.floor(expression / b))


def _after_constant_of_shape(context: ShapeInferenceContext, node: ir.Node) -> None:
    shape, result = node.inputs[0], node.outputs[0]
    sizes = context.get_symbolic_value(shape) if shape is not None else None
    if sizes is None:
        return
    result.shape = ir.Shape(list(sizes))
    attribute = node.attributes.get("value")
    tensor = attribute.as_tensor() if attribute is not None else None
    if tensor is not None and result.dtype in (ir.DataType.INT64, ir.DataType.INT32) and len(sizes) <= 1:
        count = sizes[0] if sizes else 1
        if isinstance(count, int) and 0 <= count <= _LONGEST_SHAPE:
            context.set_symbolic_value(result, [int(tensor.numpy().reshape(-1)[0])] * count)


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


def _after_stft(context: ShapeInferenceContext, node: ir.Node) -> None:
    """The number of frames that fit completely: floor((length - size) / step) + 1, by the operator's specification."""
    signal, step, window, size, result = *[*node.inputs, None, None][:4], node.outputs[0]
    length = None if signal is None or signal.shape is None or len(signal.shape) < 2 else _expression(signal.shape[1])
    steps, sizes = (None if value is None else context.get_symbolic_value(value) for value in (step, size))
    frame = sizes[0] if sizes else window.shape[0] if window is not None and window.shape is not None else None
    if length is None or result.shape is None or not steps or not isinstance(steps[0], int) or not isinstance(frame, int):
        return
    frames = _dim(sympy.floor((length - frame) / sympy.Integer(steps[0])) + 1)
    result.shape = ir.Shape([result.shape[0], frames, *result.shape.dims[2:]])


_AFTER: dict[str, Rule] = {
    **dict.fromkeys(_BROADCASTING, _after_broadcasting),
    "Div": _after_div,
    "Equal": _after_equal,
    "Where": _after_where,
    "ConstantOfShape": _after_constant_of_shape,
    "Expand": _after_expand,
    "MatMul": _after_matmul,
    "STFT": _after_stft,
    "Slice": _after_slice,
}
