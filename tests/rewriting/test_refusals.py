"""A place like a refused one is refused alike: nothing else changes, and nothing is tried twice."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.model.files import load
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.rewriting import replacement
from onnx_subgraph.rewriting.costs import measured
from onnx_subgraph.rewriting.refusals import Refusals
from onnx_subgraph.rewriting.rounds import Fused, Rewriter
from tests.rewriting.stage import LOADABILITY, pattern, rewritten

SAMPLES = Path(__file__).parents[2] / "sample_models"
SILU = """
    <ir_version: 8, opset_import: ["" : 17]>
    g ({0}[2, 4] x, {1}[2, 4] u) => ({0}[2, 4] y, {1}[2, 4] v) {{
        a = Sigmoid(x)
        y = Mul(x, a)
        b = Sigmoid(u)
        v = Mul(u, b)
    }}
"""


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The last nodes of the matches for which a replacement was written, in order."""
    found: list[str] = []
    checked = replacement._checked

    def count(match, *arguments, **options):  # type: ignore[no-untyped-def]
        found.append(match.nodes[-1].outputs[0].name)
        return checked(match, *arguments, **options)

    monkeypatch.setattr(replacement, "_checked", count)
    return found


def _fused(model: ir.Model, target: str) -> Fused:
    return Rewriter(load_patterns().patterns, target, [LOADABILITY], costs=measured(), simplifying=True)(model)


@pytest.mark.parametrize("target", ["onnxruntime", "native", "standard", "function"])
def test_nothing_but_the_work_changes(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gpt2_dynamo", "llama_torchscript", "t5_dynamo", "unet_dynamo"):
        model = load(SAMPLES / f"{name}.onnx")
        infer_shapes(model)
        fast = _fused(model, target)
        with monkeypatch.context() as patch:
            patch.setattr(Refusals, "kind", lambda *_: None)
            slow = _fused(model, target)
        assert fast.skips == slow.skips
        assert fast.rewrites == slow.rewrites
        assert ir.to_proto(fast.model) == ir.to_proto(slow.model)


def test_a_place_like_a_refused_one_is_not_tried(tried: list[str]) -> None:
    refused = pattern("y = x * Sigmoid(x)", example="{x: 'float32[2, 4]'}", onnxruntime="y = com.microsoft.NoSuchOperator(x)")
    stage = rewritten(SILU.format("float", "float"), refused)
    assert tried == ["y"]
    assert [skip.node for skip in stage.skips] == ["y", "v"]
    assert len({skip.reason for skip in stage.skips}) == 1


def test_a_place_of_another_type_is_tried(tried: list[str]) -> None:
    refused = pattern("y = x * Sigmoid(x)", example="{x: 'float32[2, 4]'}", onnxruntime="y = com.microsoft.NoSuchOperator(x)")
    rewritten(SILU.format("float", "double"), refused)
    assert tried == ["y", "v"]


def test_a_reason_names_its_own_place(tried: list[str]) -> None:
    wrong = pattern("y = x * Sigmoid(x)", example="{x: 'float32[2, 4]'}", onnxruntime="y = Cast(x, to=10)")
    stage = rewritten(SILU.format("float", "float"), wrong)
    assert tried == ["y", "v"]
    assert [skip.reason.split(" would")[0] for skip in stage.skips] == ["the result y", "the result v"]


@pytest.mark.parametrize(
    ("first", "second", "tries"),
    [
        ("{0.5}", "{0.5}", ["y"]),
        ("{0.5}", "{0.25}", ["y", "v"]),
    ],
)
def test_a_place_with_another_constant_is_tried(first: str, second: str, tries: list[str], tried: list[str]) -> None:
    model = f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 4] x, float[2, 4] u) => (float[2, 4] y, float[2, 4] v) <float a = {first}, float b = {second}> {{
            y = Mul(x, a)
            v = Mul(u, b)
        }}
    """
    rewritten(
        model,
        pattern(
            "y = x * k",
            example="{x: 'float32[2, 4]', k: 0.5}",
            extra="where: k.is_constant",
            onnxruntime="y = com.microsoft.NoSuchOperator(x, k)",
        ),
    )
    assert tried == tries


def test_a_place_that_reads_a_value_twice_is_another_kind(tried: list[str]) -> None:
    model = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 4] x, float[2, 4] u) => (float[2, 4] y, float[2, 4] v) {
            y = Sub(x, u)
            v = Sub(u, u)
        }
    """
    rewritten(
        onnx.parser.parse_model(model),
        pattern(
            "y = a - b", example="{a: 'float32[2, 4]', b: 'float32[2, 4]'}", onnxruntime="y = com.microsoft.NoSuchOperator(a, b)"
        ),
    )
    assert tried == ["y", "v"]
