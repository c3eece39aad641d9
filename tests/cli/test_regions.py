"""Patterns of regions on the command line: fused, explained, listed and proved, and used only where they are requested."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.cli.conftest import Run, save

SAMPLES = Path(__file__).parents[2] / "sample_models"
CONV_BN = """
id: conv-bn
summary: A convolution and the batch normalization after it
grow:
  select: node.operator == "Conv"
  output: consumer.operator == "BatchNormalization"
  keep: region.size == 2 and len(region.outputs) == 1
replace: {function: ConvBN}
"""
MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
fork (float[batch, 8] x) => (float[batch, 8] y, float[batch, 8] z) <float half = {0.5}>
{
  a = Mul (x, half)
  b = Add (a, x)
  y = Softmax (b)
  z = Exp (a)
}
"""


@pytest.fixture
def conv_bn(tmp_path: Path) -> Path:
    file = tmp_path / "mine" / "conv_bn.yaml"
    file.parent.mkdir()
    file.write_text(CONV_BN, encoding="utf-8")
    return file


@pytest.mark.parametrize("name", ["resnet_dynamo", "resnet_torchscript"])
def test_convolution_and_normalization_become_one_operator(run: Run, tmp_path: Path, conv_bn: Path, name: str) -> None:
    """The example of MXNet's tutorial on its subgraph API, on real exports."""
    output = tmp_path / "out.onnx"
    result = run(
        *(
            "fuse",
            SAMPLES / f"{name}.onnx",
            "-o",
            output,
            "--patterns",
            conv_bn,
            "--only",
            "conv-bn",
            "--target",
            "function",
            "--json",
        )
    )
    assert (result.code, result.json["verification"]["verdict"]) == (0, "equivalent")
    assert sum(f["count"] for f in result.json["fusions"]) == 9
    assert all(f["op"].startswith("onnx_subgraph.ConvBN") and f["function"] for f in result.json["fusions"])
    assert "BatchNormalization" not in {n.op_type for n in onnx.load(output).graph.node}


def test_a_region_is_not_replaced_for_another_target_and_the_report_says_why(run: Run, tmp_path: Path, conv_bn: Path) -> None:
    result = run("fuse", SAMPLES / "resnet_dynamo.onnx", "-o", tmp_path / "out.onnx", "--patterns", conv_bn, "--only", "conv-bn")
    assert result.code == 0
    assert "a region becomes a function: use the target function" in result.out


def test_built_in_regions_are_for_the_target_function(run: Run, tmp_path: Path) -> None:
    model = save(MODEL, tmp_path / "m.onnx")
    plain = run("fuse", model, "-o", tmp_path / "plain.onnx", "--json")
    assert (plain.json["fusions"], plain.json["skipped"]) == ([], [])
    fused = run("fuse", model, "-o", tmp_path / "fused.onnx", "--target", "function", "--json")
    assert [(f["pattern"], f["count"]) for f in fused.json["fusions"]] == [("around-softmax", 1)]
    without = run(
        *("fuse", model, "-o", tmp_path / "without.onnx", "--target", "function", "--skip", "around-softmax", "--json"),
    )
    assert [(f["pattern"], f["count"]) for f in without.json["fusions"]] == [("elementwise-region", 1)]


def test_fusing_a_fused_model_changes_nothing(run: Run, tmp_path: Path) -> None:
    model = save(MODEL, tmp_path / "m.onnx")
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    assert run("fuse", model, "-o", first, "--target", "function").code == 0
    assert run("fuse", first, "-o", second, "--target", "function").code == 0
    assert first.read_bytes() == second.read_bytes()


def test_explain_quotes_the_sentence_that_rejects_a_region(run: Run, tmp_path: Path, conv_bn: Path) -> None:
    conv_bn.write_text(CONV_BN.replace("region.size == 2", "region.size > 2"), encoding="utf-8")
    result = run("explain", SAMPLES / "resnet_dynamo.onnx", "conv-bn", "--patterns", conv_bn)
    assert result.code == 0
    assert "conv-bn: 2 nodes matched, at 9 places" in result.out
    assert "expected  `region.size > 2`" in result.out
    assert "found     a region of 2 nodes (BatchNormalization, Conv) of float32" in result.out
    assert "^^^^^^^^^^^^^^^" in result.out


def test_a_pattern_of_regions_is_listed_and_proved(run: Run) -> None:
    assert "targets  function" in run("list-patterns", "elementwise-region").out
    result = run("test-patterns", "elementwise-region", "--json")
    (proof,) = result.json["patterns"]
    assert (result.code, proof["failures"]) == (0, [])
    assert proof["targets"]["function"] == 3


def test_a_pattern_of_regions_without_models_is_not_proved(run: Run, conv_bn: Path) -> None:
    result = run("test-patterns", "conv-bn", "--patterns", conv_bn)
    assert result.code == 1
    assert "nothing could be proved; give real spellings in `fuses`" in result.out
