"""Compute the result of one operator on known operands, with numpy or with onnx's reference evaluator.

Constants, shape inference and replacements fold with it, one node at a time. The evaluator is imported when a node needs it: the
import takes about 0.1 s, and evaluating a node about 1 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.attributes import attribute_proto

ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Neg": np.negative,
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
    "Abs": np.abs,
    "Exp": np.exp,
}
"""Operator → numpy function, bit-identical to the evaluator where all operands have the same type of `FLOATS`."""
_WITHOUT_ORDER = frozenset(("Clip", "Max", "Min"))
"""Operators whose result for NaN differs between implementations."""
_OTHERWISE = frozenset(("MaxPool", "ReduceMean", "Resize", "Unique", "Upsample"))
"""Operators for which onnxruntime and the evaluator compute different integers: interpolated ones, indices, means of nothing."""
_BOUNDS_AS_INPUTS = 11
"""The first opset in which the bounds of Clip are inputs."""
_AXES_AS_INPUT = 13
"""The first opset in which the axes of Unsqueeze are an input. Before, the evaluator adds them one after the other."""
_INTEGERS = frozenset(int(ir.DataType[f"{sign}INT{bits}"]) for sign in ("", "U") for bits in (8, 16, 32, 64))
_ENDLESS = 2**31 - 1
"""A bound of a Slice of at least this magnitude means the end of the axis."""
_ROUNDS_NOTHING = ("i", "u", "b")
"""Kinds of elements whose arithmetic does not round."""
_MOVING = frozenset(
    (
        *("Cast", "CastLike", "Concat", "ConstantOfShape", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"),
        *("Identity", "Reshape", "ScatterElements", "ScatterND", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Trilu"),
        *("Unsqueeze", "Where"),
    )
)
"""Operators that do not compute with floats: they move elements or cast them. A Scatter with a reduction computes."""
_ROUNDED_ONCE = frozenset(
    ("Add", "Sub", "Mul", "Div", "Neg", "Abs", "Sqrt", "Relu", "Max", "Min", "Clip", "Floor", "Ceil", "Round", "Sign")
)
"""Operators whose results are defined to the last bit, by IEEE 754 where they round."""
FLOATS = frozenset({np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)})


def fold(node: ir.Node, operands: Sequence[np.ndarray | None], opset: int) -> list[object] | None:
    """The results of a node.

    None where the evaluator does not support the operator or a type, the node is invalid, or implementations differ.
    """
    if node.op_type in _WITHOUT_ORDER and any(a is not None and a.dtype in FLOATS and np.isnan(a).any() for a in operands):
        return None
    if node.op_type == "Cast" and any(a is not None and _is_beyond(a, node.attributes.get_int("to", 0)) for a in operands):
        return None
    if node.op_type == "Slice" and _is_disputed(operands):
        return None
    if node.op_type in _OTHERWISE and (len(node.outputs) > 1 or operands[0] is None or operands[0].dtype not in FLOATS):
        return None
    if node.op_type == "Clip" and opset >= _BOUNDS_AS_INPUTS:
        operands = _bounded(operands)
    try:
        if node.op_type == "Unsqueeze" and opset < _AXES_AS_INPUT and operands[0] is not None:
            return [np.expand_dims(operands[0], tuple(node.attributes["axes"].as_ints()))]
        return evaluate(node.op_type, operands, node.attributes.values(), len(node.outputs), opset)
    except Exception:  # the evaluator raises what its operators raise
        return None


def is_exact(node: ir.Node, array: np.ndarray) -> bool:
    """Whether a result of the node is the same however it is computed: elements are moved or cast, or are not floats."""
    if array.dtype.kind in _ROUNDS_NOTHING:
        return node.op_type in _MOVING or "Quantize" not in node.op_type
    return node.op_type in _MOVING and node.attributes.get_string("reduction", "none") == "none"


def is_reproducible(value: ir.Value) -> bool:
    """Whether a constant is the same, bit for bit, whoever computes it. A Softmax is not, nor what moves its elements."""
    pending = [value]
    while pending:
        value = pending.pop()
        node = value.producer()
        if node is None or node.op_type == "Constant" or value.dtype is None or not value.dtype.is_floating_point():
            continue
        if node.op_type not in _MOVING | _ROUNDED_ONCE or node.attributes.get_string("reduction", "none") != "none":
            return False
        pending += [operand for operand in node.inputs if operand is not None]
    return True


def _is_beyond(array: np.ndarray, to: int | None) -> bool:
    """Whether a float has no counterpart among the integers of a type; then the standard does not say what Cast gives."""
    if array.dtype not in FLOATS or not array.size or to not in _INTEGERS:
        return False
    limits = np.iinfo(ir.DataType(to).numpy())
    return not bool(np.all((array > limits.min - 1.0) & (array < limits.max + 1.0)))


def is_disputed(size: int, start: int, end: int, step: int) -> bool:
    """Whether numpy takes other elements than onnxruntime: for a step back, from before the first element or with no end.

    onnxruntime then begins at the first element, or goes on to it.
    """
    return step < 0 and (start < -size or end >= _ENDLESS)


def _is_disputed(operands: Sequence[np.ndarray | None]) -> bool:
    """Whether a Slice takes something else along one of its axes than numpy."""
    data, starts, ends, axes, steps = (*operands, None, None, None, None)[:5]
    if data is None or starts is None or ends is None or steps is None:
        return False
    along = range(starts.size) if axes is None else axes.ravel().tolist()
    sizes = [data.shape[axis] if -data.ndim <= axis < data.ndim else 0 for axis in along]
    return any(map(is_disputed, sizes, *(array.ravel().tolist() for array in (starts, ends, steps))))


def _bounded(operands: Sequence[np.ndarray | None]) -> Sequence[np.ndarray | None]:
    """The operands of Clip with the bounds that it has by default, the largest finite numbers; the evaluator has none then."""
    value, least, most = (*operands, None, None)[:3]
    if value is None or value.dtype not in FLOATS:
        return operands
    limits = np.finfo(value.dtype)
    return value, np.asarray(limits.min if least is None else least), np.asarray(limits.max if most is None else most)


def evaluate(
    operator_name: str, operands: Sequence[np.ndarray | None], attributes: Iterable[ir.Attr], outputs: int, opset: int
) -> list[object]:
    """The results of one standard operator. Raises any error of the evaluator."""
    known = [array.dtype if array is not None else None for array in operands]
    if operator_name in ARITHMETIC and opset >= 7 and known[0] in FLOATS and len(set(known)) == 1:
        with np.errstate(all="ignore"):
            return [np.asarray(ARITHMETIC[operator_name](*operands))]
    import onnx
    from onnx.reference import ReferenceEvaluator

    inputs = ["" if array is None else f"i{index}" for index, array in enumerate(operands)]
    feeds = {name: array for name, array in zip(inputs, operands, strict=True) if array is not None}
    results = [f"o{index}" for index in range(outputs)]
    call = onnx.helper.make_node(operator_name, inputs, results)
    call.attribute.extend(map(attribute_proto, attributes))
    graph = onnx.helper.make_graph(
        [call],
        "fold",
        [onnx.helper.make_tensor_value_info(name, _element_type(array), None) for name, array in feeds.items()],
        [onnx.helper.make_tensor_value_info(name, 0, None) for name in results],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(model).run(None, feeds))


@cache
def is_evaluated(operator_name: str, opset: int) -> bool:
    """Whether `evaluate` knows an operator without a domain. onnxruntime has some there that the standard does not have."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.ops import load_op

    try:
        load_op("", operator_name, opset, evaluator_cls=ReferenceEvaluator)
    except Exception:  # it raises different exceptions for unknown operators
        return False
    return True


def _element_type(array: np.ndarray) -> int:
    return int(ir.DataType.STRING if array.dtype.kind in "OSU" else ir.DataType.from_numpy(array.dtype))
