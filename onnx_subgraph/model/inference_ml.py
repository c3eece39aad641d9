"""Rules of shape inference for operators of ai.onnx.ml that prepare features and compute with them.

Pipelines of scikit-learn begin with them. Without their shapes nothing behind them is known, such as the rank that MatMul reads.
Source: https://onnx.ai/onnx/operators/#ai-onnx-ml, and the shapes that onnxruntime 1.32 gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext

Rule = Callable[[ShapeInferenceContext, ir.Node], None]
_FLOAT = ir.DataType.FLOAT


def _same(dtype: ir.DataType | None, context: ShapeInferenceContext, node: ir.Node) -> None:
    """The result has the shape of the first input. dtype: its type; None for that of the input."""
    read = node.inputs[0]
    if read is not None and read.shape is not None and (found := dtype or read.dtype) is not None:
        context.set_shape_and_dtype(node.outputs[0], read.shape, found)


def _category_mapper(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Strings become integers, and integers strings."""
    read = node.inputs[0]
    _same(ir.DataType.INT64 if read is not None and read.dtype is ir.DataType.STRING else ir.DataType.STRING, context, node)


def _one_hot_encoder(context: ShapeInferenceContext, node: ir.Node) -> None:
    """One more axis, with an element for each category."""
    read = node.inputs[0]
    names = [name for name in ("cats_strings", "cats_int64s") if name in node.attributes]
    if read is not None and read.shape is not None and names:
        count = max(len(node.attributes[name].value) for name in names)
        context.set_shape_and_dtype(node.outputs[0], ir.Shape([*read.shape.dims, count]), _FLOAT)


def _predictions(name: str, context: ShapeInferenceContext, node: ir.Node) -> None:
    """A row of predictions for each row of features. name: the attribute with their number, by default 1."""
    read = node.inputs[0]
    if read is not None and read.shape is not None and len(read.shape) == 2:
        shape = ir.Shape([read.shape[0], node.attributes.get_int(name, 1)])
        context.set_shape_and_dtype(node.outputs[0], shape, _FLOAT)


RULES: Mapping[str, Rule] = {
    "CategoryMapper": _category_mapper,
    "Imputer": partial(_same, None),
    "LinearRegressor": partial(_predictions, "targets"),
    "Normalizer": partial(_same, _FLOAT),
    "OneHotEncoder": _one_hot_encoder,
    "Scaler": partial(_same, _FLOAT),
    "TreeEnsembleRegressor": partial(_predictions, "n_targets"),
}
"""Operator of ai.onnx.ml → its rule."""
