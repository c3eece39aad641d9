"""Fusions that onnxruntime makes itself are recognised, and so are fusions of ours that prevent them."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from onnx_subgraph import FuseResult, Options, fuse, load_patterns
from onnx_subgraph.files.models import load
from onnx_subgraph.verification.own import OwnWork, own_work
from tests.verification.models import write
from tests.verification.planted import layers

SAMPLES = Path(__file__).parents[2] / "sample_models"
CPU = "CPUExecutionProvider"


def fused(model: Path, **options: object) -> FuseResult:
    return fuse(model, None, load_patterns(), Options(compare_ort=True, dry_run=True, **options))  # type: ignore[arg-type]


def work(result: FuseResult) -> OwnWork:
    (work,) = result.own
    assert not work.failure
    return work


def test_fusions_of_onnxruntime_are_attributed_to_our_sites(tmp_path: Path) -> None:
    made = work(fused(layers(tmp_path / "m.onnx", [1e-5] * 3), only=("layer-normalization", "gelu")))
    assert [fusion.op for fusion in made.own] == ["com.microsoft.Gelu"] * 3 and not made.blocked
    assert {(site.rewrite.pattern, site.op) for site in made.sites} == {
        ("layer-normalization", ""),  # it needs a bias
        ("gelu", "com.microsoft.Gelu"),
    }


def test_sites_that_onnxruntime_does_not_fuse_are_our_gain(tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[n, 8] x) => (float[n, 8] y) { s = Softplus (x) t = Tanh (s) m = Mul (x, t) y = Neg (m) }
    """
    made = work(fused(write(tmp_path / "m.onnx", text), only=("mish",), target="function"))
    assert [site.added for site in made.sites] == [True] and made.own == ()


def test_a_fusion_that_prevents_one_of_onnxruntime_is_found(tmp_path: Path) -> None:
    """If another node reads the GELU's inner Erf, no optimiser fuses it."""
    original = load(layers(tmp_path / "m.onnx", [1e-5] * 2))
    ours = original.clone()
    erf = next(node for node in ours.graph if node.op_type == "Erf")
    other = ir.node("Identity", [erf.outputs[0]], name="reader")
    other.outputs[0].name, other.outputs[0].type = "read", erf.outputs[0].type
    ours.graph.append(other)
    ours.graph.outputs.append(other.outputs[0])
    made = own_work(original, ours, tmp_path / "m.onnx", (), CPU)
    assert [(fusion.op, fusion.value, fusion.by) for fusion in made.blocked] == [("com.microsoft.Gelu", "u0", "Mul")]
    assert {fusion.fate for fusion in made.own} == {"kept", "blocked"}


@pytest.mark.parametrize("name", ["bert_torchscript", "resnet_torchscript", "t5_torchscript"])
def test_on_real_exports_no_fusion_prevents_one_of_onnxruntime(name: str) -> None:
    made = work(fused(SAMPLES / f"{name}.onnx", verify=False))
    assert made.own and not made.blocked and made.nodes_fused <= made.nodes_original


def test_a_model_that_does_not_load_gives_an_error(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 18, "no.where" : 1]> g (float[n] x) => (float[n] y) { y = no.where.Op (x) }'
    (made,) = fused(write(tmp_path / "m.onnx", text), verify=False).own
    assert made.failure.startswith("it does not load the original model") and made.own == ()
