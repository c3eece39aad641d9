"""The content of reports: everything that a user needs to act, the same facts in JSON, at any width of terminal."""

from __future__ import annotations

import json as standard_json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from onnx_subgraph.errors import Span
from onnx_subgraph.expectation.check import Check
from onnx_subgraph.language.reading import ASSUMPTIONS
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.model.gaps import Gap
from onnx_subgraph.proving import Proof
from onnx_subgraph.report import json, text, wording
from onnx_subgraph.report import proofs as proofs_text
from onnx_subgraph.report.selection import about
from onnx_subgraph.report.wording import ASSUMED
from onnx_subgraph.result import FuseResult
from onnx_subgraph.rewriting.recurrent import Recurrent
from onnx_subgraph.rewriting.rewrite import Rewrite, Skip
from onnx_subgraph.rewriting.subnormal import Flushed
from onnx_subgraph.simplification.simplify import Simplified
from onnx_subgraph.verification.accuracy import Accuracy
from onnx_subgraph.verification.own import OwnFusion, OwnSite, OwnWork
from onnx_subgraph.verification.site import SiteCheck
from onnx_subgraph.verification.verdict import Coverage, Rounding, Run, Verdict

SPAN = Span("patterns/activation/gelu.yaml", 5, 13, 6, "  y = 0.5 * x * (1 + Erf(x / sqrt(2)))")
RUN = Run("CPUExecutionProvider", True, {"batch": 2, "seq": 7}, 0, "logits", 1e-7, 1e-6, (0, 3))
RESULT = FuseResult(
    model=Path("models/bert.onnx"),
    output=Path("models/bert.fused.onnx"),
    nodes_before=100,
    nodes_after=40,
    opset_before=17,
    opset_after=20,
    target="onnxruntime",
    providers=("CPUExecutionProvider",),
    rewrites=(
        Rewrite("gelu", "com.microsoft.Gelu", "/layer.0/Gelu", ("/layer.0/Div", "/layer.0/Erf"), 1),
        Rewrite("gelu", "com.microsoft.Gelu", "/layer.1/Gelu", ("/layer.1/Div", "/layer.1/Erf"), 1),
        Rewrite("mish", "onnx_subgraph.Mish", "/Mish", ("/Softplus", "/Tanh", "/Mul"), 1, frozenset({"finite"}), body=True),
    ),
    near_misses=tuple(NearMiss("gelu", SPAN, f"/layer.{i}/Erf", f"/layer.{i}/Mul", "0.5", "[0.7]", 3) for i in range(12)),
    skipped=(Skip("layer-normalization", "/LN", "needs opset 17", 17),),
    verdict=Verdict("equivalent", "kernel", (RUN,)),
    seconds={"load": 0.1, "find": 0.25},
)


PROOF = Proof("gelu", 40, (), {"standard": 20})


def shown(answer: RenderableType, width: int = 160) -> str:
    out = StringIO()
    Console(file=out, width=width, markup=False, highlight=False, emoji=False).print(answer)
    return out.getvalue()


def test_a_verbose_report_of_a_fusion_has_what_a_person_needs() -> None:
    report = shown(text.fusion(RESULT, verbose=True))
    for fact in (
        "models/bert.onnx → models/bert.fused.onnx",
        "100 → 40 (60% fewer), 3 fusions",
        "17 → 20",
        "onnxruntime on CPUExecutionProvider",
        "equivalent",
        "logits differs by 1e-07 of 1e-06 allowed at [0, 3] (CPUExecutionProvider, optimised, batch=2 seq=7, seed 0)",
        "onnx_subgraph.Mish (function)",
        "assumes that no value is NaN or infinite; this was not checked",
        "needs opset 17",
        "[0.7]",
    ):
        assert fact in report


SOUND = replace(
    RESULT,
    rewrites=RESULT.rewrites * 4,
    verdict=replace(RESULT.verdict, coverage=Coverage(kernel=10, body=1, alone=1, float64=11, outputs=1)),
)


