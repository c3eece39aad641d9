"""`specialize` on the command line: the written files, the messages, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph import pipeline
from tests.cli.conftest import PLAIN, ROOT, Run, save

BERT = ROOT / "sample_models" / "bert_torchscript.onnx"


def first_layer(model: onnx.ModelProto) -> str:
    """What the first layer of BERT reads: the sum of the embeddings, normalized."""
    return str(next(node.input[0] for node in model.graph.node if node.op_type == "MatMul"))


def test_a_static_model_is_verified_and_written(run: Run, tmp_path: Path) -> None:
    result = run("specialize", BERT, "--shape", "input_ids=1x8", "-o", tmp_path / "static.onnx", "--json")
    assert result.code == 0, result.err
    answer = result.json
    assert answer["verification"]["verdict"] == "equivalent" and answer["fixed"] == {"input_ids": [1, 8]}
    assert answer["nodes"]["after"] < answer["nodes"]["before"] / 2 and answer["unchanged"] is False
    written = onnx.load(tmp_path / "static.onnx")
    assert [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in written.graph.input] == [[1, 8], [1, 8]]


def test_a_name_of_an_output_stays_free(run: Run, tmp_path: Path) -> None:
    """What the Reshape gives has as many elements as x. So inference gives the nameless dimension of x the name M."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float["?", 8, 3, 5] x, int64[4] n) => (float[M, 2, 6, 10] y)
      <int64[6] six = {-1, 2, 2, 2, 3, 5}, int64[4] n = {-1, 2, 6, 10}> {
        r = Reshape(x, six) t = Transpose <perm = [0, 3, 4, 1, 5, 2]> (r) y = Reshape(t, n) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    result = run("specialize", tmp_path / "model.onnx", "--shape", "x=2x8x3x5", "-o", tmp_path / "static.onnx", "--json")
    assert result.code == 0 and result.json["verification"]["verdict"] == "equivalent", result.err
    (output,) = onnx.load(tmp_path / "static.onnx").graph.output
    assert output.type.tensor_type.shape.dim[0].dim_param == "M"


def test_it_is_written_beside_the_model_under_the_name_of_its_shape(run: Run, plain: Path) -> None:
    result = run("specialize", plain, "--shape", "x=2x8")
    assert result.code == 0 and "fixed    x=2x8" in result.out and "equivalent" in result.out
    assert "byte for byte" not in result.out
    written = onnx.load(plain.parent / "plain.2x8.onnx")  # nothing is fused, and it is no copy
    assert [dim.dim_value for dim in written.graph.input[0].type.tensor_type.shape.dim] == [2, 8]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no shape was given"),
        (("--shape", "z=1x8"), "no input 'z'"),
        (("--shape", "x=1x9"), "declared"),
        (("--shape", "x=1x8", "-o", "plain.onnx"), "never overwritten"),
    ],
)
def test_a_mistake_is_reported_and_nothing_is_written(
    run: Run, plain: Path, arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(plain.parent)
    before = plain.read_bytes()
    result = run("specialize", plain, *arguments)
    assert result.code == 2 and said in result.err and "Traceback" not in result.err
    assert [path.name for path in plain.parent.iterdir()] == ["plain.onnx"] and plain.read_bytes() == before


CONSTANT = '<ir_version: 8, opset_import: ["" : 17]> g () => (float[2] y) { y = Constant <value = float[2] {1, 2}> () }'


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (PLAIN, ["--shape", "z=3"], "the model has no input 'z'\nhint: its inputs are x\n"),
        (PLAIN, ["--shape", "x=3"], "the input 'x' is declared [batch,8], which 3 does not fit\nhint: give 2 sizes"),
        (CONSTANT, ["--shape", "x=3"], "the model has no input 'x'\nhint: it has no inputs: leave --shape out\n"),
        (PLAIN, ["--from", "none", "--to", "y"], "the model has no value 'none'\nhint: name an input, a result of a node"),
        (PLAIN, ["--scope", "none"], "no module of the model fits 'none'\nhint: "),
    ],
)
def test_a_mistake_is_reported_with_the_model_and_a_next_step(
    run: Run, tmp_path: Path, text: str, words: list[str], said: str
) -> None:
    model = save(text, tmp_path / "model.onnx")
    result = run("specialize", model, *words)
    assert result.code == 2 and result.err.startswith(f"Error: {model}: {said}")


