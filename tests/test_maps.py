"""Classifiers of scikit-learn, LightGBM and XGBoost yield a map for each row. onnx_ir has no such type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from onnx_subgraph import EngineSession, Options, fuse, load_patterns, verify
from onnx_subgraph.engine.custom_op import register_engines
from onnx_subgraph.partitioning.options import PartitionOptions
from onnx_subgraph.partitioning.partition import partition
from onnx_subgraph.partitioning.worth import RegionLimits
from tests.engine.test_custom_op import NEEDED

GIVEN = {"m": {"a": 3.0, "b": 5.0}}

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


@pytest.fixture
def parted(tmp_path: Path) -> Path:
    """A model that takes a map, as a DictVectorizer does, and has one engine."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]> g (m) => (float[n, k] y) {
      v = ai.onnx.ml.DictVectorizer <string_vocabulary = ["a", "b"]> (m) c = Cast <to = 1> (v) a = Sin (c) y = Abs (a) }""")
    scalar = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    model.graph.input[0].type.CopyFrom(helper.make_map_type_proto(onnx.TensorProto.STRING, scalar))
    onnx.save(model, tmp_path / "m.onnx")
    limits = RegionLimits(min_nodes=1, max_crossing=9, allow=("Sin", "Abs"))
    done = partition(tmp_path / "m.onnx", tmp_path / "parted.onnx", PartitionOptions("onnxruntime", limits, verify=False))
    assert len(done.engines) == 1
    return tmp_path / "parted.onnx"


def test_an_engine_session_takes_maps(parted: Path) -> None:
    (found,) = EngineSession(parted).run(None, GIVEN)
    np.testing.assert_array_equal(found, onnxruntime.InferenceSession(parted.with_name("m.onnx")).run(None, GIVEN)[0])


@NEEDED
def test_a_session_with_engines_as_custom_operators_takes_maps(parted: Path) -> None:
    options = onnxruntime.SessionOptions()
    (found,) = onnxruntime.InferenceSession(register_engines(parted, options), options).run(None, GIVEN)
    np.testing.assert_array_equal(found, onnxruntime.InferenceSession(parted.with_name("m.onnx")).run(None, GIVEN)[0])
