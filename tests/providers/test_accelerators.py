"""Real execution providers other than the CPU: `make test-openvino`, and CUDA on a machine with a GPU and onnxruntime-gpu."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onnx_subgraph import FuseResult, Options, fuse, load_patterns
from onnx_subgraph.rewriting.loadability import CPU, Loadability
from onnx_subgraph.verification.verdict import Placement
from tests.providers.conftest import SAMPLES, needs

CUDA, OPENVINO = "CUDAExecutionProvider", "OpenVINOExecutionProvider"


@pytest.fixture(params=[pytest.param(CUDA, marks=needs(CUDA)), pytest.param(OPENVINO, marks=needs(OPENVINO))])
def provider(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


def fused(name: str, tmp_path: Path, *providers: str) -> FuseResult:
    return fuse(SAMPLES / f"{name}.onnx", tmp_path / f"{name}.onnx", load_patterns(), Options(providers=providers))


def placement(result: FuseResult) -> Placement:
    (placement,) = result.verdict.placements
    return placement


@pytest.mark.parametrize("name", ["gpt2_dynamo", "unet_dynamo"])
def test_a_real_export_is_fused_for_the_provider_and_verified_on_it(provider: str, name: str, tmp_path: Path) -> None:
    result = fused(name, tmp_path, provider)
    assert result.verdict.verdict == "equivalent" and result.rewrites and result.output is not None
    assert {run.provider for run in result.verdict.runs} == {provider}
    placed = placement(result)
    assert placed.provider == provider and len(placed.taken) + len(placed.fallen) == len(placed.nodes)
    assert len(placed.taken) > len(placed.fallen)


def test_each_provider_is_verified_separately(provider: str, tmp_path: Path) -> None:
    result = fused("resnet_torchscript", tmp_path, CPU, provider)
    assert result.verdict.verdict == "equivalent"
    assert {run.provider for run in result.verdict.runs} == {CPU, provider}
    assert placement(result).provider == provider


def test_asking_what_a_provider_loads_does_not_end_the_process(provider: str) -> None:
    loadability = Loadability(provider)
    assert loadability.is_available
    loadability.inlines("LayerNormalization", 17, [])  # asking onnxruntime for the kernels of all providers can end the process


@needs(OPENVINO)
def test_what_openvino_computes_wrongly_is_undone_and_named(tmp_path: Path) -> None:
    """OpenVINO 2025 fuses FusedConv with a sum and applies the activation first. Each operator alone would be right."""
    result = fused("resnet_torchscript", tmp_path, OPENVINO)
    assert result.verdict.verdict == "equivalent"
    for undone in result.undone:
        assert undone.provider == OPENVINO and undone.rewrite.op == "com.microsoft.FusedConv"
