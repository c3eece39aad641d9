"""What is taken of joined values is taken of the one that has it, whatever stands between works on single elements."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simplification.test_simplify import operators, parsed, run, simplified

INPUTS = "float[N, 3] x, float[N, 3] z, float[N, 2] w"
WEIGHTS = "int64[2] equal = {3, 3}, int64[2] other = {2, 3}"
TAKEN = {
    "cosines of angles twice": ("j = Concat<axis = -1>(x, x) c = Cos(j) y, b = Split<axis = 1>(c, equal)", {"Cos": 1}),
    "of two values": ("j = Concat<axis = 1>(x, z) c = Sin(j) n = Neg(c) y, b = Split<axis = -1>(n, equal)", {"Sin": 1, "Neg": 1}),
    "nothing between": ("j = Concat<axis = 1>(x, z) a, b = Split<axis = 1>(j, equal) y = Neg(a)", {"Neg": 1}),
    "a cast": (
        "j = Concat<axis = 1>(x, x) h = Cast<to = 11>(j) a, b = Split<axis = 1>(h, equal) y = Cast<to = 1>(a)",
        {"Cast": 2},
    ),
    "the second part": ("j = Concat<axis = 1>(x, z) c = Cos(j) a, y = Split<axis = 1>(c, equal)", {"Cos": 1}),
    "all parts": ("j = Concat<axis = 1>(x, z) a, b = Split<axis = 1>(j, equal) y = Sub(b, a)", {"Sub": 1}),
    "another size": ("j = Concat<axis = 1>(w, z) c = Cos(j) y, b = Split<axis = 1>(c, other)", {"Cos": 1}),
}
KEPT = {
    "both parts": "j = Concat<axis = 1>(x, z) c = Cos(j) a, b = Split<axis = 1>(c, equal) y = Sub(a, b)",
    "another part": "j = Concat<axis = 1>(z, w) c = Cos(j) y, b = Split<axis = 1>(c, other)",
    "another axis": "j = Concat<axis = 0>(x, z) c = Cos(j) t = Transpose(c) y, b = Split<axis = 1, num_outputs = 2>(t)",
    "what works on rows": "j = Concat<axis = 1>(x, z) c = Softmax(j) y, b = Split<axis = 1>(c, equal)",
    "cosines that are read": (
        "j = Concat<axis = 1>(x, z) c = Cos(j) a, b = Split<axis = 1>(c, equal) r = ReduceSum(c) y = Mul(a, r)"
    ),
}


def feeds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((4, size)).astype(np.float32) for name, size in (("x", 3), ("z", 3), ("w", 2))}


@pytest.mark.parametrize(("body", "left"), TAKEN.values(), ids=TAKEN)
def test_the_first_part_is_computed_alone(body: str, left: dict[str, int]) -> None:
    model = parsed(body, INPUTS, "float[A, B] y", WEIGHTS)
    _, written = simplified(model)
    assert operators(written) == left
    np.testing.assert_array_equal(run(written, feeds())[0], run(model, feeds())[0])


@pytest.mark.parametrize("body", KEPT.values(), ids=KEPT)
def test_other_splits_stay(body: str) -> None:
    model = parsed(body, INPUTS, "float[A, B] y", WEIGHTS)
    model.opset_import[0].version = 18
    _, written = simplified(model)
    assert operators(written) == operators(model)
    np.testing.assert_array_equal(run(written, feeds())[0], run(model, feeds())[0])


NUMBERS = """
int64 last = {-1}, int64[1] fifth = {4}, int64[1] row = {-1}, int64[1] vector = {-2}, int64[2] both = {2, 0},
int64[2] across = {2, 3}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3},
int64[1] five = {5}, int64[1] end = {9223372036854775807}, int64[1] back = {-2}, int64[1] back_five = {-5}
"""
WITHOUT = {
    "the last layer": "p = Unsqueeze(x, one) q = Unsqueeze(z, one) j = Concat<axis = 1>(p, q) y = Gather<axis = 1>(j, last)",
    "an element, from the front": "j = Concat<axis = 1>(x, z, w) y = Gather<axis = 1>(j, fifth)",
    "an element, from the end": "j = Concat<axis = -1>(x, w, z) y = Gather<axis = 1>(j, vector)",
    "two elements of one": "j = Concat<axis = 1>(x, z) y = Gather<axis = -1>(j, both)",
    "behind an operator": "j = Concat<axis = 1>(x, z) c = Neg(j) y = Gather<axis = 1>(c, fifth)",
    "a slice that is a whole operand": "j = Concat<axis = 1>(x, z, w) y = Slice(j, three, back, one)",
    "a slice of the last operand": "j = Concat<axis = 1>(x, w, z) y = Slice(j, back, end, one)",
    "a slice within": "j = Concat<axis = 1>(w, z, x) y = Slice(j, two, three, one)",
    "an empty slice": "j = Concat<axis = 1>(w, z, x) y = Slice(j, five, three, one)",
    "rows of an unknown number": "j = Concat<axis = 0>(x, u) y = Slice(j, zero, back_five, zero)",
    "the row behind an unknown number": "j = Concat<axis = 0>(x, u) y = Gather<axis = 0>(j, row)",
}
WITH = {
    "elements of two": "j = Concat<axis = 1>(x, z) y = Gather<axis = 1>(j, across)",
    "another axis": "j = Concat<axis = 1>(x, z) y = Gather<axis = 0>(j, zero)",
    "a slice across": "j = Concat<axis = 1>(x, z, w) y = Slice(j, two, back, one)",
    "a slice to the end": "j = Concat<axis = 1>(x, z, w) y = Slice(j, three, end, one)",
    "every second element": "j = Concat<axis = 1>(x, z, w) y = Slice(j, zero, three, one, two)",
    "a row of which it is unknown whose it is": "j = Concat<axis = 0>(x, u) y = Gather<axis = 0>(j, zero)",
    "rows that may not be there": "j = Concat<axis = 0>(x, u) y = Slice(j, two, back, zero)",
    "a start that may be before": "j = Concat<axis = 0>(u, x) y = Slice(j, back_five, end, zero)",
}


def _feeds(rows: int) -> dict[str, np.ndarray]:
    rng, shapes = np.random.default_rng(1), {"x": (rows, 3), "z": (rows, 3), "w": (rows, 2), "u": (5, 3)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("body", WITHOUT.values(), ids=WITHOUT)
@pytest.mark.parametrize("rows", [1, 4, 7])
def test_what_is_taken_of_joined_values_is_taken_of_one(body: str, rows: int) -> None:
    model = parsed(body, f"{INPUTS}, float[5, 3] u", "float[A, B] y", NUMBERS)
    _, written = simplified(model)
    assert "Concat" not in operators(written)
    np.testing.assert_array_equal(run(written, _feeds(rows))[0], run(model, _feeds(rows))[0])


@pytest.mark.parametrize("body", WITH.values(), ids=WITH)
@pytest.mark.parametrize("rows", [1, 4, 7])
def test_what_several_of_them_have_stays_joined(body: str, rows: int) -> None:
    model = parsed(body, f"{INPUTS}, float[5, 3] u", "float[A, B] y", NUMBERS)
    _, written = simplified(model)
    assert "Concat" in operators(written)
    np.testing.assert_array_equal(run(written, _feeds(rows))[0], run(model, _feeds(rows))[0])
