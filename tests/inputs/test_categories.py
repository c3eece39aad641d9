"""Inputs of encoders of categories are drawn from their categories, column by column, so that the original runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest

from onnx_subgraph.inputs.categories import ALL, categories
from onnx_subgraph.inputs.feeds import draw_feeds
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.options import Options
from onnx_subgraph.pipeline import fuse

HEAD = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]> g '
INTS, WORDS = (
    "ai.onnx.ml.OneHotEncoder <cats_int64s = {}, zeros = 0>",
    'ai.onnx.ml.OneHotEncoder <cats_strings = ["red", "blue"], zeros = 0>',
)
FIRST, SECOND = INTS.format("[10, 20, 30]"), INTS.format("[7, -7]")
CONSTANTS = "<int64[1] zero = {0}, int64[1] one = {1}, int64[2] both = {1, 0}, int64[2] halves = {1, 1}, int64[1] flat = {-1}>"
BODIES = {
    "words": f"(string[b, 1] x) => (y) {CONSTANTS} {{ y = {WORDS} (x) }}",
    "columns selected by ArrayFeatureExtractor": f"""(int64[b, 2] x) => (y, z) {CONSTANTS} {{
      p = ai.onnx.ml.ArrayFeatureExtractor (x, zero) q = ai.onnx.ml.ArrayFeatureExtractor (x, one)
      y = {FIRST} (p) z = {SECOND} (q) }}""",
    "columns selected by Gather, in another order": f"""(int64[b, 2] x) => (y, z) {CONSTANTS} {{
      s = Gather <axis = 1> (x, both) p = Gather <axis = -1> (s, one) q = Gather <axis = 1> (s, zero)
      y = {FIRST} (p) z = {SECOND} (q) }}""",
    "columns selected by Split": f"""(int64[b, 2] x) => (y, z) {CONSTANTS} {{
      p, q = Split <axis = 1> (x, halves) r = Reshape (p, flat) y = {FIRST} (r) z = {SECOND} (q) }}""",
    "a column of each of two inputs": f"""(int64[b, 1] a, int64[b, 1] x) => (y, z) {CONSTANTS} {{
      s = Concat <axis = 1> (a, x) p = ai.onnx.ml.ArrayFeatureExtractor (s, zero)
      q = ai.onnx.ml.ArrayFeatureExtractor (s, one) y = {FIRST} (p) z = {SECOND} (q) }}""",
    "a table of floats": f"""(float[b, 2] x) => (y, r) {CONSTANTS} {{
      p = ai.onnx.ml.ArrayFeatureExtractor (x, one) q = Cast <to = 7> (p) y = {SECOND} (q) r = Neg (x) }}""",
    "two encoders of one column": f"(int64[b, 1] x) => (y, z) {{ y = {FIRST} (x) z = {INTS.format('[5, 20, 30]')} (x) }}",
}


@pytest.mark.parametrize("text", BODIES.values(), ids=BODIES)
def test_the_original_runs_on_drawn_categories(text: str) -> None:
    proto = onnx.parser.parse_model(HEAD + text)
    model = ir.from_proto(proto)
    infer_shapes(model)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    drawn = [draw_feeds(model, {"b": 40}, seed) for seed in range(3)]
    outputs = [session.run(None, feeds)[0] for feeds in drawn]
    assert all(np.ptp(output, axis=0).any() for output in outputs), "more than one category is drawn"


def test_columns_without_an_encoder_are_drawn_as_others() -> None:
    model = ir.from_proto(onnx.parser.parse_model(HEAD + BODIES["a table of floats"]))
    infer_shapes(model)
    x = draw_feeds(model, {"b": 40}, 0)["x"]
    assert set(x[:, 1]) == {7, -7} and len(set(x[:, 0])) == 40


@pytest.mark.parametrize(
    "text",
    [
        f"(int64[b, 2] x) => (y) {{ p = ai.onnx.ml.ArrayFeatureExtractor (x) y = {SECOND} (p) }}",
        f"(int64[b, 1000000000000000] x, int64[1] i) => (y) {{ p = ai.onnx.ml.ArrayFeatureExtractor (x, i) y = {SECOND} (p) }}",
        "(int64[b, 2] x) => (y) { y = ai.onnx.ml.OneHotEncoder <cats_int64s = 3> (x) }",
    ],
    ids=["an operand is missing", "more columns than memory", "one category that is no list"],
)
def test_a_damaged_model_has_no_columns_to_follow(text: str) -> None:
    model = ir.from_proto(onnx.parser.parse_model(HEAD + text))
    assert set(categories(model, model.graph.inputs[0])) <= {ALL}


def test_a_pipeline_with_encoders_is_verified(tmp_path: Path) -> None:
    """As scikit-learn's ColumnTransformer is converted: encoded columns beside numbers, and a linear model."""
    text = f"""(string[b, 1] x, float[b, 2] n) => (float[b, 3] y) <int64[2] shape = {{-1, 2}}, float[3] c = {{1, 2, 3}},
      float[4, 3] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}}> {{
      e = {WORDS} (x) f = Reshape (e, shape) j = Concat <axis = 1> (f, n) m = MatMul (j, w) y = Add (m, c) }}"""
    onnx.save(onnx.parser.parse_model(HEAD + text), tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx", load_patterns(), Options())
    assert [one.pattern for one in result.rewrites] == ["gemm-add"] and result.verdict.verdict == "equivalent", (
        result.verdict.reason
    )
