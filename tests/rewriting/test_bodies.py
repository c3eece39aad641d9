"""A written-out function body becomes its operator, and all nodes that computed it are removed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import onnx
import onnx.parser
import pytest
from onnx.backend.test.case import node as cases

from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.options import Options
from onnx_subgraph.pipeline import fuse
from onnx_subgraph.result import FuseResult

MODEL = """<ir_version: 8, opset_import: ["" : {opset}]>
g (float[N, 3, 4] x, float[3, 4] w) => (float[N, 3, 4] y, float[N, 1, 1] m)
<float eps = {{0.001}}, int64[1] zero = {{0}}, int64[1] first = {{1}}, int64[1] axes = {{1}}, int64[2] ones = {{1, 1}}> {{
  shape = Shape (x)
  matrix = Flatten <axis = 1> (x)
  mean = {mean}
  square = Mul (matrix, matrix)
  squares = {squares}
  mean2 = Mul (mean, mean)
  variance = Sub (squares, mean2)
  safe = Add (variance, eps)
  deviation = Sqrt (safe)
  centred = Sub (matrix, mean)
  normal = Div (centred, deviation)
  scale = Flatten <axis = 0> (w)
  scaled = Mul (normal, scale)
  y = Reshape (scaled, shape)
  rows = Slice (shape, zero, first)
  few = Concat <axis = 0> (rows, ones)
  m = Reshape (mean, few)
}}"""


def fused(folder: Path, target: str, opset: int = 18) -> FuseResult:
    """The layer normalization, written out at an opset and fused again; `folder/fused.onnx` is the output."""
    means = {"mean": "matrix", "squares": "square"}
    reduce = "ReduceMean ({}, axes)" if opset >= 18 else "ReduceMean <axes = [1]> ({})"
    text = MODEL.format(opset=opset, **{name: reduce.format(value) for name, value in means.items()})
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")
    options = Options(target=target, only=("function-body",))
    return fuse(folder / "model.onnx", folder / "fused.onnx", load_patterns(), options)


@pytest.mark.parametrize("target", ["onnxruntime", "standard"])
def test_the_operator_replaces_all_nodes_that_computed_it(target: str, tmp_path: Path) -> None:
    result = fused(tmp_path, target)
    (node,) = onnx.load(tmp_path / "fused.onnx").graph.node
    assert result.verdict.verdict == "equivalent"
    assert (node.op_type, list(node.input), list(node.output)) == ("LayerNormalization", ["x", "w"], ["y", "m"])
    assert {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute} == {"axis": 1, "epsilon": pytest.approx(0.001)}


def test_an_operator_of_a_later_opset_raises_the_opset(tmp_path: Path) -> None:
    result = fused(tmp_path, "onnxruntime", opset=13)
    assert [node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node] == ["LayerNormalization"]
    assert (result.opset_before, result.opset_after) == (13, 17)


def test_target_function_emits_no_operator_of_the_standard(tmp_path: Path) -> None:
    (skip,) = fused(tmp_path, "function").skipped
    assert skip.reason == "the pattern has no replacement for the target function"
    assert skip.change == "choose another: --target onnxruntime or standard"


def test_the_definition_of_attention_becomes_one_operator_before_a_pattern_takes_a_part(tmp_path: Path) -> None:
    """ONNX's own model has a Where with a constant condition, which must not let a formula match inside it."""
    import_module("onnx.backend.test.case.node.attention")  # alone: to collect the cases of all operators takes seconds
    (case,) = (case for case in cases._NodeTestCases if case.name == "test_attention_4d_expanded")
    onnx.save(case.model, tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", None, load_patterns(), Options(prefer="fusion", dry_run=True))
    assert [rewrite.op for rewrite in result.rewrites] == ["Attention"]
