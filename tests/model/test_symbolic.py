"""Functions that replace the library's calls of sympy give the same answers."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx_shape_inference import _constraints, _engine

from onnx_subgraph.files.models import load
from onnx_subgraph.model import symbolic
from onnx_subgraph.model.shapes import infer_shapes

SAMPLES = Path(__file__).parents[2] / "sample_models"

COMPUTED = """
<ir_version: 8, opset_import: ["" : 17]>
computed (float[batch, 4, "2*width"] x, bool c) => (float["4*batch", "2*width"] y, float["batch*width", k] z)
<int64[2] rows = {-1, 0}, int64[2] all = {-1, 1}>
{
  y = If (c) <
    then_branch = then () => (float["4*batch", "2*width"] t) { s = Transpose <perm = [1, 0, 2]> (x)  t = Reshape (s, rows) },
    else_branch = else () => (float[inner, m] e) { e = Reshape (x, rows) }
  >
  z = Reshape (x, all)
}
"""


@pytest.fixture(params=["computed", "bert_torchscript", "t5_dynamo", "branches_dynamo"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> ir.Model:
    if request.param != "computed":
        return load(SAMPLES / f"{request.param}.onnx")
    onnx.save(onnx.parser.parse_model(COMPUTED), tmp_path / "computed.onnx")
    return load(tmp_path / "computed.onnx")


def test_the_names_in_all_dimensions_equal_those_of_the_library(model: ir.Model) -> None:
    symbolic.install()
    ours = _engine._constraints.collect_symbol_names
    assert ours is not _constraints.collect_symbol_names
    assert ours(model.graph) == _constraints.collect_symbol_names(model.graph) != set()
    infer_shapes(model)
    assert ours(model.graph) == _constraints.collect_symbol_names(model.graph)


def test_shapes_equal_those_of_the_library(model: ir.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    infer_shapes(model)
    ours = {value.name: str(value.shape) for node in model.graph.all_nodes() for value in node.outputs}
    monkeypatch.setattr(_engine, "_constraints", _constraints)
    infer_shapes(model)
    assert {value.name: str(value.shape) for node in model.graph.all_nodes() for value in node.outputs} == ours