def test_modules_and_what_lies_between_values_become_operators(run: Run, tmp_path: Path) -> None:
    output = tmp_path / "marked.onnx"
    result = run("specialize", BERT, "--shape", "input_ids=1x8", "--scope", "encoder.layer.*", "-o", output, "--json")
    assert result.code == 0, result.err
    assert result.json["verification"]["verdict"] == "equivalent"
    assert [node.op_type for node in onnx.load(output).graph.node if node.domain == "onnx_subgraph"] == ["EncoderLayer"] * 2
    (made,) = result.json["marked"]
    assert made == {"operator": "EncoderLayer", "count": 2, "nodes": made["nodes"], "first": "model.encoder.layer.0"}
    model = onnx.load(BERT)
    first, last = first_layer(model), model.graph.node[-1].output[0]
    assert run("specialize", BERT, "--from", first, "--to", last, "-o", output).code == 0
    assert "Static" in [node.op_type for node in onnx.load(output).graph.node]


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_marked_nodes_fuse_like_unmarked_ones(exporter: str, run: Run, tmp_path: Path) -> None:
    """After onnxruntime inlines the marks, it runs the same nodes as for the model without marks."""
    model = ROOT / "sample_models" / f"bert_{exporter}.onnx"
    marked, plain = tmp_path / "marked.onnx", tmp_path / "plain.onnx"
    result = run("specialize", model, "--scope", "encoder.layer.*", "-o", marked)
    assert result.code == 0 and "onnx_subgraph.EncoderLayer" in result.out, result.err
    assert run("fuse", model, "-o", plain).code == 0
    assert run("inline", marked, "-o", tmp_path / "back.onnx").code == 0

    def operators(path: Path) -> Counter[str]:
        return Counter(node.op_type for node in onnx.load(path).graph.node if node.op_type != "Constant")

    assert operators(tmp_path / "back.onnx") == operators(plain)
    assert operators(plain)["Attention"] == 2 and operators(marked)["Attention"] == 0


def test_a_mark_that_changes_the_model_is_found_and_nothing_is_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pipeline.replace_marked

    def wrong(model: ir.Model, *arguments: Any) -> Any:
        made = real(model, *arguments)
        for function in model.functions.values():
            for node in function:
                if node.op_type == "Gelu":
                    node.op_type, node.domain = "Relu", ""
        return made

    monkeypatch.setattr(pipeline, "replace_marked", wrong)
    result = run("specialize", BERT, "--scope", "encoder.layer.*", "-o", tmp_path / "no.onnx")
    assert result.code == 1 and "different" in result.out and not (tmp_path / "no.onnx").exists()


def test_a_value_inside_a_fused_operator_can_not_be_a_mark(run: Run, tmp_path: Path) -> None:
    model = onnx.load(BERT)
    inner = next(node.output[0] for node in model.graph.node if node.op_type == "Erf")
    options = ("--from", first_layer(model), "--to", inner)
    result = run("specialize", BERT, *options, "-o", tmp_path / "no.onnx")
    assert result.code == 2 and "was fused into" in result.err and "--skip gelu" in result.err
    assert not (tmp_path / "no.onnx").exists()
    assert run("specialize", BERT, *options, "--skip", "gelu", "-o", tmp_path / "yes.onnx").code == 0


def test_a_mark_that_marks_nothing_is_said(run: Run, tmp_path: Path) -> None:
    result = run("specialize", BERT, "--scope", "decoder", "-o", tmp_path / "no.onnx")
    assert result.code == 2 and "no module of the model fits 'decoder'" in result.err and "its modules are" in result.err


@pytest.mark.parametrize(("words", "first"), [((), 0.0), (("--keep-subnormals",), 1e-40)])
def test_subnormal_weights_become_zeros_unless_the_user_keeps_them(
    words: tuple[str, ...], first: float, run: Run, tmp_path: Path
) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 2] x) => (float[N, 2] y)
    <float[2, 2] w = {1e-40, 1.0, 2.0, 3.0}> { y = MatMul(x, w) }"""
    ran = run("specialize", save(text, tmp_path / "m.onnx"), "--shape", "x=1x2", "-o", tmp_path / "out.onnx", *words)
    assert ran.code == 0, ran.err
    (stored,) = onnx.load(tmp_path / "out.onnx").graph.initializer
    assert onnx.numpy_helper.to_array(stored)[0, 0] == pytest.approx(first)
