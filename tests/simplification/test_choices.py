"""What bounds a mask of two numbers, or asks whether it is infinite, becomes a choice between two numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simplification.test_simplify import operators, parsed, run, simplified

INPUTS = "bool[N, 1, 6] c, float[N, 4, 6] x, bool[N, 1, 6] d, bool[6] e"
WEIGHTS = """float zero = {0}, float low = {-3.4028234663852886e38}, float floor = {-1e30},
  float[1, 1, 6] many = {1, 2, 3, 4, 5, 6},
  float[1, 1, 6] same = {2, 2, 2, 2, 2, 2}"""
BOUND = "i = IsInf(m) b = Clip(m, floor) r = Where(i, m, b) y = Add(x, r)"
CHOSEN = {
    "the lowest number": "m = Where(c, zero, low) " + BOUND,
    "infinity": "inf = Div(low, zero) m = Where(c, zero, inf) " + BOUND,
    "the other way": "m = Where(c, low, zero) " + BOUND,
    "behind Not": "n = Not(c) m = Where(n, low, zero) " + BOUND,
    "a cast": "m = Where(c, zero, low) h = Cast<to = 11>(m) b = Cast<to = 1>(h) y = Add(x, b)",
    "a maximum": "m = Where(c, zero, low) r = Max(m, floor) y = Add(x, r)",
    "equal numbers": "m = Where(c, same, low) r = Clip(m, floor) y = Add(x, r)",
}
CONDITIONS = {
    "infinite": ("inf = Div(low, zero) m = Where(c, inf, zero) i = IsInf(m) y = Where(i, x, low)", {"Where": 1}),
    "finite": ("inf = Div(low, zero) m = Where(c, zero, inf) i = IsInf(m) y = Where(i, x, low)", {"Not": 1, "Where": 1}),
    "a cast": ("m = Where(c, floor, zero) b = Clip(m, low) i = Cast<to = 9>(b) y = Where(i, x, low)", {"Where": 1}),
}
OTHERS = {
    "numbers that differ": "m = Where(c, many, low) r = Max(m, floor) y = Add(x, r)",
    "two conditions": "m = Where(c, zero, low) n = Where(d, zero, low) r = Max(m, n) y = Add(x, r)",
    "what rounds": "m = Where(c, zero, low) r = Exp(m) y = Add(x, r)",
    "a value": "m = Where(c, x, low) r = Clip(m, floor) y = Add(x, r)",
    "another shape": "m = Where(c, zero, low) r = Max(m, x) y = Add(x, r)",
    "a smaller condition": "m = Where(e, same, low) r = Max(m, floor) y = Add(x, r)",
    "a choice already": "m = Where(c, zero, low) y = Add(x, m)",
    "a condition that is cast": "n = Not(c) m = Cast<to = 1>(n) y = Add(x, m)",
    "a condition that is asked": "i = IsInf(x) y = Where(i, low, x)",
}


def feeds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    c, d = (rng.random((3, 1, 6)) < 0.5 for _ in range(2))
    return {"c": c, "d": d, "e": c[0, 0], "x": rng.standard_normal((3, 4, 6)).astype(np.float32)}


@pytest.mark.parametrize("body", CHOSEN.values(), ids=CHOSEN)
def test_operators_on_a_choice_are_a_choice(body: str) -> None:
    model = parsed(body, INPUTS, weights=WEIGHTS)
    found, written = simplified(model)
    left = operators(written) - operators(parsed("n = Not(c) y = Identity(x)", INPUTS))
    assert found.simpler and left["Where"] == 1 and not {"IsInf", "Clip", "Cast", "Max"} & left.keys()
    np.testing.assert_array_equal(run(written, feeds())[0], run(model, feeds())[0])


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_other_operators_stay(body: str) -> None:
    model = parsed(body, INPUTS, weights=WEIGHTS)
    _, written = simplified(model)
    assert operators(written) == operators(model)
    np.testing.assert_array_equal(run(written, feeds())[0], run(model, feeds())[0])


@pytest.mark.parametrize(("body", "left"), CONDITIONS.values(), ids=CONDITIONS)
def test_a_condition_on_a_choice_is_its_condition_or_the_opposite(body: str, left: dict[str, int]) -> None:
    """onnxruntime has no Where of conditions."""
    model = parsed(body, INPUTS, weights=WEIGHTS)
    _, written = simplified(model)
    assert operators(written) == left
    np.testing.assert_array_equal(run(written, feeds())[0], run(model, feeds())[0])


def test_new_names_are_new() -> None:
    """As after a run that made these names, for another target."""
    body = "m = Where(c, zero, low) b = Clip(m, floor) "
    body += "[b_chosen] b__yes = Neg(x) b__no = Abs(x) s = Add(b__no, b) y = Add(s, b__yes)"
    model = parsed(body, INPUTS, weights=WEIGHTS)
    _, written = simplified(model)
    assert operators(written)["Clip"] == 0
    np.testing.assert_array_equal(run(written, feeds())[0], run(model, feeds())[0])


INTEGERS = "bool[N, 1, 6] c, int32[N, 4, 6] i, int32[6] k, bool[N, 1, 6] d, float[N, 4, 6] x"
NOT = "p = Cast<to = 6>(c) n = Not(c) q = Cast<to = 6>(n) "
SUMS = {
    "of products": NOT + "a = Mul(i, p) b = Mul(k, q) y = Add(a, b)",
    "the other way": NOT + "a = Mul(q, k) b = Mul(p, i) y = Add(a, b)",
    "of a choice": "p = Where(c, one, none) q = Where(c, none, one) a = Mul(i, p) b = Mul(k, q) y = Add(a, b)",
}
OTHER_SUMS = {
    "the same side": NOT + "a = Mul(i, p) b = Mul(k, p) y = Add(a, b)",
    "two conditions": "p = Cast<to = 6>(c) n = Not(d) q = Cast<to = 6>(n) a = Mul(i, p) b = Mul(k, q) y = Add(a, b)",
    "other numbers": "p = Where(c, one, none) q = Where(c, none, two) a = Mul(i, p) b = Mul(k, q) y = Add(a, b)",
    "floats": "p = Cast<to = 1>(c) n = Not(c) q = Cast<to = 1>(n) a = Mul(x, p) b = Mul(x, q) y = Add(a, b)",
}
ONES = "int32 none = {0}, int32 one = {1}, int32 two = {2}"


@pytest.mark.parametrize("body", SUMS.values(), ids=SUMS)
def test_a_sum_of_integers_that_are_kept_or_zero_is_a_choice(body: str) -> None:
    model = parsed(body, INTEGERS, "int32[A, B, C] y", ONES)
    _, written = simplified(model)
    assert operators(written) == {"Where": 1}
    rng = np.random.default_rng(0)
    i, k = (rng.integers(-(2**31), 2**31, shape, np.int32) for shape in ((3, 4, 6), 6))
    given = feeds() | {"i": i, "k": k}
    del given["e"]
    np.testing.assert_array_equal(run(written, given)[0], run(model, given)[0])


@pytest.mark.parametrize("body", OTHER_SUMS.values(), ids=OTHER_SUMS)
def test_other_sums_stay(body: str) -> None:
    _, written = simplified(parsed(body, INTEGERS, f"{'float' if 'to = 1>' in body else 'int32'}[A, B, C] y", ONES))
    assert operators(written)["Add"] == 1


def test_a_sum_stays_where_there_is_no_where() -> None:
    model = parsed(SUMS["of products"], INTEGERS, "int32[A, B, C] y", ONES)
    model.opset_import[0].version = 8
    assert operators(simplified(model)[1])["Add"] == 1
