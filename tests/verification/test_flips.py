"""A choice that a rounding inside the original changes is no difference; whatever else differs is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.report.wording import exceptions
from onnx_subgraph.verification.bounds import Bound, bound
from onnx_subgraph.verification.flips import before_choices
from onnx_subgraph.verification.judge import compare
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


def test_a_model_that_chooses_nothing_is_not_run_again() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, int64[4] i) => (float[4] y, bool[4] z, {}[4] c)
    <int64 two = {{2}}> {{ e = Exp (x)  y = Relu (e)  z = Less (i, two)  c = {} }}"""
    plain, choosing = (ir.from_onnx_text(text.format(*one)) for one in (("float", "Abs (y)"), ("int64", "Cast <to = 7> (y)")))
    for model in (plain, choosing):
        infer_shapes(model)
    assert not before_choices(plain)
    assert {value.name for value in before_choices(choosing)} == {"e"}, "Relu rounds nothing, so noise is before it"


def test_each_element_may_be_that_of_another_run() -> None:
    r = np.arange(400, dtype=np.float32).reshape(100, 4)
    one, other = r.copy(), r.copy()
    one[[3, 4]], other[[70, 71]] = r[[4, 3]], r[[71, 70]]
    allowed = replace(bound(r), flipped=(one, other))
    both = one.copy()
    both[[70, 71]] = r[[71, 70]]
    assert not compare(r, both, bound(r)).equal
    found = compare(r, both, allowed)
    assert found.equal and found.jumps == 16
    both[80, 0] += 1.0
    found = compare(r, both, allowed)
    assert not found.equal and found.worst == (80, 0), "what does not flip is named"
    third = one.copy()
    third[3] = r[70]
    assert not compare(r, third, allowed).equal, "a row may only have the numbers that a run of the original gave there"


def test_what_does_not_flip_in_a_run_with_noise_is_compared_with_the_original() -> None:
    r = np.arange(400.0).reshape(100, 4)
    run = r + 0.9
    run[[3, 4]] = r[[4, 3]]
    allowed = Bound(np.full(r.shape, 1.0), flipped=(run,))
    candidate = r.copy()
    candidate[[3, 4]] = r[[4, 3]]
    assert compare(r, candidate, allowed).equal
    candidate[50] += 1.5
    assert not compare(r, candidate, allowed).equal


def test_many_elements_may_only_be_those_of_one_run() -> None:
    """Labels of an ArgMax: half of them flip, but not in the same run."""
    r = np.zeros(8, np.int64)
    one, other = np.eye(8, dtype=np.int64)[0], np.eye(8, dtype=np.int64)[1]
    allowed = replace(bound(r), flipped=(one, other))
    assert compare(r, one, allowed).equal
    assert not compare(r, one + other, allowed).equal
    assert not compare(r, 2 * one, allowed).equal


def test_a_part_is_held_to_its_own_bound_where_it_flips() -> None:
    r = np.array([100.0, 200.0, 0.25, 0.5])
    flipped = np.array([200.0, 100.0, 0.5, 0.25])
    scores = np.array([False, False, True, True])
    allowed = Bound(np.full(4, 1e-3), parts=((scores, Bound(np.full(2, 1e-6))),), flipped=(flipped,))
    assert compare(r, flipped, allowed).equal
    assert not compare(r, flipped + np.array([0.0, 0.0, 1e-5, 0.0]), allowed).equal
