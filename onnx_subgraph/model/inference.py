"""Install rules that make onnx-shape-inference sound and complete on real graphs.

Every rule of the library is wrapped. An error leaves a gap instead of ending the inference, an inferred dimension overrides a
declared one, and small constant results are computed. `inference_rules`, `inference_ml` and `inference_microsoft` have the rules
that are added or replaced.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import onnx_ir as ir
from onnx_shape_inference import SYM_DATA_KEY, ShapeInferenceContext, registry

from onnx_subgraph.model import symbolic
from onnx_subgraph.model.axis_sizes import simplify_sizes
from onnx_subgraph.model.broadcasting import Dim, spelled_alike
from onnx_subgraph.model.dimensions import symbols
from onnx_subgraph.model.folding import fold
from onnx_subgraph.model.gaps import PROBLEM
from onnx_subgraph.model.inference_microsoft import MICROSOFT, after_scaled_product
from onnx_subgraph.model.inference_ml import RULES
from onnx_subgraph.model.inference_rules import (
    AFTER,
    EARLY,
    Rule,
    after_early_layer_normalization,
    as_later,
    constant,
    forget,
)
from onnx_subgraph.model.shape_arithmetic import LONGEST_SHAPE
from onnx_subgraph.operators.names import qualified

_LATEST = 13
"""Opset of a standard operator's rule. Rules hardly change between opsets, and read inputs and attributes by name."""
LIKE = {"DynamicQuantizeLSTM": "LSTM", "FusedConv": "Conv", "FusedGemm": "Gemm"}
"""Operators of onnxruntime whose results have the type and shape of a standard operator's."""
_FOLDED = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL, ir.DataType.FLOAT)
_LONGEST_JOINED = 4096
"""Maximum number of elements of a Concat that the library may track. It creates a symbol for each unknown element."""
_LONGEST_EXPRESSION = 2000
"""In characters. A longer expression becomes a new symbol; otherwise products of products would exhaust memory."""


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
            after = MICROSOFT.get(operator) if domain == "com.microsoft" else AFTER.get(qualified((domain, operator)))
            if not domain and operator == "Loop":
                rule = functools.partial(_with_condition, rule)
            extended = rule if after is None else functools.partial(_extended, after, rule)
            if not domain and operator == "Constant":
                extended = functools.partial(constant, rule)
            registry.register(domain, operator, version)(functools.partial(_guarded, extended))
    for operator, rule in RULES.items():
        registry.register("ai.onnx.ml", operator, 1)(functools.partial(_guarded, rule))
    for operator, given in EARLY.items():
        later = registry.get("", operator, 10)
        if later is not None:
            registry.register("", operator, 1)(functools.partial(as_later, later, given))
    normalization = registry.get("", "LayerNormalization", 17)
    if normalization is not None:
        early = functools.partial(_extended, after_early_layer_normalization, normalization)
        registry.register("", "LayerNormalization", 1)(early)
    product = registry.get("", "MatMulInteger", 10)
    if product is not None:
        scaled = functools.partial(_guarded, functools.partial(_extended, after_scaled_product, product))
        for operator in ("DynamicQuantizeMatMul", "MatMulIntegerToFloat"):
            registry.register("com.microsoft", operator, 1)(scaled)
    for operator, standard in LIKE.items():
        add_rule_of(standard, "com.microsoft", operator)


def add_rule_of(standard: str, domain: str, operator: str) -> bool:
    """Give an operator without a rule that of a standard operator. Returns whether it has one."""
    rule = registry.get("", standard, version=_LATEST)
    if rule is not None and not registry.has(domain, operator):
        registry.register(domain, operator, 1)(rule)
    return bool(registry.has(domain, operator))


def _extended(after: Rule, rule: Rule, context: ShapeInferenceContext, node: ir.Node) -> None:
    """Apply the library's rule, then ours, which may correct the results. Ours runs even where the library's fails."""
    try:
        rule(context, node)
    finally:
        after(context, node)


