"""Classifiers of scikit-learn, LightGBM and XGBoost yield a map for each row. onnx_ir has no such type."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import helper

from onnx_subgraph import Options, fuse, load_patterns, verify

CLASSIFIER = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]> g (float[n, 4] x) => (p)
<float[4, 3] w = {1,2,3,4,5,6,7,8,9,1,2,3}, float[3] b = {1,2,3}> {
  m = MatMul (x, w) s = Add (m, b) q = Softmax (s) p = ai.onnx.ml.ZipMap <classlabels_int64s = [0, 1, 2]> (q)
}"""


def classifier(path: Path, more: float = 0.0) -> Path:
    model = onnx.parser.parse_model(CLASSIFIER.replace("{1,2,3}", f"{{{1 + more},2,3}}"))
    row = helper.make_map_type_proto(onnx.TensorProto.INT64, helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None))
    model.graph.output[0].type.CopyFrom(helper.make_sequence_type_proto(row))
    onnx.save(model, path)
    return path


def test_a_model_that_yields_maps_is_fused_and_keeps_their_type(tmp_path: Path) -> None:
    source, target = classifier(tmp_path / "m.onnx"), tmp_path / "fused.onnx"
    result = fuse(source, target, load_patterns(), Options())
    assert [rewrite.op for rewrite in result.rewrites] == ["Gemm"]
    assert list(onnx.load(target).graph.output) == list(onnx.load(source).graph.output)


def test_maps_are_compared(tmp_path: Path) -> None:
    one, other = classifier(tmp_path / "one.onnx"), classifier(tmp_path / "other.onnx", 0.01)
    assert verify(one, one).verdict == "equivalent"
    assert verify(one, other).verdict == "different"
