"""Marked nodes become one operator that computes the same and can be inlined again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from onnx_subgraph import Options, UsageError, fuse, load_patterns, pipeline
from onnx_subgraph.files.models import load, save
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.rewriting.marked import Marks, replace_marked

SAMPLES = Path(__file__).parents[2] / "sample_models"


def run(path: Path) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(path)
    return session.run(None, {value.name: np.ones((2, 5), np.int64) for value in session.get_inputs()})


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_equal_layers_share_a_definition_and_compute_the_same(exporter: str, tmp_path: Path) -> None:
    path = SAMPLES / f"bert_{exporter}.onnx"
    model = load(path)
    infer_shapes(model)
    (made,) = replace_marked(model, Marks(scopes=("encoder.layer.*.output",)))
    assert (made.operator, made.count, made.first) == ("EncoderLayerOutput", 2, "model.encoder.layer.0.output")
    calls = [node for node in model.graph if node.domain == "onnx_subgraph"]
    assert [call.op_type for call in calls] == ["EncoderLayerOutput", "EncoderLayerOutput"]
    save(model, tmp_path / "marked.onnx", None)
    onnx.checker.check_model(onnx.load(tmp_path / "marked.onnx"))
    for ours, theirs in zip(run(tmp_path / "marked.onnx"), run(path), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_nodes_between_two_values_become_one_operator(tmp_path: Path) -> None:
    path = SAMPLES / "bert_torchscript.onnx"
    model = load(path)
    nodes = [node for node in model.graph if node.op_type == "Softmax"]
    first, last = nodes[0].inputs[0].name, nodes[1].outputs[0].name
    assert [made.count for made in replace_marked(model, Marks(first=(first,), last=(last,)))] == [1]
    assert [node.op_type for node in model.graph if node.domain == "onnx_subgraph"] == ["Static"]
    assert sum(node.op_type == "Softmax" for node in model.graph) == 0
    save(model, tmp_path / "marked.onnx", None)
    for ours, theirs in zip(run(tmp_path / "marked.onnx"), run(path), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def graph(body: str) -> ir.Model:
    return ir.from_proto(
        onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, bool c) => (float[2] y) {{ {body} }}')
    )


def test_constants_inside_a_definition_are_removed_from_the_model() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[6] x) => (float[2, 3] y, float[6] z)
    <int64[2] shape = {2, 3}, float half = {0.5}> { a = Abs (x) b = Reshape (a, shape) y = Mul (b, half) z = Mul (x, half) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    replace_marked(model, Marks(first=("x",), last=("y",)))
    assert list(model.graph.initializers) == ["half"], "who else reads one still does"
    feeds = {"x": np.arange(6, dtype=np.float32)}
    y, z = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString()).run(None, feeds)
    assert np.array_equal(y, feeds["x"].reshape(2, 3) / 2) and np.array_equal(z, feeds["x"] / 2)


def test_the_message_says_that_a_value_is_inside_a_body() -> None:
    model = graph(
        """y = If (c) <then_branch = t () => (float[2] p) { p = Exp (x) }, else_branch = e () => (float[2] q) { q = Neg (x) }>"""
    )
    with pytest.raises(UsageError, match="p is in the body of an If, Loop or Scan"):
        replace_marked(model, Marks(first=("x",), last=("p",)))


def test_a_body_and_its_captures_are_included() -> None:
    model = graph(
        """a = Abs (x) y = If (c) <then_branch = t () => (float[2] p) { p = Exp (a) },
        else_branch = e () => (float[2] q) { q = Neg (a) }>"""
    )
    before = ir.to_proto(model).SerializeToString()
    replace_marked(model, Marks(first=("x",), last=("y",)))
    feeds = {"x": np.array([-1, 2], np.float32), "c": np.array(True)}
    ours, theirs = (
        onnxruntime.InferenceSession(data).run(None, feeds)[0] for data in (ir.to_proto(model).SerializeToString(), before)
    )
    assert np.array_equal(ours, theirs) and len(list(model.graph)) == 1


@pytest.mark.parametrize(
    ("marks", "said"),
    [
        (Marks(first=("a",)), "only one end"),
        (Marks(first=("a",), last=("z",)), "no value 'z'"),
        (Marks(scopes=("layer",)), "no module"),
        (Marks(scopes=("one", "m")), "overlaps"),
    ],
)
def test_marks_that_mark_nothing_are_refused(marks: Marks, said: str) -> None:
    model = graph("a = Abs (x) b = Neg (a) y = Exp (b)")
    if said == "overlaps":
        for node in model.graph:
            node.name = f"/m/one/{node.op_type}"
    with pytest.raises(UsageError, match=said):
        replace_marked(model, marks)


def test_a_model_that_marking_made_wrong_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict on what was fused says nothing about it."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x) => (float[n, 4] y)
    <float half = {0.5}> { s = Sigmoid (x) a = Mul (x, s) b = Tanh (a) y = Mul (b, half) }"""
    onnx.save(onnx.parser.parse_model(text), path := tmp_path / "m.onnx")

    def wrong(model: ir.Model, *given: Any) -> Any:
        made = replace_marked(model, *given)
        model.graph.initializers["half"].const_value = ir.tensor(np.float32(0.25))
        return made

    options, out = Options(marks=Marks(first=("a",), last=("b",))), tmp_path / "out.onnx"
    assert fuse(path, out, load_patterns(), options).verdict.verdict == "equivalent" and out.exists()
    out.unlink()
    monkeypatch.setattr(pipeline, "replace_marked", wrong)
    assert fuse(path, out, load_patterns(), options).verdict.verdict == "different" and not out.exists()
