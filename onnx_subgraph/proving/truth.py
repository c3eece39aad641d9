"""The truth that a fusion is held against: the same graph, evaluated in float64.

onnx's reference evaluator computes every standard operator in any float type, which no execution provider does (there is no float64 Erf
on the CPU). Operators of onnxruntime that occur in formulas are defined here by the formulas of their documentation.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from math import erf, pi, sqrt
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


class Unknown(Exception):
    """The reference evaluator can't compute this graph; the text says why."""


def evaluate(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of the model with every float computed in float64. Raises Unknown where that can't be done."""
    wide = widened(proto)
    try:
        evaluator = ReferenceEvaluator(wide, new_ops=list(DEFINITIONS))
        given = {n: a.astype(np.float64) if a.dtype.kind == "f" or a.dtype.name == "bfloat16" else a for n, a in feeds.items()}
        results = evaluator.run(None, given)
    except Exception as error:  # the evaluator raises what its operators raise
        raise Unknown(f"{type(error).__name__}: {error}") from error
    return dict(zip((o.name for o in wide.graph.output), results, strict=True))


def widened(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every narrower float type replaced by float64."""
    wide = copy.deepcopy(proto)
    _widen_graph(wide.graph)
    return wide


def _widen_graph(graph: onnx.GraphProto) -> None:
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in FLOATS:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for index, tensor in enumerate(graph.initializer):
        if tensor.data_type in FLOATS:
            graph.initializer[index].CopyFrom(_wide_tensor(tensor))
    for index, node in enumerate(graph.node):
        graph.node[index].CopyFrom(_wide_node(node))


def _wide_tensor(tensor: onnx.TensorProto) -> onnx.TensorProto:
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)


def _wide_node(node: onnx.NodeProto) -> onnx.NodeProto:
    wide = copy.deepcopy(node)
    for attribute in wide.attribute:
        if attribute.HasField("t") and attribute.t.data_type in FLOATS:
            attribute.t.CopyFrom(_wide_tensor(attribute.t))
        elif attribute.HasField("g"):
            _widen_graph(attribute.g)
        elif attribute.name in ("value_float", "value_floats"):
            numbers = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            tensor = numpy_helper.from_array(np.asarray(numbers, np.float64))
            attribute.CopyFrom(helper.make_attribute("value", tensor))
        elif node.op_type == "Cast" and attribute.name == "to" and attribute.i in FLOATS:
            attribute.i = TensorProto.DOUBLE
    return wide


def shape_of(
    nodes: Sequence[onnx.NodeProto],
    initializers: Sequence[onnx.TensorProto],
    feeds: Mapping[str, np.ndarray],
    value: str,
    opset: int,
    domains: Iterable[str],
) -> tuple[int, ...]:
    """The shape of `value` in the graph made of these nodes."""
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()]
    graph = helper.make_graph(list(nodes), "part", inputs, [helper.make_empty_tensor_value_info(value)], list(initializers))
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return tuple(evaluate(helper.make_model(graph, opset_imports=imports), feeds)[value].shape)


_erf = np.vectorize(erf, otypes=[np.float64])


def _gelu(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * x * (1 + _erf(x / sqrt(2))))


def _tanh_gelu(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))))


class Gelu(OpRun):  # type: ignore[misc]
    """x · Φ(x)."""

    op_domain = "com.microsoft"

    def _run(self, x: Any) -> Any:
        return (_gelu(x),)


class BiasGelu(OpRun):  # type: ignore[misc]
    """GELU of x + bias."""

    op_domain = "com.microsoft"

    def _run(self, x: Any, bias: Any) -> Any:
        return (_gelu(x + bias),)


class FastGelu(OpRun):  # type: ignore[misc]
    """GELU with tanh, of x + bias where there is one."""

    op_domain = "com.microsoft"

    def _run(self, x: Any, bias: Any = None) -> Any:
        return (_tanh_gelu(x if bias is None else x + bias),)


class QuickGelu(OpRun):  # type: ignore[misc]
    """x · σ(αx); α is 1.702 where it is not given."""

    op_domain = "com.microsoft"

    def _run(self, x: Any, alpha: float | None = None) -> Any:
        return (x / (1 + np.exp(-(1.702 if alpha is None else alpha) * x)),)


class SimplifiedLayerNormalization(OpRun):  # type: ignore[misc]
    """x / sqrt(mean(x²) + ε) · scale, over the axes from `axis` on."""

    op_domain = ""

    def _run(self, x: Any, scale: Any, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Any:
        axes = tuple(range(axis % x.ndim, x.ndim))
        return (x / np.sqrt(np.mean(x**2, axis=axes, keepdims=True) + (1e-5 if epsilon is None else epsilon)) * scale,)


class FusedMatMul(OpRun):  # type: ignore[misc]
    """alpha · A' @ B', with the last two axes of an operand exchanged where transA or transB says so."""

    op_domain = "com.microsoft"

    def _run(self, a: Any, b: Any, alpha: float = 1.0, transA: int = 0, transB: int = 0, **_: Any) -> Any:  # noqa: N803
        left = np.swapaxes(a, -1, -2) if transA else a
        right = np.swapaxes(b, -1, -2) if transB else b
        return ((1.0 if alpha is None else alpha) * (left @ right),)


DEFINITIONS = (Gelu, BiasGelu, FastGelu, QuickGelu, SimplifiedLayerNormalization, FusedMatMul)
