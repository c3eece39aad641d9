"""Where little or nothing fused, a report has the few reasons that matter most and no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.model.overridable import Overridable
from onnx_subgraph.report import json
from onnx_subgraph.report.reasons import Reasons, reasons
from onnx_subgraph.result import FuseResult
from onnx_subgraph.rewriting.rewrite import Bug, Rewrite, Skip
from onnx_subgraph.verification.verdict import Verdict

NOTHING = FuseResult(
    model=Path("m.onnx"),
    output=None,
    nodes_before=100,
    nodes_after=100,
    opset_before=17,
    opset_after=17,
    target="onnxruntime",
    providers=("CPUExecutionProvider",),
    rewrites=(),
    near_misses=(),
    skipped=(),
    verdict=Verdict("equivalent"),
    seconds={},
    operators_before={"Conv": 60, "PRelu": 30, "MaxPool": 7, "Softmax": 2, "Neg": 1},
    operators_after={"Conv": 60, "PRelu": 30, "MaxPool": 7, "Softmax": 2, "Neg": 1},
)


def why(result: FuseResult) -> Reasons:
    found = reasons(result)
    assert found is not None
    return found


def fused(nodes: int) -> Rewrite:
    return Rewrite("gelu", "com.microsoft.Gelu", "g", tuple(f"n{i}" for i in range(nodes + 1)), 1)


def miss(pattern: str, node: str, matched: int) -> NearMiss:
    return NearMiss(pattern, None, node, node, "the constant 0.5", "0.6", matched, "let it be 0.5")


def skip(pattern: str, node: str, reason: str) -> Skip:
    return Skip(pattern, node, reason, change=f"mend {pattern}")


def test_without_reasons_of_patterns_it_describes_the_model() -> None:
    found = why(NOTHING)
    assert found.title == "Why nothing fused" and found.hidden == 0
    (reason,) = found.told
    assert reason.sentence == (
        "No pattern matches or nearly does. The model has 60 Conv, 30 PRelu, 7 MaxPool, 2 Softmax and 1 other node."
    )


def test_where_much_fused_there_are_no_reasons() -> None:
    assert reasons(replace(NOTHING, rewrites=(fused(11),))) is None
    assert why(replace(NOTHING, rewrites=(fused(10),))).title == "Why little fused"


def test_the_three_reasons_that_affect_most_nodes_are_reported() -> None:
    result = replace(
        NOTHING,
        near_misses=(miss("gelu", "/a", 5), *(miss("layer-normalization", f"/n{i}", 9) for i in range(3)), miss("mish", "/m", 4)),
        skipped=(skip("glu", "/s", "slower"), skip("silu", "/t", "no kernel"), skip("silu", "/u", "no kernel")),
    )
    found = why(result)
    assert [reason.sentence.split()[0] for reason in found.told] == ["layer-normalization", "silu", "gelu"]
    assert found.hidden == 2
    assert found.told[0].sentence == (
        "layer-normalization nearly matches at 3 places, first at /n0: expected the constant 0.5, found 0.6."
    )
    assert found.told[1].sentence == "silu matches at 2 places, first at /t, and is not replaced: no kernel."
    assert [entry["change"] for entry in json.fusion(result)["reasons"]] == ["let it be 0.5", "mend silu", "let it be 0.5"]


def test_variants_of_a_pattern_that_fail_at_one_place_are_one_reason() -> None:
    found = why(replace(NOTHING, near_misses=(miss("gelu", "/a", 5), miss("bias-gelu", "/a", 6), miss("mish", "/b", 4))))
    assert [reason.sentence.split()[0] for reason in found.told] == ["bias-gelu", "mish"]


def test_messages_at_the_top_count_as_reasons() -> None:
    """At most three reasons in all, but at least one."""
    misses = tuple(miss(f"p{i}", f"/{i}", 9 - i) for i in range(5))
    assert len(why(replace(NOTHING, near_misses=misses)).told) == 3
    weights = replace(NOTHING, near_misses=misses, overridable=Overridable(("w",), 40))
    assert len(why(weights).told) == 2
    bugs = tuple(Skip(f"b{i}", "/b", "a bug", bug=Bug("KeyError", "")) for i in range(4))
    assert len(why(replace(weights, skipped=bugs)).told) == 1


def test_quantized_operators_and_fused_ones_are_named() -> None:
    operators = {"QLinearConv": 30, "DequantizeLinear": 20, "LayerNormalization": 10, "com.microsoft.Gelu": 5, "Add": 35}
    told = [reason.sentence for reason in why(replace(NOTHING, operators_before=operators)).told]
    assert told == [
        "50 of 100 nodes are quantized operators, few of which have patterns: 30 QLinearConv, 20 DequantizeLinear.",
        "The model holds 15 operators that are fused already: 10 LayerNormalization, 5 com.microsoft.Gelu.",
    ]


@pytest.mark.parametrize(
    ("operators", "advised"),
    [
        ({"QuantizeLinear": 20, "DequantizeLinear": 40, "MatMul": 10, "Softmax": 2}, True),
        ({"QuantizeLinear": 2, "QLinearMatMul": 40, "DequantizeLinear": 2, "Erf": 2}, True),
        ({"QuantizeLinear": 20, "DequantizeLinear": 40, "Conv": 20}, False),
        ({"DynamicQuantizeLinear": 20, "MatMulInteger": 40, "Softmax": 2}, False),
        ({"com.microsoft.MatMulNBits": 40, "DequantizeLinear": 1, "Erf": 2}, False),
    ],
)
def test_what_quantizers_take_apart_should_be_fused_before(operators: dict[str, int], advised: bool) -> None:
    (told,) = why(replace(NOTHING, operators_before=operators)).told
    assert told.change.startswith("fuse the float model with --target standard, then quantize it") == advised
