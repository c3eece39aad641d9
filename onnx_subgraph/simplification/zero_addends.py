"""Leave out a sum with the number 0, as Paddle exports `scale`, where no operator tells -0 from 0.

Such a sum changes -0 into 0, and nothing else. A reciprocal of it would be another infinity. Products, sums, normalizations
and most other operators give a zero of another sign at most, and an exponential or a comparison gives the same.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import Constants, small
from onnx_subgraph.model.nested import has_bodies, reads, within
from onnx_subgraph.model.shapes import same_shape
from onnx_subgraph.model.surgery import remove
from onnx_subgraph.operators.elementwise import REARRANGING

_SAME = """
Abs ArgMax ArgMin Cos Cosh Equal Exp Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Log LogSoftmax Not ReduceL1 ReduceL2
ReduceLogSumExp ReduceSumSquare Shape Sigmoid Size Softmax Softplus
"""
_SIGNED = """
Add Asin Asinh Atan Attention AveragePool Ceil Celu Clip Concat Conv ConvTranspose CumSum DepthToSpace Dropout Einsum Elu Erf
Expand Floor GRU Gelu Gemm GlobalAveragePool GlobalMaxPool HardSigmoid HardSwish Identity LSTM LeakyRelu MatMul Max Mean Min
Mish Mul Neg PRelu Pad RNN ReduceMax ReduceMean ReduceMin ReduceSum Relu RotaryEmbedding Round Selu Sign Sin Sinh Slice
Softsign SpaceToDepth Split Sqrt Sub Sum Swish Tan Tanh Tile Where
"""
_SIGNED_FIRST = """
BatchNormalization Div Gather GatherElements GatherND GroupNormalization InstanceNormalization LayerNormalization MaxPool Pow
RMSNormalization Resize ScatterElements ScatterND
"""
SAME = frozenset(_SAME.split())
"""Operators whose results are the same, bit by bit, for -0 and 0."""
SIGNED = REARRANGING | frozenset(_SIGNED.split())
"""Operators whose results differ for -0 and 0, in any operand, only in the sign of zeros."""
SIGNED_FIRST = frozenset(_SIGNED_FIRST.split())
"""Operators for which this holds for their first operand."""


def has_scales(model: ir.Model, constants: Constants) -> bool:
    """Whether the number 0 is added to a product or a quotient."""
    return any(_is_scale(_only_addend(constants, node)) for graph in within(model.graph) for node in graph)


def leave_out_zero_addends(model: ir.Model, constants: Constants, *, scales: bool = False) -> int:
    """Remove such sums; scales: only those with a product or a quotient. Changes `model`. Returns how many were removed.

    Shapes must follow from the inputs (`proved_only`). The formulas of Shrink and other operators have a sum with a number that
    may be 0, but none with a product.
    """
    removed = 0
    for graph in within(model.graph):
        found = {node: addend for node in graph if (addend := _only_addend(constants, node)) is not None}
        sums = [node for node, addend in found.items() if not scales or _is_scale(addend)]
        told = _told(constants, graph, set() if graph is model.graph else set(graph.outputs)) if sums else set()
        for node in sums:
            result, source = node.outputs[0], _only_addend(constants, node)  # another one, if that was such a sum
            if source is not None and (result not in told or (result.dtype is not None and _has_one_zero(result.dtype))):
                result.replace_all_uses_with(source)
                remove(node)
                removed += 1
    return removed


def _only_addend(constants: Constants, node: ir.Node) -> ir.Value | None:
    """The addend of a sum whose other one is the number 0, which gives it no axis. A graph keeps the names of its outputs."""
    if node.op_type != "Add" or node.domain or node.outputs[0].is_graph_output():
        return None
    for source, zero in (tuple(node.inputs), tuple(node.inputs)[::-1]):
        if source is not None and zero is not None and source.dtype == node.outputs[0].dtype and constants.scalar(zero) == 0:
            return source if same_shape(source, node.outputs[0]) else None
    return None


def _is_scale(addend: ir.Value | None) -> bool:
    node = None if addend is None else addend.producer()
    return node is not None and node.op_type in ("Mul", "Div") and not node.domain


def _told(constants: Constants, graph: ir.Graph, told: set[ir.Value]) -> set[ir.Value]:
    """The values of which an operator may tell -0 from 0, itself or behind operators that pass the sign on. told: those known."""
    for node in reversed(graph):
        if has_bodies(node) or node.domain:
            told.update(reads(node))
            continue
        signed = not told.isdisjoint(node.outputs)
        told.update(value for at, value in enumerate(node.inputs) if value is not None and _tells(constants, node, at, signed))
    return told


def _tells(constants: Constants, node: ir.Node, at: int, signed: bool) -> bool:
    """Whether a node may tell -0 from 0 in an operand. signed: whether something tells it of the results of the node."""
    name = node.op_type
    if name in SAME or (name == "Pow" and at == 1):
        return False
    if name in ("Cast", "QuantizeLinear"):
        made = node.outputs[0].dtype
        return at > 0 or made is None or not (_has_one_zero(made) or (made.is_floating_point() and not signed))
    others = [value for place, value in enumerate(node.inputs) if place != at and value is not None]
    if name in ("Add", "Sum") and any(_is_all(constants, other, np.not_equal) for other in others):
        return False
    if name == "Pow" and not _is_all(constants, others[0], np.greater):
        return True
    if name == "Max" and any(_is_all(constants, other, np.greater) for other in others):
        return False
    if name == "Clip" and at == 0 and len(node.inputs) > 1 and _is_all(constants, node.inputs[1], np.greater):
        return False
    return signed or not (name in SIGNED or (name in SIGNED_FIRST and at == 0))


def _has_one_zero(dtype: ir.DataType) -> bool:
    return dtype.is_integer() or dtype == ir.DataType.BOOL


def _is_all(constants: Constants, value: ir.Value | None, compare: np.ufunc) -> bool:
    """Whether every element of a value is a known one that compares so with 0."""
    array = None if value is None else small(constants, value)
    return array is not None and bool(compare(array, 0).all())
