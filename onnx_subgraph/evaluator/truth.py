"""The truth for comparisons: the same graph, evaluated in float64.

onnx's reference evaluator computes every standard operator in any float type; no execution provider does (for example, the CPU's
has no float64 Erf). onnxruntime's operators that occur in formulas are implemented in `definitions`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnx_subgraph.evaluator.definitions import DEFINITIONS
from onnx_subgraph.files.protobuf import all_nodes

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
LARGE = 1 << 20
"""Weights of at least this many bytes are fed to the evaluator."""


class UnknownError(Exception):
    """The reference evaluator can't compute this graph; the message says why."""


class _Evaluator(ReferenceEvaluator):
    """The reference evaluator with `DEFINITIONS`, also for the evaluators that it creates for functions."""

    def __init__(self, proto: Any, *args: Any, **options: Any) -> None:
        super().__init__(proto, *args, **{**options, "new_ops": list(DEFINITIONS)})


class Exact:
    """A model with every float computed in float64; it can be run any number of times.

    Large weights are widened only when they are fed, because a widened copy in the model would take up to four times their size.
    overflowed: whether the last run had a number that is too large even for float64; NaN behind it is no result of the formula.
    """

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._weights = {tensor.name: tensor for tensor in proto.graph.initializer if _is_fed(tensor)}
        self._wide = without_overloads(widened(proto, without=self._weights))
        self._evaluator: _Evaluator | None = None
        self.overflowed = False

    def __call__(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs, by name. Raises UnknownError where they can't be computed."""
        self.overflowed = False
        weights = {name: numpy_helper.to_array(tensor) for name, tensor in self._weights.items()}
        given = {name: _wide(value) for name, value in (weights | dict(feeds)).items()}
        try:
            self._evaluator = self._evaluator or _Evaluator(self._wide)
            with np.errstate(all="ignore", over="call", call=self._note):  # NaN and infinity are compared later
                results = self._evaluator.run(None, given)
        except Exception as error:  # the evaluator raises what its operators raise
            said = error.__cause__ or error  # of shapes that do not broadcast, onnx itself says that types have issues
            raise UnknownError(f"{type(said).__name__}: {said}".strip()) from error
        return dict(zip((o.name for o in self._wide.graph.output), results, strict=True))

    def _note(self, kind: str, flag: int) -> None:
        self.overflowed = True


def evaluate(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of the model with every float computed in float64. Raises UnknownError where that can't be done."""
    return Exact(proto)(feeds)


def without_overloads(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Give each overload of a function a name of its own, in place: the evaluator finds a function by its domain and name."""
    overloads = {(f.domain, f.name, f.overload) for f in proto.functions if f.overload}
    if overloads:
        for node in all_nodes((*proto.graph.node, *(node for function in proto.functions for node in function.node))):
            if (node.domain, node.op_type, node.overload) in overloads:
                node.op_type = f"{node.op_type}:{node.overload}"
        for function in proto.functions:
            if function.overload:
                function.name = f"{function.name}:{function.overload}"
    return proto


def widened(proto: onnx.ModelProto, dtype: int = TensorProto.DOUBLE, without: Collection[str] = ()) -> onnx.ModelProto:
    """The model with every float type narrower than `dtype` (float32 or float64) replaced by it.

    without: names of initializers to leave out.
    """
    wide = _copied(proto, without)
    _widen_graph(wide.graph, dtype)
    for function in wide.functions:
        for index, node in enumerate(function.node):
            function.node[index].CopyFrom(_wide_node(node, dtype))
    return wide


def _copied(proto: onnx.ModelProto, without: Collection[str]) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    if not without:
        copy.CopyFrom(proto)
        return copy
    kept = [tensor for tensor in proto.graph.initializer if tensor.name not in without]
    graph = proto.graph
    copy.graph.name = graph.name
    copy.graph.node.extend(graph.node)
    copy.graph.input.extend(graph.input)
    copy.graph.output.extend(graph.output)
    copy.graph.initializer.extend(kept)
    copy.graph.sparse_initializer.extend(graph.sparse_initializer)
    copy.ir_version = proto.ir_version
    copy.opset_import.extend(proto.opset_import)
    copy.functions.extend(proto.functions)
    return copy


def _is_fed(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type in FLOATS and len(tensor.raw_data) >= LARGE


def _wide(value: Any) -> Any:
    """An array, or a sequence of them, with floats in float64. An optional input may have no value."""
    if value is None or isinstance(value, list):
        return value and [_wide(item) for item in value]
    return value.astype(np.float64) if value.dtype.kind == "f" or value.dtype.name == "bfloat16" else value


def _is_narrow(element: int, dtype: int) -> bool:
    return element in FLOATS and element != dtype


def _widen_graph(graph: onnx.GraphProto, dtype: int) -> None:
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if _is_narrow(value.type.tensor_type.elem_type, dtype):
            value.type.tensor_type.elem_type = dtype
    for index, tensor in enumerate(graph.initializer):
        if _is_narrow(tensor.data_type, dtype):
            graph.initializer[index].CopyFrom(_wide_tensor(tensor, dtype))
    for index, node in enumerate(graph.node):
        graph.node[index].CopyFrom(_wide_node(node, dtype))


def _wide_tensor(tensor: onnx.TensorProto, dtype: int) -> onnx.TensorProto:
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(dtype)), tensor.name)


def _wide_node(node: onnx.NodeProto, dtype: int) -> onnx.NodeProto:
    wide = onnx.NodeProto()
    wide.CopyFrom(node)
    for attribute in wide.attribute:
        if attribute.HasField("t") and _is_narrow(attribute.t.data_type, dtype):
            attribute.t.CopyFrom(_wide_tensor(attribute.t, dtype))
        elif attribute.HasField("g"):
            _widen_graph(attribute.g, dtype)
        elif attribute.name in ("value_float", "value_floats"):
            numbers = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            tensor = numpy_helper.from_array(np.asarray(numbers, helper.tensor_dtype_to_np_dtype(dtype)))
            attribute.CopyFrom(helper.make_attribute("value", tensor))
        elif node.op_type == "Cast" and attribute.name == "to" and _is_narrow(attribute.i, dtype):
            attribute.i = dtype
    if node.op_type == "ConstantOfShape" and not node.attribute:  # its default is a float32 zero
        zero = numpy_helper.from_array(np.zeros(1, helper.tensor_dtype_to_np_dtype(dtype)))
        wide.attribute.append(helper.make_attribute("value", zero))
    return wide