CHECKED = "11 of 12 fusions checked alone (two of each that are equal)"


def test_a_report_begins_with_gain_and_proof_and_says_where_the_rest_is() -> None:
    lines = [" ".join(line.split()) for line in shown(text.fusion(SOUND)).splitlines()]
    assert lines[:6] == [
        "models/bert.onnx → models/bert.fused.onnx",
        "nodes 100 → 40 (60% fewer), 12 fusions",
        f"verdict equivalent on CPUExecutionProvider: 1 comparison with the original, {CHECKED}",
        "largest error: 0.1 of the bound, in logits",
        "1 fusion ran by definition, not by a kernel",
        "no run of the model reached 1 fusion",
    ]
    assert (
        lines[-2] == "1 match not replaced and 12 near misses: -v lists them, `onnx-subgraph explain models/bert.onnx` says why"
    )
    assert "[0.7]" not in " ".join(lines) and "needs opset 17" not in " ".join(lines)


def test_counts_of_simplified_nodes_add_up_and_undone_ones_are_separate() -> None:
    done = Simplified(removed=27, computed=13, passed=7)
    assert wording.simplified(done, Simplified()) == (
        "27 nodes: 13 computed in advance, 7 without effect, 7 that nothing reads any more"
    )
    assert wording.simplified(Simplified(removed=1, passed=1), Simplified()) == "1 node: 1 without effect"
    assert wording.simplified(Simplified(targets=3), Simplified()) == "3 with a constant shape now"
    assert wording.simplified(Simplified(removed=1, passed=1, simpler=2), Simplified()) == (
        "1 node: 1 without effect, 2 written more simply"
    )
    undone = wording.simplified(Simplified(), Simplified(removed=2, passed=2))
    assert undone == "undone, because the model is not equivalent with it: 2 without effect"


def test_a_failed_verification_is_reported_in_full_without_verbose() -> None:
    wrong = replace(SOUND, verdict=replace(SOUND.verdict, verdict="different", runs=(replace(RUN, error=0.5),)))
    assert "worst: logits differs by 0.5 of 1e-06 allowed" in shown(text.fusion(wrong))


def test_equal_layers_take_one_line() -> None:
    assert sum("[0.7]" in line for line in shown(text.fusion(RESULT)).splitlines()) == 1


def test_a_row_is_one_line_outside_a_terminal() -> None:
    row = next(line for line in shown(text.fusion(RESULT)).splitlines() if line.startswith("gelu"))
    assert row.split() == ["gelu", "com.microsoft.Gelu", "2", "4", "→", "2", "/layer.0/Gelu"]


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_narrow_terminal_wraps_and_cuts_nothing_off(width: int) -> None:
    report = shown(text.fusion(RESULT), width)
    assert max(map(len, report.splitlines())) <= width
    assert "…" not in report


def test_names_with_brackets_are_not_markup() -> None:
    result = replace(RESULT, skipped=(Skip("gelu", "[bold]node[/bold]", "shape [batch, 8] :smile:"),))
    assert "[bold]node[/bold]" in shown(text.fusion(result))
    assert "shape [batch, 8] :smile:" in shown(text.fusion(result))


def test_on_80_columns_ids_and_operators_stay_whole() -> None:
    """Users read and copy these first. Names of nodes are wrapped instead."""
    site = Rewrite(
        "skip-layer-normalization", "com.microsoft.SkipLayerNormalization", "/a/very/long/name/of/a/node" * 3, ("a",), 1
    )
    report = shown(text.fusion(replace(RESULT, rewrites=(site,))), 80)
    assert "skip-layer-normalization  com.microsoft.SkipLayerNormalization" in report


def test_an_explanation_shows_the_place_in_the_pattern() -> None:
    report = shown(text.explanation(RESULT))
    assert "patterns/activation/gelu.yaml:5:13" in report
    assert "5 |   y = 0.5 * x * (1 + Erf(x / sqrt(2)))\n  |             ^^^^^^" in report
    assert "/layer.0/Mul, /layer.1/Mul, /layer.2/Mul, and 9 more" in report


