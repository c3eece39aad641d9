"""Outputs that differ from onnxruntime's are accepted if they are as near to the truth, provided that the truth is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph.evaluator.truth import UnknownError
from onnx_subgraph.files.models import load
from onnx_subgraph.verification.bounds import Bound
from onnx_subgraph.verification.cases import Case
from onnx_subgraph.verification.nearness import Evaluate, exactly, inaccurate, nearness
from onnx_subgraph.verification.reference import Reference
from onnx_subgraph.verification.sessions import Failure, Session

TRUTH = np.random.default_rng(1).standard_normal(1000)
OWN = np.random.default_rng(2).standard_normal(1000) * 1e-5
"""How far onnxruntime is from the truth."""
CASE = Case({}, 0, {}, {"y": (TRUTH + OWN).astype(np.float32)}, {"y": Bound(np.asarray(6e-5), 2e-5)})
ELSEWHERE = np.random.default_rng(3).permutation(OWN)
NO_OTHER = Failure("not asked for")


def truth(feeds: Any) -> dict[str, Any]:
    return {"y": TRUTH}


def near(error: np.ndarray, evaluate: Evaluate = truth) -> bool:
    return bool(nearness(CASE, ["y"], NO_OTHER, evaluate, {"y": (TRUTH + error).astype(np.float32)}))


@pytest.mark.parametrize(("times", "accepted"), [(0.0, True), (1.0, True), (2.5, True), (3.5, False), (100.0, False)])
def test_three_times_as_far_from_the_truth_on_average_is_near(times: float, accepted: bool) -> None:
    assert near(times * ELSEWHERE) is accepted


@pytest.mark.parametrize(("times", "accepted"), [(3.0, True), (5.0, False)])
def test_one_element_may_be_four_times_as_far_as_the_worst(times: float, accepted: bool) -> None:
    error = np.zeros(1000)
    error[7] = times * np.abs(OWN).max()
    assert near(error) is accepted


def test_results_on_the_other_side_of_the_truth_are_near() -> None:
    """They are farther from onnxruntime than a fusion may be, but not farther from the truth than onnxruntime is."""
    assert near(-2 * OWN)


def test_an_evaluation_far_from_onnxruntime_is_not_used_as_the_truth() -> None:
    with pytest.raises(UnknownError, match=r"onnxruntime's own y is .* from it"):
        near(OWN, lambda feeds: {"y": TRUTH + 1e-3})


@pytest.mark.parametrize(("own", "error", "left_out"), [(0.1, 0.2, True), (0.1, 100.0, False), (1e-6, 0.2, False)])
def test_an_output_is_left_out_if_it_differs_as_much_as_the_original_is_wrong(own: float, error: float, left_out: bool) -> None:
    """An original that is right, or much nearer to the truth than the candidate to it, is compared."""
    case = Case({}, 0, {}, {"y": (TRUTH + own).astype(np.float32)}, CASE.bounds)
    assert inaccurate(case, {"y": error}, truth) == ({"y"} if left_out else set())


def test_integers_and_other_shapes_have_no_nearness() -> None:
    case = Case({}, 0, {}, {"i": np.arange(3), "y": CASE.outputs["y"]}, {"i": Bound(np.asarray(0.0)), "y": CASE.bounds["y"]})
    found = nearness(case, ["i", "y"], NO_OTHER, lambda _: {"i": np.arange(3), "y": TRUTH}, {"i": np.zeros(3), "y": TRUTH[:7]})
    assert not found


def giving(y: np.ndarray) -> Session:
    """A session-like object with this output."""
    return Session(SimpleNamespace(get_inputs=list, get_outputs=list, run=lambda *_: [y]), ("y",))


def test_the_optimised_original_may_be_further_from_the_truth() -> None:
    far = (TRUTH + 3 * OWN).astype(np.float32)
    outputs = {"y": (TRUTH + 5 * ELSEWHERE).astype(np.float32)}
    assert nearness(CASE, ["y"], giving(far), truth, outputs)
    assert not nearness(CASE, ["y"], NO_OTHER, truth, outputs)


@pytest.mark.parametrize(("times", "accepted"), [(1.0, True), (100.0, False)])
@pytest.mark.parametrize("rows", [2000, 7])
def test_each_part_is_as_near_as_its_own(times: float, accepted: bool, rows: int) -> None:
    """rows: of the optimised original; a rounding may change how many it chooses."""
    exact, own = np.r_[1000 * TRUTH, TRUTH], np.r_[1000 * OWN, OWN]
    mine, small = (exact + own).astype(np.float32), np.arange(2000) >= 1000
    case = Case({}, 0, {}, {"y": mine}, {"y": Bound(np.asarray(6e-2), 2e-2)}, parts={"y": (small, ~small)})
    outputs = {"y": (exact + times * own * small).astype(np.float32)}
    assert bool(nearness(case, ["y"], giving(mine[:rows]), lambda _: {"y": exact}, outputs)) is accepted


def test_results_of_random_operators_are_fed_to_the_truth_and_to_sessions_that_take_them() -> None:
    case = replace(CASE, drawn={"random": TRUTH})
    assert nearness(case, ["y"], NO_OTHER, lambda feeds: {"y": feeds["random"]}, case.outputs)
    assert not case.fed_to(giving(TRUTH))


def test_an_element_of_a_sequence_that_is_missing_is_not_near() -> None:
    many = {"s": [TRUTH, TRUTH]}
    case = Case({}, 0, {}, many, {f"s[{number}]": CASE.bounds["y"] for number in range(2)})
    assert nearness(case, ["s[0]", "s[1]"], NO_OTHER, lambda _: many, {"s": [TRUTH]}).keys() == {"s[0]"}


MODEL = """
<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
g (float[n, 8] x) => (float[n, 8] y) { y = mine.Twice (x) }
<opset_import: ["" : 17], domain: "mine"> Twice (v) => (w) { w = Add (v, v) }
"""


class Answers:
    """A session-like object whose results are off by a fraction."""

    def __init__(self, off: float) -> None:
        self.off = off

    def get_inputs(self) -> list[Any]:
        return []

    get_outputs = get_inputs

    def run(self, names: Any, feeds: dict[str, Any], options: Any = None) -> list[Any]:
        return [(feeds["x"] * np.float64(2 + 2 * self.off)).astype(np.float32)]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.parser.parse_model(MODEL).SerializeToString())
    return path


def test_the_truth_of_a_model_with_functions_is_known(model: Path) -> None:
    x = np.float32([[1 / 3] * 8])
    assert exactly(model, load(model))({"x": x})["y"][0, 0] == 2 * float(x[0, 0])


def test_the_truth_of_a_very_large_model_is_not_computed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx_subgraph.verification.nearness.MOST_WEIGHTS", 0)
    large = ir.from_onnx_text("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[4] x) => (float[4] y) <float[4] w = {1, 1, 1, 1}> { y = Add (x, w) }""")
    with pytest.raises(UnknownError, match="more than 0 MiB"):
        exactly(model, large)({})


@pytest.mark.parametrize("rtol", [None, 1e-9])
def test_a_wrong_answer_is_different_for_any_truth(model: Path, rtol: float | None) -> None:
    reference = Reference(model, rtol=rtol)
    for off, expected in ((0.0, "equivalent"), (1e-5, "different"), (1e-2, "different")):
        verdict = reference.verdict(model, also={"other": lambda fed, off=off: Session(Answers(off), ("y",))})  # type: ignore[misc]
        assert verdict.verdict == expected
        assert {run.provider for run in verdict.runs if not run.equal} <= {"other"}