def _with_condition(rule: Rule, context: ShapeInferenceContext, node: ir.Node) -> None:
    """Apply the library's rule to a Loop, which may have no condition. The rule requires one, and does not look at it."""
    inputs = node.inputs
    if len(inputs) > 1 and inputs[1] is not None:
        rule(context, node)
        return
    node.resize_inputs(max(len(inputs), 2))
    node.replace_input_with(1, ir.val("condition", ir.DataType.BOOL, []))
    try:
        rule(context, node)
    finally:
        node.replace_input_with(1, None)
        node.resize_inputs(len(inputs))


def _guarded(rule: Rule, context: ShapeInferenceContext, node: ir.Node) -> None:
    declared = [output.shape for output in node.outputs]
    for output in node.outputs:
        output.shape = None
    node.meta.pop(PROBLEM, None)
    try:
        (_join if _is_long_join(node) else rule)(context, node)
    except Exception as error:  # A rule may fail on an odd node; the other nodes are still worth inferring.
        node.meta[PROBLEM] = f"{type(error).__name__}: {error}"
    for output in node.outputs:
        _shorten(context, output)
        _forget_wrapped(context, node, output)
    simplify_sizes(context, node)
    for output, shape in zip(node.outputs, declared, strict=True):
        output.shape = _merged(context, output.shape, shape)
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


_EXACT = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.FLOAT, ir.DataType.DOUBLE)
"""The types that hold the sizes of a run as they are: these are taken to be below 2²⁴, and their products below 2³¹."""


def _forget_wrapped(context: ShapeInferenceContext, node: ir.Node, output: ir.Value) -> None:
    """Forget the elements of a result whose type does not hold them: integers wrap, float16 rounds. The library keeps them."""
    elements = context._symbolic_values.get(output)
    if elements is None or output.dtype is None:
        return
    numbers = [element for element in elements if isinstance(element, int)]
    if output.dtype.is_integer() and any(number not in _range(output.dtype) for number in numbers):
        held = False
    elif output.dtype == ir.DataType.BOOL and node.op_type == "Cast":
        held = len(numbers) == len(elements) and set(numbers) <= {0, 1}
    else:
        held = output.dtype in (*_EXACT, ir.DataType.BOOL) or len(numbers) == len(elements)
    if not held:
        forget(context, output)


def _range(dtype: ir.DataType) -> range:
    limits = np.iinfo(dtype.numpy())
    return range(int(limits.min), int(limits.max) + 1)


def _is_long(dim: Dim) -> bool:
    return not isinstance(dim, int) and len(dim.value or "") > _LONGEST_EXPRESSION


def _fold(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Compute the elements of a small result with known operands: paddings, sizes and scales are often computed."""
    output = node.outputs[0] if len(node.outputs) == 1 and not node.domain and node.inputs else None
    if output is None or output.const_value is not None or output.dtype not in _FOLDED or output.shape is None:
        return
    if not all(isinstance(dim, int) for dim in output.shape) or _size(output.shape) > LONGEST_SHAPE:
        return
    operands = [ir.convenience.get_const_tensor(value) if value is not None else None for value in node.inputs]
    if any((tensor is None) != (value is None) for tensor, value in zip(operands, node.inputs, strict=True)):
        return
    if any(tensor is not None and tensor.size > LONGEST_SHAPE for tensor in operands):
        return
    results = fold(node, [None if tensor is None else tensor.numpy() for tensor in operands], context.opset)
    if results is not None and isinstance(results[0], np.ndarray) and results[0].size <= LONGEST_SHAPE:
        output.const_value = ir.Tensor(results[0], name=output.name)


def _size(shape: ir.Shape) -> int:
    return math.prod(shape.numpy())


def _merged(context: ShapeInferenceContext, inferred: ir.Shape | None, declared: ir.Shape | None) -> ir.Shape | None:
    """The inferred dimension where it is known, the declared one where inference had to create a symbol."""
    if inferred is None or declared is None:
        return inferred if declared is None else context.name_anonymous_dims_in_shape(declared)
    if len(inferred) != len(declared) or all(isinstance(dim, int) for dim in inferred):
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
    return spelled_alike(declared)


def _invented(context: ShapeInferenceContext, dim: ir.SymbolicDim) -> bool:
    """Whether the expression contains a symbol that the library created for an unknown size."""
    return any(context.is_generated_symbol(name) for name in symbols(dim))
