"""A choice that a rounding inside the original changes is no difference; whatever else differs is one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.report.wording import exceptions
from onnx_subgraph.verification import flips
from onnx_subgraph.verification.bounds import Bound, bound
from onnx_subgraph.verification.flips import before_choices
from onnx_subgraph.verification.judge import compare_flipped
from onnx_subgraph.verification.sessions import Failure, Outputs, Session, run
from onnx_subgraph.verification.verify import verify
from tests.verification.models import write

ROWS = 200
SCORES = [round(0.9 - 0.004 * row, 3) for row in range(ROWS)]
NEAR = 0.3 * (1 + 2.0**-22)
"""Two units in the last place above 0.3: noise of one unit does not exchange the two."""
SCORES[150], SCORES[151] = NEAR, 0.3


def ranking(path: Path, scores: list[float], values: list[float]) -> Path:
    """Sorts three numbers in each row by the row's score, times a number of the input."""
    given, rows = (", ".join(f"{number:.9g}" for number in numbers) for numbers in (scores, values))
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[{ROWS}, 3] y)
    <float[{ROWS}] s = {{{given}}}, float[{ROWS}, 3] v = {{{rows}}}, int64[1] all = {{{ROWS}}}> {{
      a = Abs (x)  m = ReduceMean <keepdims = 0> (a)  p = Mul (s, m)  w = Mul (v, m)
      t, i = TopK (p, all)  y = Gather (w, i) }}"""
    return write(path, text)


def exchanged(numbers: list[float], one: int, other: int) -> list[float]:
    result = list(numbers)
    result[one], result[other] = numbers[other], numbers[one]
    return result


VALUES = [float(number) for number in np.random.default_rng(0).standard_normal(ROWS * 3).round(4)]
FLIPPED = exchanged(SCORES, 150, 151)


@pytest.mark.parametrize(
    ("scores", "values", "verdict"),
    [
        (FLIPPED, VALUES, "equivalent"),
        (exchanged(SCORES, 20, 21), VALUES, "different"),
        (exchanged(FLIPPED, 20, 21), VALUES, "different"),
        (FLIPPED, [*VALUES[:450], VALUES[450] * 1.01, *VALUES[451:]], "different"),
        (FLIPPED, [*VALUES[:30], VALUES[30] * 1.001, *VALUES[31:]], "different"),
        (FLIPPED, [number * 1.01 for number in VALUES], "different"),
    ],
    ids=["a flip", "two rows", "a flip and two rows", "a number that flips", "one that does not", "all numbers"],
)
def test_only_what_a_rounding_exchanges_may_be_exchanged(
    scores: list[float], values: list[float], verdict: str, tmp_path: Path
) -> None:
    original = ranking(tmp_path / "original.onnx", SCORES, VALUES)
    found = verify(original, ranking(tmp_path / "other.onnx", scores, values))
    assert found.verdict == verdict
    assert verdict == "different" or any("6 elements of y jumped" in line for line in exceptions(found))


@pytest.mark.parametrize(
    ("seconds", "runs"), [(0.0, [8, 8, 8, 8, 8, 8]), (0.5, [8, 2, 8, 2, 8, 2]), (1.0, [8, 1, 8, 1, 2]), (4.0, [8]), (100.0, [1])]
)
def test_a_slow_model_is_run_less_often(seconds: float, runs: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run takes so many seconds, and six times as many with noise everywhere. Half of the rounds had no limit."""
    clock, opened, counted = 0.0, list[Session](), list[int]()

    def slowly(session: Session, feeds: Mapping[str, Any]) -> Outputs | Failure:
        nonlocal clock
        if not any(session is one for one in opened):
            opened.append(session)
            counted.append(0)
        counted[-1] += 1
        clock += seconds * (1 if len(counted) % 2 else 6)
        return run(session, feeds)

    monkeypatch.setattr(flips, "run", slowly)
    monkeypatch.setattr(flips, "perf_counter", lambda: clock, raising=False)
    original = ranking(tmp_path / "original.onnx", SCORES, VALUES)
    other = ranking(tmp_path / "other.onnx", exchanged(SCORES, 20, 21), VALUES)
    np.savez(tmp_path / "feeds.npz", x=np.ones(4, np.float32))
    assert verify(original, other, inputs=tmp_path / "feeds.npz").verdict == "different"
    assert counted == runs


