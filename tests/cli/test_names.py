"""Models with strings that are not UTF-8, which onnxruntime loads: every command works, and the bytes are kept."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest

from tests.cli.conftest import Run

LATIN = "é".encode("latin-1")
MODEL = """
<ir_version: 8, opset_import: ["" : 17], producer_name: "Z_producer", doc_string: "Z_doc", metadata_props: ["Z_key": "Z_value"]>
Z_graph (float[Z_batch, 8] x) => (float[Z_batch, 8] y)
<float half = {0.5}, float one = {1.0}, float Z_root = {1.4142135}>
{
  [Z_div] Z_scaled = Div (x, Z_root)
  [Z_erf] Z_erf = Erf (Z_scaled)
  [Z_add] Z_sum = Add (Z_erf, one)
  [Z_mul] Z_product = Mul (x, Z_sum)
  [Z_last] Z_gelu = Mul (Z_product, half)
  [Z_abs] y = Abs (Z_gelu)
}
"""


def latin(text: str, path: Path) -> Path:
    """A model of `text` in which every `Z` before `_` is a byte that is not UTF-8."""
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString().replace(b"Z_", LATIN + b"_"))
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return latin(MODEL, tmp_path / "m.onnx")


def test_a_model_is_fused_and_keeps_its_bytes(run: Run, model: Path) -> None:
    result = run("fuse", model, "--sites", "--compare-ort", "--json")
    assert result.code == 0, result.err
    assert result.json["verification"]["verdict"] == "equivalent"
    (fusion,) = result.json["fusions"]
    assert fusion["sites"][0]["replaces"] == ["␛e9_div", "␛e9_erf", "␛e9_add", "␛e9_mul", "␛e9_last"]
    before, after = onnx.load(model), onnx.load(model.with_name("m.fused.onnx"))
    assert [node.op_type for node in after.graph.node] == ["Gelu", "Abs"]
    assert after.graph.node[1].name == before.graph.node[5].name == LATIN + b"_abs"
    assert (after.producer_name, after.doc_string) == (before.producer_name, before.doc_string)
    assert before.metadata_props[0] in after.metadata_props
    for field in ("name", "input", "output"):
        assert getattr(after.graph, field) == getattr(before.graph, field)
    replaced = after.graph.node[0].metadata_props[1].value
    assert replaced == b'["Z_div", "Z_erf", "Z_add", "Z_mul", "Z_last"]'.replace(b"Z", LATIN)


def test_every_command_answers(run: Run, model: Path, tmp_path: Path) -> None:
    files = [part for name in ("--junit", "--summary", "--write-expect") for part in (name, tmp_path / name.strip("-"))]
    assert run("fuse", model, *files).code == 0
    assert run("fuse", model, "--expect", tmp_path / "write-expect").code == 0
    assert run("verify", model, tmp_path / "m.fused.onnx").code == 0
    assert run("specialize", model, "--shape", "x=2x8").code == 0
    assert run("partition", model, "--backend", "onnxruntime", "--gain", "inf").code == 0
    assert run("inline", tmp_path / "m.partitioned.onnx").code == 0
    names = {node.name for node in onnx.load(tmp_path / "m.partitioned.inlined.onnx").graph.node}
    assert LATIN + b"_abs" in names
    assert "\nnode      ␛e9_last\n" in run("explain", model, "geglu", "--node", "␛e9_last").out


def test_an_input_of_such_a_name_is_the_reason_why_nothing_was_compared(run: Run, tmp_path: Path) -> None:
    """onnxruntime loads the model, but its Python interface can neither name nor feed the input."""
    model = latin(MODEL.replace("] x)", "] Z_x)").replace("(x,", "(Z_x,"), tmp_path / "m.onnx")
    result = run("fuse", model, "--json")
    assert (result.code, list(tmp_path.iterdir())) == (2, [model])
    assert "an input or output has a name that is not UTF-8" in result.json["verification"]["reason"]
    assert run("fuse", model, "--no-verify").code == 0
    assert onnx.load(tmp_path / "m.fused.onnx").graph.input[0].name == LATIN + b"_x"


@pytest.mark.skipif(os.name != "posix", reason="file names are bytes on POSIX")
def test_a_file_of_such_a_name_is_fused_and_named(run: Run, run_process: Run, model: Path, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(LATIN + b".onnx")
    try:
        path.write_bytes(model.read_bytes())
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    fused = tmp_path / os.fsdecode(LATIN + b".fused.onnx")
    for command, options in ((run_process, []), (run, []), (run, ["--json"])):
        result = command("fuse", path, *options)
        assert result.code == 0, result.err
        assert f"{os.sep}\\udce9.fused.onnx" in result.out
        fused.unlink()
    missing = run("explain", tmp_path / os.fsdecode(LATIN))
    assert missing.code == 2
    assert "there is no such file" in missing.err and "bug" not in missing.err
