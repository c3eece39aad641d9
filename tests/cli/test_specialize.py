"""`specialize` at the command line: what is written, what is said, and what is refused."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.cli.conftest import ROOT, Run, save

BERT = ROOT / "sample_models" / "bert_torchscript.onnx"


def test_a_static_model_is_verified_and_written(run: Run, tmp_path: Path) -> None:
    result = run("specialize", BERT, "--shape", "input_ids=1x8", "-o", tmp_path / "static.onnx", "--json")
    assert result.code == 0, result.err
    answer = result.json
    assert answer["verification"]["verdict"] == "equivalent" and answer["fixed"] == {"input_ids": [1, 8]}
    assert answer["nodes"]["after"] < answer["nodes"]["before"] / 2 and answer["unchanged"] is False
    written = onnx.load(tmp_path / "static.onnx")
    assert [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in written.graph.input] == [[1, 8], [1, 8]]


def test_it_is_written_beside_the_model_under_the_name_of_its_shape(run: Run, plain: Path) -> None:
    result = run("specialize", plain, "--shape", "x=2x8")
    assert result.code == 0 and "fixed    x=2x8" in result.out and "equivalent" in result.out
    assert (plain.parent / "plain.2x8.onnx").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no shape was given"),
        (("--shape", "z=1x8"), "no input 'z'"),
        (("--shape", "x=1x9"), "declared"),
        (("--shape", "x=1x8", "-o", "plain.onnx"), "never overwritten"),
    ],
)
def test_a_mistake_is_said_and_nothing_is_written(
    run: Run, plain: Path, arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(plain.parent)
    before = plain.read_bytes()
    result = run("specialize", plain, *arguments)
    assert result.code == 2 and said in result.err and "Traceback" not in result.err
    assert [path.name for path in plain.parent.iterdir()] == ["plain.onnx"] and plain.read_bytes() == before


def test_modules_and_what_lies_between_values_become_operators(run: Run, tmp_path: Path) -> None:
    output = tmp_path / "marked.onnx"
    result = run("specialize", BERT, "--shape", "input_ids=1x8", "--scope", "encoder.layer.*", "-o", output, "--json")
    assert result.code == 0, result.err
    assert result.json["verification"]["verdict"] == "equivalent"
    assert [node.op_type for node in onnx.load(output).graph.node if node.domain == "onnx_subgraph"] == ["EncoderLayer"] * 2
    model = onnx.load(BERT)
    first, last = model.graph.node[100].output[0], model.graph.node[-1].output[0]
    assert run("specialize", BERT, "--from", first, "--to", last, "-o", output).code == 0
    assert "Static" in [node.op_type for node in onnx.load(output).graph.node]


def test_a_mark_that_marks_nothing_is_said(run: Run, tmp_path: Path) -> None:
    result = run("specialize", BERT, "--scope", "decoder", "-o", tmp_path / "no.onnx")
    assert result.code == 2 and "no module of the model fits 'decoder'" in result.err and "its modules are" in result.err


@pytest.mark.parametrize(("words", "first"), [((), 0.0), (("--keep-subnormals",), 1e-40)])
def test_subnormal_weights_become_zeros_unless_they_are_to_be_kept(
    words: tuple[str, ...], first: float, run: Run, tmp_path: Path
) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 2] x) => (float[N, 2] y)
    <float[2, 2] w = {1e-40, 1.0, 2.0, 3.0}> { y = MatMul(x, w) }"""
    ran = run("specialize", save(text, tmp_path / "m.onnx"), "--shape", "x=1x2", "-o", tmp_path / "out.onnx", *words)
    assert ran.code == 0, ran.err
    (stored,) = onnx.load(tmp_path / "out.onnx").graph.initializer
    assert onnx.numpy_helper.to_array(stored)[0, 0] == pytest.approx(first)
