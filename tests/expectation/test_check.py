"""Comparing expectations with results: which are met, which are missed, and the reasons given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onnx_subgraph.errors import Span
from onnx_subgraph.expectation.check import Check, bytes_text, check
from onnx_subgraph.expectation.reading import read_expectation
from onnx_subgraph.expectation.writing import expectation_text
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.result import FuseResult
from onnx_subgraph.rewriting.rewrite import Rewrite, Skip
from onnx_subgraph.verification.blame import Undone
from onnx_subgraph.verification.verdict import Run, Verdict

CPU = "CPUExecutionProvider"
RUN = Run(CPU, True, {"batch": 2}, 0, "logits", 3e-6, 8e-6, (0, 3))
EPSILON = 9.999999960041972e-13  # 1e-12 in float32
RESULT = FuseResult(
    model=Path("build/bert.onnx"),
    output=Path("dist/bert.onnx"),
    nodes_before=100,
    nodes_after=40,
    opset_before=17,
    opset_after=17,
    target="onnxruntime",
    providers=(CPU,),
    rewrites=(
        *(
            Rewrite("layer-normalization", "LayerNormalization", f"/{i}/LN", (f"/{i}/a",), 1, attributes=(("epsilon", EPSILON),))
            for i in range(5)
        ),
        Rewrite("gelu", "com.microsoft.Gelu", "/0/Gelu", ("/0/Erf",), 1),
    ),
    near_misses=(),
    skipped=(),
    verdict=Verdict("equivalent", "kernel", (RUN,)),
    seconds={},
    size=1_234_567,
)
MISS = NearMiss("layer-normalization", Span("p.yaml", 1, 1), "/9/a", "/9/Sqrt", "the constant 2", "3", 7)
IDS = {"gelu", "layer-normalization", "mish"}


def checks(section: str, result: FuseResult = RESULT, *, folder: Path, told: bool = True) -> list[Check]:
    file = folder / "expected.yaml"
    file.write_text(f"models:\n  bert.onnx: {{{section}}}\n", encoding="utf-8")
    expected = read_expectation(file, IDS).section(result.model)
    return list(check(expected, result, result.near_misses if told else ()))


@pytest.mark.parametrize(
    ("section", "met"),
    [
        ("fusions: {layer-normalization: 5}", True),
        ("fusions: {layer-normalization: 6}", False),
        ("fusions: {layer-normalization: 4}", False),
        ("fusions: {layer-normalization: at least 4}", True),
        ("fusions: {layer-normalization: at most 4}", False),
        ("fusions: {mish: 0}", True),
        ("fusions: {layer-normalization: {attributes: {epsilon: 1e-12}}}", True),
        ("fusions: {layer-normalization: {attributes: {epsilon: [1e-5, 1e-12]}}}", True),
        ("fusions: {layer-normalization: {attributes: {epsilon: 1e-5}}}", False),
        ("fusions: {layer-normalization: {attributes: {axis: 0}}}", False),
        ("fusions: {layer-normalization: {attributes: {axis: none}}}", True),
        ("near-misses: {}", True),
        ("engines: 0", True),
        ("engines: 1", False),
        ("nodes: at most 40", True),
        ("nodes: at most 39", False),
        ("size: at most 1.3 MB", True),
        ("size: at most 1234 KB", False),
        ("size: at least 1234567 B", True),
        (f"providers: [{CPU}]", True),
        ("providers: [CUDAExecutionProvider]", False),
        ("tolerance: 3e-6", True),
        ("tolerance: 2e-6", False),
    ],
)
def test_an_expectation_is_met_or_missed(tmp_path: Path, section: str, met: bool) -> None:
    assert [one.met for one in checks(section, folder=tmp_path)] == [met]


def test_a_miss_says_what_nearly_matched_at_which_node(tmp_path: Path) -> None:
    result = replace(RESULT, near_misses=(MISS,), rewrites=RESULT.rewrites[1:])
    (missed,) = checks("fusions: {layer-normalization: 5}", result, folder=tmp_path)
    assert str(missed) == "layer-normalization: expected 5, found 4"
    assert missed.reasons == ("nearly: node /9/Sqrt: expected the constant 2, found 3 (7 nodes matched)",)
    assert missed.span.caret().splitlines() == [
        "2 |   bert.onnx: {fusions: {layer-normalization: 5}}",
        "  |                                              ^",
    ]


def test_an_insignificant_near_miss_is_told_where_no_other_explains_the_miss(tmp_path: Path) -> None:
    result = replace(RESULT, near_misses=(MISS,))
    assert (
        "nearly: node /9/Sqrt" in checks("fusions: {layer-normalization: 6}", result, folder=tmp_path, told=False)[0].reasons[0]
    )


def test_a_near_miss_inside_another_fusion_explains_nothing(tmp_path: Path) -> None:
    result = replace(RESULT, near_misses=(replace(MISS, node="/0/Erf"),))
    (missed,) = checks("fusions: {layer-normalization: 6}", result, folder=tmp_path, told=False)
    assert missed.reasons == ("nothing that is left in the model is like layer-normalization",)
    (missed,) = checks("fusions: {layer-normalization: 6}", result, folder=tmp_path)
    assert missed.reasons[0].startswith("nearly: node /0/Erf"), "unless it is one to tell of"


def test_a_match_that_could_not_be_replaced_is_a_reason(tmp_path: Path) -> None:
    result = replace(RESULT, skipped=(Skip("layer-normalization", "/9/LN", "needs opset 17", 17),))
    (missed,) = checks("fusions: {layer-normalization: 6}", result, folder=tmp_path)
    assert missed.reasons == ("matched, not replaced: node /9/LN: needs opset 17",)


def test_a_layer_without_a_fusion_that_its_neighbours_have_is_named(tmp_path: Path) -> None:
    """Where no candidate is a near miss, the names of the repeated layers show which layer lacks the fusion."""
    sites = tuple(Rewrite("mish", "Mish", f"/net.1/layer.{i}/act/Mish", (f"/layer.{i}/Tanh",), 1) for i in (0, 1, 2, 4))
    (missed,) = checks("fusions: {mish: 5}", replace(RESULT, rewrites=sites), folder=tmp_path)
    assert missed.reasons == ("not in /net.1/layer.3/act, as in its neighbours",)


def test_a_miss_that_follows_from_another_says_so(tmp_path: Path) -> None:
    """Without the Gelu fusion, no bias can be added to it."""
    bias = Rewrite("mish", "com.microsoft.BiasGelu", "/0/BiasGelu", ("/0/Add", "/0/Gelu"), 1)
    (missed,) = checks("fusions: {mish: 2}", replace(RESULT, rewrites=(*RESULT.rewrites, bias)), folder=tmp_path)
    assert missed.reasons == ("elsewhere it takes what gelu made: it may be missing there, too",)


def test_a_fusion_that_was_undone_is_a_reason(tmp_path: Path) -> None:
    wrong = Undone(replace(RESULT.rewrites[0], root="/9/Add"), "model", CPU, "logits", 1.0, 1e-6)
    (missed,) = checks("fusions: {layer-normalization: 6}", replace(RESULT, undone=(wrong,)), folder=tmp_path)
    assert missed.reasons == ("undone: node /9/Add: with it, the model was not equivalent",)


def test_more_than_expected_says_where(tmp_path: Path) -> None:
    (missed,) = checks("fusions: {layer-normalization: at most 4}", folder=tmp_path)
    assert missed.reasons == ("fused at: /0/LN, /1/LN, /2/LN, and 2 more",)


def test_a_match_that_became_a_constant_is_called_by_a_node_that_it_replaced(tmp_path: Path) -> None:
    folded = (Rewrite("mish", "", "", ("", "/a"), 0), Rewrite("mish", "", "", ("",), 0))
    (missed,) = checks("fusions: {mish: 0}", replace(RESULT, rewrites=folded), folder=tmp_path)
    assert missed.reasons == ("fused at: /a, (a node without a name)",)


def test_the_size_of_a_model_in_which_nothing_fused_is_not_as_expected(tmp_path: Path) -> None:
    (missed,) = checks("size: at most 9 MB", replace(RESULT, size=None), folder=tmp_path)
    assert not missed.met and missed.found == "no size: nothing was fused"


def test_a_provider_that_the_run_did_not_have_is_named_with_the_option(tmp_path: Path) -> None:
    (missed,) = checks("providers: [CUDAExecutionProvider]", folder=tmp_path)
    assert missed.reasons == ("the run verified on CPUExecutionProvider; add --provider CUDAExecutionProvider",)


def test_an_output_that_can_not_be_compared_is_worse_than_any_error(tmp_path: Path) -> None:
    runs = (replace(RUN, error=0.0, problem="another shape"), RUN)
    (missed,) = checks("tolerance: 1", replace(RESULT, verdict=Verdict("different", runs=runs)), folder=tmp_path)
    assert not missed.met and missed.found == "logits: another shape"


def test_another_attribute_is_named_with_its_node(tmp_path: Path) -> None:
    other = replace(RESULT.rewrites[3], attributes=(("epsilon", 0.0010000000474974513),))
    result = replace(RESULT, rewrites=(*RESULT.rewrites[:3], other, *RESULT.rewrites[4:]))
    (missed,) = checks("fusions: {layer-normalization: {attributes: {epsilon: 1e-12}}}", result, folder=tmp_path)
    assert str(missed) == "epsilon of layer-normalization: expected 1e-12, found 0.001 at /3/LN"
    sites = tuple(replace(other, node=f"/{x}", attributes=(("epsilon", x),)) for x in (0.5, 0.25, 0.75, 0.125, 0.5))
    (missed,) = checks(
        "fusions: {layer-normalization: {attributes: {epsilon: 1}}}", replace(result, rewrites=sites), folder=tmp_path
    )
    assert missed.found == "0.125, 0.25, 0.5, 0.75 at /0.5, /0.25, /0.75, and 2 more"


def test_many_misses_of_a_kind_are_counted(tmp_path: Path) -> None:
    near = tuple(replace(MISS, anchor=f"/{i}/x", node=f"/{i}/y") for i in range(24))
    (missed,) = checks("fusions: {layer-normalization: 29}", replace(RESULT, near_misses=near), folder=tmp_path)
    assert len(missed.reasons) == 4
    assert missed.reasons[-1] == "and 21 more: `onnx-subgraph explain build/bert.onnx layer-normalization`"


def test_the_near_misses_that_matched_most_come_first(tmp_path: Path) -> None:
    near = tuple(replace(MISS, node=node, matched=matched) for node, matched in (("/a", 2), ("/b", 3), ("/c", 5), ("/b", 7)))
    (missed,) = checks("near-misses: {layer-normalization: at most 1}", replace(RESULT, near_misses=near), folder=tmp_path)[:1]
    assert missed.found == "3"
    assert [(reason.split()[2], reason.split()[-3]) for reason in missed.reasons] == [("/b:", "(7"), ("/c:", "(5"), ("/a:", "(2")]


def test_near_misses_are_bounded_for_named_patterns_and_for_the_others(tmp_path: Path) -> None:
    result = replace(RESULT, near_misses=(MISS, replace(MISS, matched=3), replace(MISS, pattern="mish")))
    named, others = checks("near-misses: {layer-normalization: at most 1}", result, folder=tmp_path)
    assert named.met  # two alternatives that fail in the same way count as one place
    assert str(others) == "near misses of other patterns: expected none, found 1 of mish"
    assert others.reasons == ("mish, nearly: node /9/Sqrt: expected the constant 2, found 3 (7 nodes matched)",)
    assert not checks("near-misses: {}", result, folder=tmp_path)[0].met


@pytest.mark.parametrize(
    ("verdict", "found"),
    [
        (Verdict("different", runs=(replace(RUN, error=1.0),)), ["different", "1 in output logits"]),
        (Verdict("different", runs=(replace(RUN, problem="another shape"),)), ["different", "logits: another shape"]),
        (Verdict("not-run", reason="no feeds"), ["not run", "not verified"]),
        (Verdict("equivalent", reason="nothing fused"), ["equivalent", "none: nothing fused"]),
    ],
)
def test_what_was_not_verified_is_not_as_expected(tmp_path: Path, verdict: Verdict, found: list[str]) -> None:
    held = checks(f"providers: [{CPU}], tolerance: 1e-4", replace(RESULT, verdict=verdict), folder=tmp_path)
    assert [one.found for one in held] == found
    assert {one.met for one in held} == {verdict.verdict == "equivalent"}


def test_a_provider_that_ran_no_node_is_not_as_expected(tmp_path: Path) -> None:
    """Other providers ran nodes, and the overall verdict is good."""
    result = replace(RESULT, providers=(CPU, "CUDAExecutionProvider"))
    held = checks(f"providers: [{CPU}, CUDAExecutionProvider]", result, folder=tmp_path)
    assert [(one.met, one.found) for one in held] == [(True, "equivalent"), (False, "not run")]


def test_a_run_meets_the_expectation_that_is_made_from_it(tmp_path: Path) -> None:
    """Law: and only better results pass. One fusion fewer, one node more, a larger file or a new near miss is a miss."""
    near = replace(RESULT, near_misses=(MISS,))
    file = tmp_path / "expected.yaml"
    file.write_text(expectation_text([(near, near.near_misses)]), encoding="utf-8")
    section = read_expectation(file, IDS).section(RESULT.model)
    held = check(section, near, near.near_misses)
    assert len(held) == 9 and all(one.met for one in held)
    for worse, what in (
        (replace(near, rewrites=near.rewrites[1:]), "layer-normalization"),
        (replace(near, nodes_after=41), "nodes"),
        (replace(near, size=1_300_001), "size"),
        (replace(near, near_misses=(MISS, replace(MISS, anchor="/8/a"))), "near misses of layer-normalization"),
        (replace(near, verdict=Verdict("equivalent", runs=(replace(RUN, error=2e-5, bound=1e-3),))), "tolerance"),
    ):
        assert [one.what for one in check(section, worse, worse.near_misses) if not one.met] == [what]


def test_the_written_file_is_readable(tmp_path: Path) -> None:
    assert expectation_text([(RESULT, ())]) == (
        "# What `onnx-subgraph fuse` is expected to give: checked with --expect, made with --write-expect.\n"
        "models:\n"
        "  bert.onnx:\n"
        "    fusions:\n"
        "      layer-normalization:\n"
        "        count: 5\n"
        "        attributes:\n"
        "          epsilon: 1.0e-12\n"
        "      gelu: 1\n"
        "    near-misses: {}\n"
        "    nodes: at most 40\n"
        "    size: at most 1.3 MB\n"
        "    providers:\n"
        "      - CPUExecutionProvider\n"
        "    tolerance: 1.0e-05\n"
    )


def test_what_is_not_known_is_not_written() -> None:
    """Attributes and bounds that are infinite, and what no verification showed."""
    infinite = replace(RESULT.rewrites[0], attributes=(("epsilon", float("inf")),))
    result = replace(RESULT, rewrites=(infinite,), verdict=Verdict("equivalent", runs=(replace(RUN, bound=float("inf")),)))
    text = expectation_text([(result, ())])
    assert "layer-normalization: 1\n" in text and "providers:" in text and "tolerance" not in text
    text = expectation_text([(replace(RESULT, verdict=Verdict("not-run", reason="it was not asked for")), ())])
    assert "gelu: 1\n" in text and "providers" not in text and "tolerance" not in text


@pytest.mark.parametrize(("size", "written"), [(7, "7 B"), (99, "99 B"), (123, "130 B"), (1000, "1 KB"), (999_999, "1000 KB")])
def test_the_expected_size_has_two_digits_and_is_no_smaller(size: int, written: str) -> None:
    assert f"size: at most {written}\n" in expectation_text([(replace(RESULT, size=size), ())])


def test_models_with_equal_names_are_told_apart_by_their_folders() -> None:
    text = expectation_text([(replace(RESULT, model=Path(f"build/{f}/model.onnx")), ()) for f in ("encoder", "decoder")])
    assert "  encoder/model.onnx:\n" in text and "  decoder/model.onnx:\n" in text


def test_sizes_are_printed_with_units() -> None:
    assert [bytes_text(n) for n in (7, 1500, 438_200_000, 2_500_000_000)] == ["7 B", "1.5 KB", "438.2 MB", "2.5 GB"]