def test_a_failed_verification_names_the_output_the_place_and_the_error() -> None:
    bad = replace(RUN, error=0.5, problem="")
    result = replace(
        RESULT, output=None, verdict=Verdict("different", "body", (RUN, bad), "rewrite gelu at /layer.0/Gelu is guilty")
    )
    report = shown(text.fusion(result))
    assert "nothing written" in report
    assert "different" in report
    assert "worst: logits differs by 0.5 of 1e-06 allowed at [0, 3]" in report
    assert "is guilty" in report
    assert "no" in shown(text.comparison(Path("a"), Path("b"), result.verdict))


def test_a_difference_before_any_run_has_no_numbers() -> None:
    """If the interfaces of the models differ, nothing ran: the report says what differs, without errors and seeds."""
    run = Run("", False, {}, None, "logits", float("inf"), 0.0, (), "is missing")
    report = shown(text.comparison(Path("a"), Path("b"), Verdict("different", "kernel", (run,))))
    assert "why: logits: is missing\n" in re.sub(" +\n", "\n", report)
    assert "inf" not in report


def test_a_difference_of_the_whole_model_is_a_sentence_about_the_model() -> None:
    """A problem of the whole model, and not of one output, has the model as its subject."""
    run = Run("", False, {}, None, "", float("inf"), 0.0, (), "has the inputs a, b; the reference has x")
    report = shown(text.comparison(Path("a"), Path("b"), Verdict("different", "kernel", (run,))))
    assert "why: the candidate has the inputs a, b; the reference has x\n" in re.sub(" +\n", "\n", report)


def test_every_assumption_of_the_language_has_words() -> None:
    assert set(ASSUMED) == set(ASSUMPTIONS)


def test_the_legend_has_what_any_fusion_of_a_pattern_assumes() -> None:
    """One match has fixed dimensions, and another operator than the one with a free batch."""
    free = Rewrite("mha", "Attention", "/A", ("/a",), 1, frozenset({"finite", "nonempty"}))
    fixed = Rewrite("mha", "com.microsoft.MultiHeadAttention", "/B", ("/b",), 1, frozenset({"finite"}))
    for rewrites in ((free, fixed), (fixed, free)):
        report = shown(text.fusion(replace(RESULT, rewrites=rewrites)))
        assert "mha assumes that no value is NaN or infinite, and that no batch or length is 0; this was not checked\n" in report


def test_the_table_of_fusions_has_a_legend() -> None:
    report = shown(text.fusion(RESULT))
    assert "\nmish assumes that no value is NaN or infinite; this was not checked\n" in report
    assert "more nodes than before" not in report
    grown = replace(RESULT, rewrites=(Rewrite("rotary", "com.microsoft.RotaryEmbedding", "/R", ("/a",), 3),))
    report = shown(text.fusion(grown))
    assert "assumes" not in report
    assert (
        "\nmore nodes than before: they are measured to take less time, or bring operands into the fused operator's form"
        in report
    )


def test_a_report_says_that_nothing_fused() -> None:
    result = replace(RESULT, rewrites=(), skipped=(), near_misses=(), unchanged=True, nodes_after=100)
    assert "nothing fused: an unchanged copy" in shown(text.fusion(result))
    assert "nothing to explain" in shown(text.explanation(result))


