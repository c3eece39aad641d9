"""`--provider` and `--assume-provider`: a missing provider is named, and nothing runs on an assumed one."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import ROOT, Run

UNET = ROOT / "sample_models" / "unet_dynamo.onnx"
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def test_a_provider_that_is_not_installed_is_one_message_with_its_wheel(run: Run, gelu: Path) -> None:
    result = run("fuse", gelu, "--provider", "QNNExecutionProvider")
    assert result.code == 2 and "onnxruntime-qnn" in result.err and len(result.err.splitlines()) == 2
    assert not gelu.with_name("gelu.fused.onnx").exists()


def test_operators_for_a_provider_that_is_not_installed_are_chosen_from_its_table(run: Run, tmp_path: Path) -> None:
    result = run("fuse", UNET, "--assume-provider", CUDA, "--no-verify", "-o", tmp_path / "cuda.onnx", "--json")
    assert (result.code, result.json["providers"]) == (0, [])
    assert "com.microsoft.GroupNorm" in {fusion["op"] for fusion in result.json["fusions"]}, "which the CPU has no kernel for"
    (assumed,) = result.json["assumed"]
    assert (assumed["provider"], assumed["verdict"]) == (CUDA, "not-run")


def test_a_model_for_an_assumed_provider_is_not_written_as_verified(run: Run, tmp_path: Path) -> None:
    result = run("fuse", UNET, "--assume-provider", CUDA, "-o", tmp_path / "cuda.onnx")
    assert result.code == 2 and not (tmp_path / "cuda.onnx").exists()
    assert "it can't be run on CUDAExecutionProvider here" in result.out and "--no-verify" in result.out


def test_with_an_installed_provider_it_is_verified_there(run: Run) -> None:
    result = run("fuse", UNET, "--provider", CPU, "--assume-provider", CUDA, "--dry-run", "--json")
    assert (result.code, result.json["verification"]["verdict"]) == (0, "equivalent")
    assert {each["provider"] for each in result.json["verification"]["runs"]} == {CPU}
    assert "com.microsoft.GroupNorm" not in {fusion["op"] for fusion in result.json["fusions"]}


def test_a_provider_without_a_table_is_a_usage_error(run: Run, gelu: Path) -> None:
    result = run("fuse", gelu, "--assume-provider", "NnapiExecutionProvider")
    assert result.code == 2 and "there is one for" in result.err