def test_a_model_that_chooses_nothing_is_not_run_again() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, int64[4] i) => (float[4] y, bool[4] z, {}[4] c)
    <int64 two = {{2}}> {{ e = Exp (x)  y = Relu (e)  z = Less (i, two)  c = {} }}"""
    plain, choosing = (ir.from_onnx_text(text.format(*one)) for one in (("float", "Abs (y)"), ("int64", "Cast <to = 7> (y)")))
    for model in (plain, choosing):
        infer_shapes(model)
    assert not before_choices(plain)
    assert {value.name for value in before_choices(choosing)} == {"e"}, "Relu rounds nothing, so noise is before it"


def voting(path: Path, last: int) -> Path:
    """Counts three votes for one of four labels in each row, and chooses the label with the most."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[3, 3, 4] x) => (int64[3] y)
    <float zero = {{0}}, int64[1] votes = {{1}}> {{
      is_for = Greater (x, zero)  one = Cast <to = 1> (is_for)  count = ReduceSum <keepdims = 0> (one, votes)
      y = ArgMax <axis = 1, keepdims = 0, select_last_index = {last}> (count) }}"""
    return write(path, text)


def test_a_tie_of_votes_is_decided_by_the_operator_and_not_by_a_rounding(tmp_path: Path) -> None:
    first, last = voting(tmp_path / "first.onnx", 0), voting(tmp_path / "last.onnx", 1)
    assert verify(first, last).verdict == "different"
    assert verify(first, first).verdict == "equivalent"


R = np.arange(400, dtype=np.float32).reshape(100, 4)
IDS = np.arange(100)


def in_order(order: list[int]) -> dict[str, np.ndarray]:
    """Rows and their numbers in this order."""
    return {"rows": R[order], "ids": IDS[order]}


def with_exchanged(*pairs: tuple[int, int]) -> dict[str, np.ndarray]:
    order = list(range(100))
    for one, other in pairs:
        order[one], order[other] = order[other], order[one]
    return in_order(order)


RUNS = (with_exchanged((3, 4)), with_exchanged((70, 71)))


@pytest.mark.parametrize(
    ("candidate", "is_right"),
    [
        (with_exchanged((3, 4)), True),
        (with_exchanged((70, 71)), True),
        (with_exchanged((3, 4), (70, 71)), False),
        (with_exchanged((3, 4), (10, 11)), False),
        ({**with_exchanged((3, 4)), "ids": IDS}, False),
        (in_order([0, 1, 2, 4, 4, *range(5, 100)]), False),
        ({**with_exchanged((3, 4)), "rows": with_exchanged((3, 4))["rows"] + (IDS[:, None] == 80)}, False),
        ({**with_exchanged((3, 4)), "rows": np.where(np.arange(4) < 2, with_exchanged((3, 4))["rows"], R)}, False),
    ],
    ids=[
        "one run",
        "another run",
        "of both runs",
        "more",
        "rows without their numbers",
        "a row twice",
        "an element",
        "half rows",
    ],
)
def test_all_outputs_agree_with_the_same_run(candidate: dict[str, np.ndarray], is_right: bool) -> None:
    original = in_order([*range(100)])
    bounds = {"rows": bound(R), "ids": bound(IDS)}
    found = compare_flipped(original, candidate, bounds, RUNS)
    assert bool(found) is is_right
    assert not is_right or {name: one.jumps for name, one in found.items()} == {"rows": 8, "ids": 2}


def test_what_does_not_flip_in_a_run_with_noise_is_compared_with_the_original() -> None:
    r = np.arange(400.0).reshape(100, 4)
    run = r + 0.9
    run[[3, 4]] = r[[4, 3]]
    bounds = {"y": Bound(np.full(r.shape, 1.0))}
    candidate = r.copy()
    candidate[[3, 4]] = r[[4, 3]]
    assert compare_flipped({"y": r}, {"y": candidate}, bounds, [{"y": run}])
    candidate[50] += 1.5
    assert not compare_flipped({"y": r}, {"y": candidate}, bounds, [{"y": run}])
    assert compare_flipped({"y": r}, {"y": candidate}, bounds, [{"y": run}], apart=["y"])


def test_a_part_is_held_to_its_own_bound_where_it_flips() -> None:
    r = np.array([100.0, 200.0, 0.25, 0.5])
    flipped = np.array([200.0, 100.0, 0.5, 0.25])
    scores = np.array([False, False, True, True])
    bounds = {"y": Bound(np.full(4, 1e-3), parts=((scores, Bound(np.full(2, 1e-6))),))}
    assert compare_flipped({"y": r}, {"y": flipped}, bounds, [{"y": flipped}])
    assert not compare_flipped({"y": r}, {"y": flipped + np.array([0.0, 0.0, 1e-5, 0.0])}, bounds, [{"y": flipped}])
