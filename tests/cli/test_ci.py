"""`fuse` in a CI job: expectations, what is not written when they are missed, report files, and reproducible bytes."""

from __future__ import annotations

import json
import os
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.cli.conftest import GELU, PLAIN, ROOT, Result, Run, save
from tests.cli.test_bad_input import untouched

BERT = ROOT / "sample_models" / "bert_torchscript.onnx"
ROUNDED = GELU.replace("1.4142135", "1.42")


@pytest.fixture
def expected(run: Run, gelu: Path, tmp_path: Path) -> Path:
    """The expectation file of a good, not yet fused export of `gelu`."""
    file = tmp_path / "expected.yaml"
    assert run("fuse", gelu, "--dry-run", "--write-expect", file).code == 0
    return file


# Expectations


def test_a_run_meets_the_expectation_made_from_it(run: Run, gelu: Path, expected: Path) -> None:
    result = run("fuse", gelu, "--expect", expected)
    assert (result.code, result.err) == (0, "")
    assert "expectations  6 of 6 met" in result.out
    assert gelu.with_name("gelu.fused.onnx").exists()
    assert run("fuse", gelu, "--expect", expected, "--quiet") == Result(0, "", "")


def test_an_attribute_that_only_some_operators_have(run: Run, tmp_path: Path) -> None:
    """A product of a transposed matrix, with a scale and without: `none` is expected of the second one."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
      g (float[2, 8, 64] x, float[2, 8, 64] z) => (float[2, 64, 64] y, float[2, 64, 64] v) <float k = {0.125}> {
        t = Transpose <perm = [0, 2, 1]> (x) a = MatMul (t, z) y = Mul (a, k)
        s = Transpose <perm = [0, 2, 1]> (z) v = MatMul (s, x) }"""
    model, file = save(text, tmp_path / "m.onnx"), tmp_path / "expected.yaml"
    fuse = ("fuse", model, "--prefer", "fusion", "--only", "fused-matmul")
    assert run(*fuse, "--write-expect", file).code == 0
    assert run(*fuse, "--expect", file).code == 0
    file.write_text(file.read_text().replace("- none", "- 0.5"))
    result = run(*fuse, "--expect", file)
    assert result.code == 1 and "alpha of fused-matmul: expected 0.125 or 0.5, found none" in result.err + result.out


