"""Operators of ai.onnx.ml have the shape and type that onnxruntime gives their results."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest

from onnx_subgraph.model.inference_ml import RULES
from onnx_subgraph.model.shapes import infer_shapes

TREE = """<n_targets = 2, nodes_treeids = [0], nodes_nodeids = [0], nodes_featureids = [0], nodes_modes = ["LEAF"],
  nodes_values = [0.0], nodes_truenodeids = [0], nodes_falsenodeids = [0], target_treeids = [0, 0], target_nodeids = [0, 0],
  target_ids = [0, 1], target_weights = [1.0, 2.0]>"""
CALLS = {
    "OneHotEncoder of words": ("string", 'OneHotEncoder <cats_strings = ["1", "2"], zeros = 1>'),
    "OneHotEncoder of integers": ("int64", "OneHotEncoder <cats_int64s = [1, 2, 3], zeros = 1>"),
    "CategoryMapper of words": ("string", 'CategoryMapper <cats_strings = ["1", "2"], cats_int64s = [1, 2]>'),
    "CategoryMapper of integers": ("int64", 'CategoryMapper <cats_strings = ["1", "2"], cats_int64s = [1, 2]>'),
    "Scaler": ("int64", "Scaler <offset = [1.0], scale = [2.0]>"),
    "Normalizer": ("float", 'Normalizer <norm = "L2">'),
    "Imputer of floats": ("float", "Imputer <imputed_value_floats = [1.0], replaced_value_float = 2.0>"),
    "Imputer of integers": ("int64", "Imputer <imputed_value_int64s = [1], replaced_value_int64 = 2>"),
    "LinearRegressor": (
        "float",
        "LinearRegressor <coefficients = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], intercepts = [1.0, 2.0], targets = 2>",
    ),
    "LinearRegressor of one target": ("float", "LinearRegressor <coefficients = [1.0, 2.0, 3.0]>"),
    "TreeEnsembleRegressor": ("float", f"TreeEnsembleRegressor {TREE}"),
}


@pytest.mark.parametrize(("element", "call"), CALLS.values(), ids=CALLS)
def test_a_result_has_the_shape_and_type_of_a_run(element: str, call: str) -> None:
    text = (
        f'<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]> g ({element}[b, 3] x) => (y) {{ y = ai.onnx.ml.{call} (x) }}'
    )
    model = ir.from_onnx_text(text)
    infer_shapes(model)
    found = next(iter(model.graph)).outputs[0]
    x = np.ones((5, 3), {"string": object, "int64": np.int64, "float": np.float32}[element])
    session = onnxruntime.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    (y,) = session.run(None, {"x": x.astype(int).astype(str).astype(object) if element == "string" else x})
    assert found.shape is not None and [5 if dim == "b" else dim for dim in found.shape] == list(y.shape)
    assert found.dtype is not None
    assert found.dtype == (ir.DataType.STRING if y.dtype == object else ir.DataType.from_numpy(y.dtype))


def test_every_rule_is_tested() -> None:
    assert {call.split()[0] for _, call in CALLS.values()} == set(RULES)
