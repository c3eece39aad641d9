"""`onnx-subgraph bench` and `fuse --bench`: the output and the messages for mistakes."""

from __future__ import annotations

import importlib.util
import json
from importlib import import_module
from pathlib import Path

import jsonschema
import pytest

from onnx_subgraph.kernels.compilers import compilers
from tests.cli.conftest import Run

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8"))
QUICK = ("--budget", "0")


@pytest.fixture(autouse=True)
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number in place of the memory, which takes a process for each model. tests/timing and pages measure it."""
    monkeypatch.setattr(import_module("onnx_subgraph.timing.bench"), "peak", lambda *_: 2**20)


def test_a_model_is_timed_against_its_fused_form(gelu: Path, run: Run) -> None:
    before = sorted(gelu.parent.iterdir())
    ran = run("bench", gelu, *QUICK)
    assert ran.code == 0, ran.err
    assert "at batch 1," in ran.out and "gelu.onnx " in ran.out and "gelu.fused.onnx " in ran.out
    assert sorted(gelu.parent.iterdir()) == before, "it left something behind"


def test_a_copy_is_not_timed_against_its_original(plain: Path, run: Run) -> None:
    answer = run("fuse", plain, "--bench", "--json").json
    assert answer["unchanged"] is True and "bench" not in answer


def test_json_is_as_its_schema_says_and_has_a_profile(gelu: Path, run: Run) -> None:
    answer = run("bench", gelu, gelu, *QUICK, "--profile", "--threads", "1", "--json").json
    jsonschema.validate(answer, {**SCHEMA, "anyOf": [{"$ref": "#/$defs/bench"}]})
    first, second = answer["models"]
    assert first["ratio"] is None and second["ratio"]["least"] <= second["ratio"]["most"]
    assert second["difference"] == 0.0 and answer["threads"] == 1 and answer["sizes"] == {"batch": 1}
    assert {part["name"] for part in second["profile"]["operators"]} == {"Gelu"}, "onnxruntime fuses it by itself"


def test_the_profile_of_a_fused_model_names_its_pattern(gelu: Path, tmp_path: Path, run: Run) -> None:
    run("fuse", gelu, "-o", tmp_path / "fused.onnx")
    ran = run("bench", gelu, tmp_path / "fused.onnx", *QUICK, "--profile")
    assert "in fusions                    100%: gelu 100%" in ran.out


@pytest.mark.parametrize(("bound", "code"), [("1e-9", 1), ("1e9", 0)])
def test_a_ratio_over_the_bound_gives_exit_code_1(bound: str, code: int, gelu: Path, run: Run) -> None:
    assert run("bench", gelu, gelu, *QUICK, "--max-ratio", bound).code == code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--dim", "length=3"), "--dim names length, which is no dimension of the model's inputs\nhint: it has batch"),
        (("--dim", "batch=0"), "'batch=0' is no NAME=SIZE"),
        (("--dim", "batch=2", "--dim", "batch=3"), "--dim gives two sizes for 'batch'"),
        (("--shape", "x=2x9"), "the model declares batchx8"),
        (("--provider", "CUDA"), "execution provider CUDA is not in this onnxruntime"),
        (("--threads", "0"), "Invalid value for '--threads'"),
    ],
)
def test_an_option_that_does_not_fit_is_an_error(words: tuple[str, ...], said: str, gelu: Path, run: Run) -> None:
    ran = run("bench", gelu, gelu, *QUICK, *words)
    assert ran.code == 2 and said in ran.err and not ran.out


def test_a_model_in_which_nothing_fuses_needs_a_candidate(plain: Path, run: Run) -> None:
    ran = run("bench", plain, *QUICK)
    assert ran.code == 2 and "nothing in it fuses" in ran.err and "name a CANDIDATE" in ran.err
    assert run("bench", plain, plain, *QUICK).code == 0


def test_a_model_in_which_nothing_fuses_can_be_profiled(plain: Path, run: Run) -> None:
    ran = run("bench", plain, "--profile", *QUICK)
    assert ran.code == 0 and "Abs" in ran.out and not ran.err
    (timed,) = run("bench", plain, "--profile", "--json", *QUICK).json["models"]
    assert timed["profile"]["operators"]


def test_a_candidate_that_does_not_run_is_named_and_the_exit_code_is_2(gelu: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "text.onnx").write_text("no model")
    ran = run("bench", gelu, tmp_path / "text.onnx", *QUICK)
    assert ran.code == 2 and "text.onnx" in ran.err + ran.out


@pytest.mark.skipif(importlib.util.find_spec("openvino") is not None, reason="openvino is here")
def test_a_runtime_that_is_not_here_says_what_to_install(gelu: Path, run: Run) -> None:
    ran = run("bench", gelu, gelu, *QUICK, "--runtime", "openvino")
    assert ran.code == 2 and "pip install 'onnx-subgraph[openvino]'" in ran.err


def test_a_native_model_is_timed_with_and_without_the_library(run: Run) -> None:
    if next(compilers(), None) is None:
        pytest.skip("there is no C compiler here")
    ran = run("bench", ROOT / "sample_models" / "llama_dynamo.onnx", "--target", "native", *QUICK, "--json")
    found = [(Path(one["model"]).name, one["runtime"]) for one in ran.json["models"]]
    fused = "llama_dynamo.fused.onnx"
    assert found == [("llama_dynamo.onnx", "onnxruntime"), (fused, "onnxruntime"), (fused, "kernels")]


def test_fuse_shows_the_ratio(gelu: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx_subgraph.pipeline.BENCH_BUDGET", 0.0)
    page, summary = tmp_path / "page.html", tmp_path / "summary.md"
    ran = run("fuse", gelu, "--bench", "-o", tmp_path / "out.onnx", "--report", page, "--summary", summary)
    assert ran.code == 0 and "\ntime     " in ran.out and "of the original's" in ran.out and "at batch 1" in ran.out
    assert "of the original" in page.read_text(encoding="utf-8") and "Time: " in summary.read_text(encoding="utf-8")
    answer = run("fuse", gelu, "--bench", "-o", tmp_path / "out.onnx", "--json").json
    jsonschema.validate(answer, {**SCHEMA, "anyOf": [{"$ref": "#/$defs/fuse"}]})
    assert len(answer["bench"]["models"]) == 2


@pytest.mark.parametrize("words", [("--dry-run",), ("-j", "2")])
def test_fuse_times_only_the_models_that_it_writes_one_at_a_time(words: tuple[str, ...], gelu: Path, run: Run) -> None:
    ran = run("fuse", gelu, "--bench", *words)
    assert ran.code == 2 and "it excludes --dry-run and -j" in ran.err and f"onnx-subgraph bench {gelu}" in ran.err
    assert not gelu.with_suffix(".fused.onnx").exists()


def test_fuse_times_nothing_on_a_provider_that_is_assumed(gelu: Path, run: Run) -> None:
    ran = run("fuse", gelu, "--bench", "--assume-provider", "CUDAExecutionProvider")
    assert ran.code == 2 and "there is nothing to time on an assumed provider\nhint: --provider names one" in ran.err
    assert not gelu.with_suffix(".fused.onnx").exists()