def test_json_has_the_documented_keys() -> None:
    answer = json.fusion(RESULT)
    assert list(answer) == [
        "model",
        "output",
        "unchanged",
        "nodes",
        "opset",
        "target",
        "providers",
        "assumed",
        "fusions",
        "near_misses",
        "skipped",
        "overridable",
        "gaps",
        "bugs",
        "reasons",
        "undone",
        "sites",
        "onnxruntime",
        "verification",
        "seconds",
    ]
    assert answer["fusions"][0] == {
        "pattern": "gelu",
        "op": "com.microsoft.Gelu",
        "count": 2,
        "function": False,
        "assumes": [],
        "sites": [
            {"node": "/layer.0/Gelu", "replaces": ["/layer.0/Div", "/layer.0/Erf"]},
            {"node": "/layer.1/Gelu", "replaces": ["/layer.1/Div", "/layer.1/Erf"]},
        ],
    }
    assert answer["near_misses"][0]["count"] == 12
    assert answer["near_misses"][0]["place"] == {"file": SPAN.file, "line": 5, "column": 13, "text": SPAN.text.strip()}


def test_json_has_every_finding_under_its_own_key() -> None:
    """Each value here is there once, so that two keys can't have changed places."""
    rewrite = replace(RESULT.rewrites[0], root="/layer.0/Mul")
    own = OwnWork("CPU", (OwnFusion("Gelu", "y", "kept", "FastGelu"),), (OwnSite(rewrite, "FusedMatMul", True),), 90, 80, "")
    checks = (
        SiteCheck(rewrite, "CPU", "y", Accuracy(1e-3, 2e-3, 4e-3)),
        SiteCheck(rewrite, "CPU", "y", Accuracy(8e-3, 2e-3, 4e-3, "another dtype")),
        SiteCheck(rewrite, "CPU", unknown="it is inside a loop"),
    )
    loops = [Recurrent(Rewrite(op.lower(), op, "/n", ("/Loop",), 1), nodes) for op, nodes in (("LSTM", 11), ("GRU", 12))]
    answer = json.fusion(
        replace(
            RESULT,
            own=(own,),
            sites=checks,
            gaps=(Gap("/a", "Foo", "is not known", "declare it", frozenset({"/b", "/c"})),),
            flushed=(Flushed("w", 1, 2),),
            unflushed=(Flushed("v", 3, 4),),
            recurrent=(loops[0],),
            unrecurrent=(loops[1],),
            simplified=Simplified(computed=5),
            unsimplified=Simplified(computed=6),
            verdict=replace(RESULT.verdict, roundings=(Rounding("y", 0.25, 0.125),)),
        )
    )
    assert (answer["nodes"], answer["opset"]) == ({"before": 100, "after": 40}, {"before": 17, "after": 20})
    assert answer["verification"]["roundings"] == [{"output": "y", "kernels": 0.25, "onnxruntime": 0.125}]
    assert [(one["count"], one["matched"]) for one in answer["near_misses"]] == [(12, 3)]
    assert [(one["count"], one["nodes"], one["behind"]) for one in answer["gaps"]] == [(1, ["/a"], 2)]
    (work,) = answer["onnxruntime"]
    assert work["nodes"] == {"original": 90, "fused": 80}
    assert work["fusions"] == [{"op": "Gelu", "output": "y", "fate": "kept", "by": "FastGelu"}]
    site = {"pattern": "gelu", "op": "com.microsoft.Gelu", "node": "/layer.0/Gelu", "by_itself": "FusedMatMul", "inside": True}
    assert work["sites"] == [site]
    assert [(one["node"], one["root"]) for one in answer["sites"]] == [("/layer.0/Gelu", "/layer.0/Mul")] * 3
    assert [tuple(one[key] for key in ("holds", "error", "original", "bound", "problem")) for one in answer["sites"]] == [
        (True, 1e-3, 2e-3, 4e-3, ""),
        (False, 8e-3, 2e-3, 4e-3, "another dtype"),
        (None, None, None, None, "it is inside a loop"),
    ]
    assert [answer[key][0]["weight"] for key in ("flushed", "unflushed")] == ["w", "v"]
    assert [(answer[key][0]["operator"], answer[key][0]["nodes"]) for key in ("recurrent", "unrecurrent")] == [
        ("LSTM", 11),
        ("GRU", 12),
    ]
    assert [answer[key]["computed"] for key in ("simplified", "unsimplified")] == [5, 6]
    (check,) = json.expectations([Check("fusions of gelu", "3", "2", False, SPAN, ("no constant",))])
    assert [check[key] for key in ("what", "expected", "found", "met", "reasons")] == [
        "fusions of gelu",
        "3",
        "2",
        False,
        ["no constant"],
    ]


