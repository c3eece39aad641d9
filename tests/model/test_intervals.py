"""What constants bound is neither infinite nor changed by wider bounds; what they do not bound may be."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnx_subgraph.model.intervals import _RANGES
from tests.simplification.test_simplify import operators, parsed, run, simplified

INPUTS = "int64[N] i, bool[N, 3] c, float[N, 3] x"
WEIGHTS = """float[2, 3] table = {-4, 0.5, 3, 2, -1, 1}, float low = {-3.4028234663852886e38}, float floor = {-1e30},
  float three = {3}, float close = {-2}, float zero = {0}, int64[2] sizes = {1, 2}"""
ROW = "t = Gather(table, i) "
WITHOUT = {
    "a table": (ROW + "b = Clip(t, floor) y = Neg(b)", {"Gather": 1, "Neg": 1}),
    "both bounds": (ROW + "s = Neg(floor) b = Clip(t, floor, s) y = Neg(b)", {"Gather": 1, "Neg": 1}),
    "the bounds themselves": (ROW + "f = Neg(three) g = Sub(f, three) b = Clip(t, g, three) y = Neg(b)", {"Gather": 1, "Neg": 1}),
    "a sum of tables": (ROW + "u = Add(t, t) b = Clip(u, floor) y = Neg(b)", {"Gather": 1, "Add": 1, "Neg": 1}),
    "a cast condition": ("f = Cast<to = 1>(c) b = Clip(f, close) y = Neg(b)", {"Cast": 1, "Neg": 1}),
    "finite": (ROW + "m = Where(c, t, low) q = IsInf(m) y = Where(q, x, m)", {"Gather": 1, "Where": 1}),
    "a mask beside a bias": (
        ROW + "m = Where(c, t, low) q = IsInf(m) b = Clip(m, floor) r = Where(q, m, b) y = Neg(r)",
        {"Gather": 1, "Where": 1, "Neg": 1},
    ),
    "a gate of a table": (
        ROW + "s = Sigmoid(x) g = Sub(s, three) p = Mul(g, t) q = IsInf(p) b = Clip(p, floor) r = Where(q, p, b) y = Neg(r)",
        {"Gather": 1, "Sigmoid": 1, "Sub": 1, "Mul": 1, "Neg": 1},
    ),
    "a part of an angle": (
        "s, u = Split<axis = 1>(x, sizes) k = Sin(u) b = Clip(k, close) y = Sub(s, b)",
        {"Split": 1, "Sin": 1, "Sub": 1},
    ),
    "the other way": (ROW + "m = Where(c, low, t) b = Clip(m, floor) y = Neg(b)", {"Gather": 1, "Where": 1, "Neg": 1}),
}
KEPT = {
    "an input": "b = Clip(x, floor) y = Neg(b)",
    "within the table": ROW + "b = Clip(t, close) y = Neg(b)",
    "above the table": ROW + "b = Clip(t, floor, zero) y = Neg(b)",
    "a table beside an input": ROW + "u = Add(t, x) b = Clip(u, floor) y = Neg(b)",
    "a sum that overflows": "m = Where(c, zero, low) u = Add(m, low) q = IsInf(u) y = Where(q, x, u)",
    "an operand of a gate": ROW + "s = Sigmoid(x) g = Mul(s, x) b = Clip(g, floor) y = Neg(b)",
    "a part of an input": "s, u = Split<axis = 1>(x, sizes) b = Clip(u, floor) y = Sub(s, b)",
    "a quotient": ROW + "u = Div(t, zero) q = IsInf(u) y = Where(q, x, u)",
    "a mask whose bias is bounded": ROW + "m = Where(c, t, low) b = Clip(m, close) y = Neg(b)",
}


def feeds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 3)).astype(np.float32)
    return {"i": np.array([0, 1, 1, 0]), "c": rng.random((4, 3)) < 0.5, "x": x}


@pytest.mark.parametrize(("body", "left"), WITHOUT.values(), ids=WITHOUT)
def test_bounds_that_change_nothing_are_removed(body: str, left: dict[str, int]) -> None:
    model = parsed(body, INPUTS, "float[A, B] y", WEIGHTS)
    _, written = simplified(model)
    assert operators(written) == left
    np.testing.assert_array_equal(run(written, feeds())[0], run(model, feeds())[0])


@pytest.mark.parametrize("body", KEPT.values(), ids=KEPT)
def test_bounds_that_may_change_something_stay(body: str) -> None:
    model = parsed(body, INPUTS, "float[A, B] y", WEIGHTS)
    _, written = simplified(model)
    kinds = {"Clip", "IsInf"}
    assert {k: n for k, n in operators(written).items() if k in kinds} == {
        k: n for k, n in operators(model).items() if k in kinds
    }
    np.testing.assert_array_equal(run(written, feeds())[0], run(model, feeds())[0])


@example(np.zeros((2, 3), np.float32), np.nan, "Clip")
@example(np.zeros((2, 3), np.float32), np.inf, "Clip")  # whose upper bound is the largest finite number, by default
@given(
    hnp.arrays(np.float32, (2, 3), elements=st.floats(width=32)), st.floats(width=32), st.sampled_from(["Clip", "IsInf", "IsNaN"])
)
def test_a_model_computes_the_same_for_any_table(table: np.ndarray, bound: float, operator: str) -> None:
    """Also with infinities, NaN, and numbers whose sum overflows."""
    tail = "y = Clip(m, bound)" if operator == "Clip" else f"q = {operator}(m) y = Where(q, zero, m)"
    model = parsed(ROW + "u = Add(t, t) m = Where(c, u, bound) " + tail, INPUTS, "float[A, B] y", "float zero = {0}")
    for name, array in (("table", table), ("bound", np.array(bound, np.float32))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    _, written = simplified(model)
    np.testing.assert_array_equal(run(written, feeds())[0], run(model, feeds())[0])


@pytest.mark.parametrize(
    "tail", ["q = IsNaN(g) y = Where(q, zero, g)", "q = IsInf(g) y = Where(q, zero, g)", "y = Clip(g, floor)"]
)
def test_a_gate_may_be_nan(tail: str) -> None:
    model = parsed(ROW + "s = Sigmoid(x) g = Mul(s, t) " + tail, INPUTS, "float[A, B] y", WEIGHTS)
    _, written = simplified(model)
    x = np.array([[np.nan, np.inf, -np.inf], [0, 1, -1], [np.nan, 2, 3], [4, 5, 6]], np.float32)
    np.testing.assert_array_equal(run(written, feeds() | {"x": x})[0], run(model, feeds() | {"x": x})[0])
    assert ("IsNaN" in operators(written)) == ("IsNaN" in tail) and not {"IsInf", "Clip"} & set(operators(written))


def test_a_table_that_is_too_large_to_gather_in_advance_has_bounds() -> None:
    places = ", ".join(["0", "1"] * 300)
    weights = f"float[2, 4] table = {{1, 2, 3, 4, 5, 6, 7, 8}}, float floor = {{-1e30}}, int64[600] i = {{{places}}}"
    model = parsed("t = Gather(table, i) b = Clip(t, floor) y = Add(x, b)", "float[600, 4] x", "float[600, 4] y", weights)
    assert operators(simplified(model)[1]) == {"Gather": 1, "Add": 1}


@pytest.mark.parametrize("inside", [0.0, 0.01], ids=["at the ends", "inside"])
@pytest.mark.parametrize("operator", _RANGES)
def test_the_range_of_an_operator_is_reached_and_not_left(operator: str, inside: float) -> None:
    """Bounds at its ends change nothing, and bounds inside do."""
    least, most = _RANGES[operator]
    weights = f"float least = {{{least + inside}}}, float most = {{{most - inside}}}"
    model = parsed(f"s = {operator}(x) b = Clip(s, least, most) y = Neg(b)", "float[N, 3] x", "float[A, B] y", weights)
    _, written = simplified(model)
    assert ("Clip" in operators(written)) == bool(inside)
    x = np.linspace(-20, 20, 999, dtype=np.float32).reshape(333, 3) * np.array([1, 0, -1], np.float32) + np.float32(np.pi / 2)
    np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])
    unbounded = run(parsed(f"y = {operator}(x)", "float[N, 3] x", "float[A, B] y"), {"x": x})[0]
    assert unbounded.min() <= least + 0.01 and unbounded.max() >= most - 0.01