def test_a_regressed_export_is_named_with_the_node_and_not_written(
    run: Run, gelu: Path, expected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    save(ROUNDED.replace("scaled = Div", "[act_Div] scaled = Div"), gelu)
    with untouched(gelu.parent):
        result = run("fuse", gelu, "--expect", expected)
    assert result.code == 1
    assert f"{expected}:5:13" in result.out.splitlines()
    assert "gelu: expected 1, found 0" in result.out
    assert "  nearly: node act_Div: expected the constant 0.707107, found 0.704225 (" in result.out
    assert "near misses: expected none, found 1 of gelu" in result.out
    assert "nothing written" in result.out


def test_a_layer_norm_with_another_epsilon_is_named(run: Run, tmp_path: Path) -> None:
    """Only the expectation finds this: the model fuses as before and computes what its wrong original computes."""
    model = tmp_path / "bert.onnx"
    shutil.copy(BERT, model)
    assert run("fuse", model, "--dry-run", "--write-expect", tmp_path / "expected.yaml").code == 0
    regressed = onnx.load(BERT)
    with_another_epsilon(regressed, "/model/encoder/layer.0/output/LayerNorm/")
    onnx.save(regressed, model)
    result = run("fuse", model, "--expect", tmp_path / "expected.yaml", "--json")
    assert (result.code, result.json["output"]) == (1, None)
    assert result.json["verification"]["verdict"] == "equivalent"
    missed = {one["what"]: one["found"] for one in result.json["expectations"] if not one["met"]}
    assert missed == {
        "epsilon of layer-normalization": "0.001 at /model/encoder/layer.0/output/LayerNorm/LayerNormalization",
        "epsilon of sum-layer-normalization": "0.001 at /model/encoder/layer.0/output/LayerNormalization",
    }
    assert "epsilon of layer-normalization: expected 1e-12, found 0.001 at /model/encoder/layer.0/output/" in result.err


def with_another_epsilon(model: onnx.ModelProto, scope: str) -> None:
    constants = {node.output[0]: node for node in model.graph.node if node.op_type == "Constant"}
    add = next(node for node in model.graph.node if node.name.startswith(scope) and node.op_type == "Add")
    epsilon = next(constants[name] for name in add.input if name in constants)
    position = list(model.graph.node).index(epsilon)
    other = onnx.helper.make_node("Constant", [], ["other_epsilon"], value=onnx.numpy_helper.from_array(np.float32(1e-3)))
    model.graph.node.insert(position, other)
    add.input[list(add.input).index(epsilon.output[0])] = "other_epsilon"
    if not any(epsilon.output[0] in node.input for node in model.graph.node):
        model.graph.node.remove(epsilon)


def test_several_models_have_a_section_each(run: Run, tmp_path: Path) -> None:
    models = [save(GELU, tmp_path / "a.onnx"), save(PLAIN, tmp_path / "b.onnx")]
    file = tmp_path / "expected.yaml"
    assert run("fuse", *models, "--output-dir", tmp_path / "out", "--write-expect", file).code == 0
    save(ROUNDED, models[0])
    result = run("fuse", *models, "--output-dir", tmp_path / "again", "--expect", file, "-j", "2")
    assert result.code == 1
    assert [path.name for path in (tmp_path / "again").iterdir()] == ["b.onnx"]


def test_a_model_without_a_section_is_refused_before_the_work(run: Run, gelu: Path, expected: Path, tmp_path: Path) -> None:
    other = save(PLAIN, tmp_path / "other.onnx")
    with untouched(tmp_path):
        result = run("fuse", gelu, other, "--expect", expected)
    assert (result.code, result.out) == (2, "")
    assert (
        f"{expected}:2:1: there is no section for the model {other}\n2 | models:\n  | ^^^^^^\nhint: add a section" in result.err
    )


def test_a_section_without_a_model_is_reported_and_no_failure(run: Run, gelu: Path, expected: Path, tmp_path: Path) -> None:
    expected.write_text(expected.read_text(encoding="utf-8") + "  lost.onnx: {nodes: 3}\n", encoding="utf-8")
    files = ["--junit", tmp_path / "junit.xml", "--summary", tmp_path / "summary.md"]
    result = run("fuse", gelu, "--dry-run", "--expect", expected, *files, "--annotations")
    assert result.code == 0
    assert "::warning file=" in result.err and "lost.onnx" in result.err
    assert "lost.onnx" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    skipped = ElementTree.parse(tmp_path / "junit.xml").getroot().findall(".//testcase[@name='expectations']/skipped")
    assert [one.get("message") for one in skipped] == ["no model of this run"]


def test_a_mistake_in_the_file_is_found_before_the_work(run: Run, gelu: Path, expected: Path) -> None:
    expected.write_text("models:\n  gelu.onnx:\n    fusion: {}\n", encoding="utf-8")
    with untouched(gelu.parent):
        result = run("fuse", gelu, "--expect", expected)
    assert (result.code, result.out) == (2, "")
    assert f"{expected}:3:5: `fusion` is not a key" in result.err and "did you mean `fusions`?" in result.err


def test_no_expectation_is_made_from_a_bad_run(run: Run, gelu: Path, tmp_path: Path) -> None:
    result = run("fuse", gelu, "--rtol", "0", "--atol", "0", "--write-expect", tmp_path / "expected.yaml")
    assert result.code == 1
    assert f"{tmp_path / 'expected.yaml'} was not written: {gelu} not equivalent to the original" in result.err
    assert not (tmp_path / "expected.yaml").exists()


def test_the_expected_size_is_that_of_the_file(run: Run, gelu: Path, tmp_path: Path) -> None:
    """The size includes external data, in the same folder and in another one."""
    onnx.save(onnx.load(gelu), tmp_path / "x.onnx", save_as_external_data=True, location="x.bin", size_threshold=0)
    for model in (gelu, tmp_path / "x.onnx"):
        assert run("fuse", model, "--output-dir", tmp_path / model.stem, "--write-expect", tmp_path / "e.yaml").code == 0
        size = sum(file.stat().st_size for file in (tmp_path / model.stem).iterdir())
        line = next(line for line in (tmp_path / "e.yaml").read_text(encoding="utf-8").splitlines() if "size:" in line)
        assert 0 <= int(line.split()[-2]) - size < size / 10, line


# Files


FILES = {"--write-expect": "expected.yaml", "--junit": "junit.xml", "--summary": "summary.md"}


@pytest.mark.parametrize("option", FILES)
def test_a_file_that_can_not_be_written_is_reported_before_the_work(run: Run, gelu: Path, tmp_path: Path, option: str) -> None:
    (tmp_path / "folder").mkdir()
    for path, words in (
        (tmp_path / "missing" / "file", f"there is no folder {tmp_path / 'missing'}"),
        (tmp_path / "folder", "is not a regular file"),
        (gelu, "is also the file of a model"),
        (gelu.with_name("gelu.fused.onnx"), "is also the file of a model"),
    ):
        with untouched(tmp_path):
            result = run("fuse", gelu, option, path)
        assert (result.code, result.out) == (2, ""), path
        assert f"{option}: " in result.err and words in result.err and "hint: " in result.err


def test_a_folder_that_can_not_be_written_to_is_reported(run: Run, gelu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != gelu.parent)
    result = run("fuse", gelu, "--dry-run", "--junit", gelu.with_name("junit.xml"))
    assert result.code == 2
    assert f"--junit: the folder {gelu.parent} can't be written to" in result.err


def test_two_files_of_one_name_are_refused(run: Run, gelu: Path, tmp_path: Path) -> None:
    result = run("fuse", gelu, "--junit", tmp_path / "x", "--summary", tmp_path / "." / "x")
    assert result.code == 2
    assert "is also the file of --junit" in result.err
    result = run("fuse", gelu, "--expect", gelu, "--write-expect", tmp_path / "x")
    assert result.code == 2
    assert "--expect and --write-expect exclude each other" in result.err


def test_a_summary_is_appended_and_other_files_are_written_again(run: Run, gelu: Path, tmp_path: Path) -> None:
    """GITHUB_STEP_SUMMARY is one file for all commands of a step."""
    summary, junit = tmp_path / "summary.md", tmp_path / "junit.xml"
    summary.write_text("# Before\n", encoding="utf-8")
    for _ in range(2):
        assert run("fuse", gelu, "--dry-run", "--junit", junit, "--summary", summary).code == 0
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("# Before\n### onnx-subgraph: 1 of 1 model passed\n")
    assert text.count("### onnx-subgraph") == 2
    assert len(ElementTree.parse(junit).getroot()) == 1


def test_files_are_written_where_models_fail(run: Run, gelu: Path, tmp_path: Path) -> None:
    files = ["--junit", tmp_path / "junit.xml", "--summary", tmp_path / "summary.md"]
    result = run("fuse", gelu, tmp_path / "missing.onnx", "--dry-run", *files)
    assert result.code == 2
    assert [case.get("message") for case in ElementTree.parse(tmp_path / "junit.xml").getroot().iter("error")] == [
        f"{tmp_path / 'missing.onnx'}: there is no such file"
    ]
    assert "there is no such file" in (tmp_path / "summary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("options", "environment", "printed"), [
    ([], "true", True),
    ([], "", False),
    (["--annotations"], "", True),
    (["--no-annotations"], "true", False),
])  # fmt: skip
def test_annotations_are_printed_on_github(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], environment: str, printed: bool
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", environment)
    result = run("fuse", tmp_path / "missing.onnx", *options)
    assert ("::error file=" in result.err) == printed
    assert "::" not in result.out


# Equal bytes


def test_the_same_run_gives_the_same_bytes(run_process: Run, tmp_path: Path) -> None:
    """Model, JSON (except seconds), JUnit, summary and expectation file; in two processes with different string hashes."""
    shutil.copy(BERT, tmp_path / "bert.onnx")
    names = {"-o": "out.onnx", **FILES}
    seen = []
    for seed in "12":
        files = [item for option, name in names.items() for item in (option, tmp_path / name)]
        result = run_process("fuse", tmp_path / "bert.onnx", *files, "--json", PYTHONHASHSEED=seed)
        assert result.code == 0
        answer = json.loads(result.out)
        assert answer.pop("seconds")
        seen.append([json.dumps(answer), *((tmp_path / name).read_bytes() for name in names.values())])
        for name in names.values():
            (tmp_path / name).unlink()
    assert seen[0] == seen[1]