@pytest.mark.parametrize("error", [float("inf"), float("nan")])
def test_json_has_no_nan_or_infinity(error: float) -> None:
    result = replace(RESULT, verdict=Verdict("different", "kernel", (replace(RUN, error=error, problem="not finite"),)))
    for answer in (json.fusion(result), json.explanation(result), json.verdict(result.verdict)):
        standard_json.dumps(answer, allow_nan=False)


def test_about_keeps_only_what_concerns_the_node() -> None:
    assert [r.node for r in about(RESULT, node="/layer.1/Erf").rewrites] == ["/layer.1/Gelu"]
    assert len(about(RESULT, node="/layer.1/Erf").near_misses) == 1
    assert about(RESULT, pattern="mish").near_misses == ()
    assert about(RESULT) == RESULT


def test_proofs_name_the_patterns_that_fail() -> None:
    mish = Proof("mish", 10, ("opset 9: not fused",), {}, ("Erf has no kernel (2 times)",), {"onnxruntime": "it does not load"})
    report = shown(proofs_text.proofs([PROOF, mish]))
    assert "mish: opset 9: not fused" in report
    assert "2 patterns, 50 models: 1 pattern failed" in report
    assert "1 failure" in report
    assert "mish, onnxruntime: it does not load" in report
    assert "Erf has no kernel" not in report, "only who asks for one pattern wants to know it so well"
    assert "Erf has no kernel (2 times)" in shown(proofs_text.proofs([mish]))
    assert "all hold" in shown(proofs_text.proofs([PROOF]))


def test_proofs_count_what_was_proved_for_each_target() -> None:
    lines = shown(proofs_text.proofs([PROOF])).splitlines()
    assert next(line for line in lines if "gelu" in line).split() == ["gelu", "40", "holds", "20"]
    none = Proof("gelu", 40, (), {"onnxruntime": 0, "standard": 20})
    assert next(line for line in shown(proofs_text.proofs([none])).splitlines() if "gelu" in line).split()[3:] == ["none", "20"]


def test_many_failures_of_one_proof_are_abbreviated() -> None:
    report = shown(proofs_text.proofs([Proof("mish", 30, tuple(f"failure number {i}" for i in range(30)), {})]))
    assert "number 9" in report and "number 10" not in report and "and 20 failures more, in --json" in report


def test_a_proof_as_json() -> None:
    expected = {"pattern": "gelu", "cases": 40, "failures": [], "targets": {"standard": 20}, "unproved": {}, "notes": []}
    assert json.proof(PROOF) == expected


def test_a_match_that_became_a_constant_has_no_operator() -> None:
    report = shown(text.fusion(replace(RESULT, rewrites=(Rewrite("scale-scale", "", "", ("/a", "/b"), 0),))))
    assert next(line for line in report.splitlines() if line.startswith("scale-scale")).split() == [
        *("scale-scale", "(none)", "1", "2", "→", "0", "/a")
    ]


def test_short_matches_are_counted_with_a_hint_where_to_see_them() -> None:
    none = replace(RESULT, near_misses=())
    assert "`onnx-subgraph explain models/bert.onnx` shows 7 places where a pattern only began to match" in shown(
        text.fusion(none, hidden=7)
    )
    assert "only began" not in shown(text.fusion(none)) + shown(text.fusion(RESULT))


def test_a_dimension_with_any_name_takes_one_line() -> None:
    run = Run("CPUExecutionProvider", True, {"two\nlines": 2, "x" * 3000: 7}, 0, "y", 0.0, 1.0, (), "")
    assert wording.sizes_of(run) == f"two\\nlines=2 {'x' * 59}…=7"
