"""`fuse --tune` and `--tuned`: the report has the measurements, and a saved choice is used without measuring."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import onnx
import pytest

from onnx_subgraph.kernels.compilers import compilers
from tests.cli.conftest import Run
from tests.tuning.rough import chain, prefer_coarse, register
from tests.tuning.scripted import timed_by

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8"))
QUICK = ("--tune", "--tune-budget", "0")


def test_the_report_has_the_measurements(gelu: Path, tmp_path: Path, run: Run) -> None:
    ran = run("fuse", gelu, *QUICK, "-o", tmp_path / "out.onnx")
    assert ran.code == 0 and "Measured on this machine" in ran.out and "without gelu" in ran.out and "\ntuned " in ran.out
    answer = run("fuse", gelu, *QUICK, "-o", tmp_path / "out.onnx", "--json").json
    jsonschema.validate(answer, {**SCHEMA, "anyOf": [{"$ref": "#/$defs/fuse"}]})
    assert [choice["what"] for choice in answer["tuning"]["choices"]] == ["for the target standard", "without gelu"]


def test_a_saved_choice_is_used(gelu: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "tuned.json"
    assert run("fuse", gelu, *QUICK, "--tuned", kept, "-o", tmp_path / "out.onnx").code == 0
    monkeypatch.setattr("onnx_subgraph.tuning.tune", None)
    content = json.loads(kept.read_text())
    for skip, operators in (([], ["Gelu"]), (["gelu"], ["Div", "Erf", "Add", "Mul", "Mul"])):
        content["models"][gelu.name]["skip"] = skip
        kept.write_text(json.dumps(content))
        ran = run("fuse", gelu, "--tuned", kept, "-o", tmp_path / "out.onnx")
        assert ran.code == 0 and not ran.err
        assert [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node] == operators


def test_a_saved_choice_is_for_its_target(gelu: Path, tmp_path: Path, run: Run) -> None:
    kept = tmp_path / "tuned.json"
    assert run("fuse", gelu, *QUICK, "--tuned", kept, "-o", tmp_path / "out.onnx").code == 0
    target = json.loads(kept.read_text())["models"][gelu.name]["target"]
    for other in {"function", "onnxruntime", "standard"} - {target}:
        ran = run("fuse", gelu, "--tuned", kept, "--target", other, "-o", tmp_path / "other.onnx")
        assert ran.code == 2 and f"{kept} has what is best for the target {target}" in ran.err
        assert not (tmp_path / "other.onnx").exists()
    assert run("fuse", gelu, "--tuned", kept, "--target", target, "-o", tmp_path / "other.onnx").code == 0


def test_a_choice_of_another_machine_is_used_with_a_warning(gelu: Path, tmp_path: Path, run: Run) -> None:
    kept = tmp_path / "tuned.json"
    run("fuse", gelu, *QUICK, "--tuned", kept, "-o", tmp_path / "out.onnx")
    content = json.loads(kept.read_text())
    content["models"][gelu.name]["machine"]["processor"] = "abacus"
    kept.write_text(json.dumps(content))
    ran = run("fuse", gelu, "--tuned", kept, "-o", tmp_path / "out.onnx")
    assert ran.code == 0 and "processor was abacus and is " in ran.err and "--tune measures again" in ran.err


def test_models_of_one_name_are_told_apart_in_any_checkout(
    gelu: Path, plain: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for checkout in ("here", "there"):
        for part, model in (("encoder", gelu), ("decoder", plain)):
            (tmp_path / checkout / part).mkdir(parents=True)
            (tmp_path / checkout / part / "model.onnx").write_bytes(model.read_bytes())
    monkeypatch.chdir(tmp_path / "here")
    models = ("encoder/model.onnx", "decoder/model.onnx")
    assert run("fuse", *models, *QUICK, "--tuned", "tuned.json").code == 0
    content = json.loads(Path("tuned.json").read_text())
    assert set(content["models"]) == set(models)
    content["models"][models[0]]["skip"] = ["gelu"]
    (tmp_path / "there" / "tuned.json").write_text(json.dumps(content))
    monkeypatch.chdir(tmp_path / "there")
    assert run("fuse", *models, "--tuned", "tuned.json").code == 0
    assert "Erf" in [node.op_type for node in onnx.load("encoder/model.fused.onnx").graph.node]


def test_an_accuracy_chooses_the_rounded_products_and_is_saved(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    timed_by(monkeypatch, lambda node: 1.0 if any(attribute.s == b"bf16" for attribute in node.attribute) else 10.0)
    if next(compilers(), None) is None:
        pytest.skip("there is no C compiler here")
    model, kept = ROOT / "sample_models" / "llama_dynamo.onnx", tmp_path / "tuned.json"
    ran = run("fuse", model, *QUICK, "--target", "native", "--accuracy", "0.5", "--tuned", kept, "-o", tmp_path / "out.onnx")
    assert ran.code == 0 and "products: outputs within" in ran.out
    content = json.loads(kept.read_text())
    content["models"][model.name] |= {"numerics": "bf16", "rounded": None, "accuracy": 1e-9}
    kept.write_text(json.dumps(content))
    ran = run("fuse", model, "--tuned", kept, "-o", tmp_path / "other.onnx")
    assert ran.code == 1 and "--accuracy allows 1.0e-09" in ran.out and not (tmp_path / "other.onnx").exists()


def test_engines_are_tried_and_a_saved_choice_of_them_is_used(gelu: Path, tmp_path: Path, run: Run) -> None:
    kept, output = tmp_path / "tuned.json", tmp_path / "out.onnx"
    ran = run("fuse", gelu, *QUICK, "--backend", "onnxruntime", "--tuned", kept, "-o", output)
    assert ran.code == 0 and "by onnxruntime" in ran.out, ran.err
    content = json.loads(kept.read_text())
    content["models"][gelu.name] |= {"skip": ["gelu"], "backend": "onnxruntime"}
    kept.write_text(json.dumps(content))
    ran = run("fuse", gelu, "--tuned", kept, "-o", output)
    assert ran.code == 0 and "engines  1 engine of onnxruntime with 5 nodes" in ran.out and "Why nothing" not in ran.out
    assert [node.op_type for node in onnx.load(output).graph.node] == ["Engine"]
    answer = run("fuse", gelu, "--tuned", kept, "-o", output, "--json").json
    jsonschema.validate(answer, {**SCHEMA, "anyOf": [{"$ref": "#/$defs/fuse"}]})
    assert answer["engines"] == {"backend": "onnxruntime", "count": 1, "nodes": 5, "refused": []}


def test_a_part_in_lower_precision_is_told_and_used_again(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)
    prefer_coarse(monkeypatch)
    network = chain(tmp_path / "network.onnx")
    kept, output = tmp_path / "tuned.json", tmp_path / "out.onnx"
    ran = run("fuse", network, *QUICK, "--backend", "rough", "--accuracy", "6e-3", "--tuned", kept, "-o", output)
    assert ran.code == 0 and "of 8 nodes, and rough for the others: outputs within" in ran.out, ran.err
    assert "by engines of rough:coarse and rough: the first computes" in ran.out
    saved = json.loads(kept.read_text())["models"][network.name]["results"]
    ran = run("fuse", network, "--tuned", kept, "-o", output, "--json")
    assert ran.code == 0 and ran.json["tuning"]["results"] == saved
    assert ran.json["engines"]["backend"] == "rough:coarse;rough"


def test_options_that_can_not_work_are_an_error(gelu: Path, plain: Path, tmp_path: Path, run: Run) -> None:
    kept = tmp_path / "tuned.json"
    run("fuse", gelu, *QUICK, "--tuned", kept, "-o", tmp_path / "out.onnx")
    for words, said in (
        ((plain, "--tuned", kept), f"{kept}: it has no entry for {plain}"),
        ((gelu, "--tuned", tmp_path / "no.json"), "no.json: can't be read"),
        ((gelu, plain, *QUICK, "-j", "2"), "--tune needs the machine for itself\nhint: leave -j out"),
        ((gelu, *QUICK, "--assume-provider", "CUDAExecutionProvider"), "--tune measures on a provider"),
        ((gelu, "--backend", "onnxruntime"), "--backend is tried by --tune\nhint: add --tune; `onnx-subgraph partition`"),
        ((gelu, *QUICK, "--backend", "nobody"), "there is no backend nobody"),
        ((gelu, *QUICK, "--backend", "onnxruntime", "--dry-run"), "--backend needs a model that is written to run"),
        ((gelu, "--tune-budget", "1"), "--tune-budget limits --tune, and nothing is measured\nhint: add --tune"),
        ((gelu, "--accuracy", "1e-2"), "--accuracy limits the error of rounding, but nothing is rounded\nhint: add --tune"),
        (
            (gelu, *QUICK, "--accuracy", "1e-2"),
            "in less than float32\nhint: add --target native, or --backend openvino",
        ),
    ):
        ran = run("fuse", *words)
        assert ran.code == 2 and said in ran.err, ran.err
    assert not list(tmp_path.glob("*.fused.onnx"))
