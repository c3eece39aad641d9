"""Sizes that cannot be -1 are joined without a comparison, and those that can be are compared in each run."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.simplification.test_simplify import operators, parsed, run, simplified

WEIGHTS = (
    "int64[1] zero = {0}, int64[1] rest = {-1}, int64[1] two = {2}, int64[3] rests = {-1, -1, -1}, int64[3] ones = {1, 1, 1}"
)
CHOSEN = " e = Equal(t, rests) c = Where(e, ones, t) y = Expand(x, c)"
BATCH = "s = Shape(v) b = Gather(s, zero) "


def expanded(body: str, inputs: str = "float[1, 1, 6] x, float[n, 4] v") -> onnx.ModelProto:
    return parsed(body + CHOSEN, inputs, "float[A, B, C] y", WEIGHTS)


def test_the_sizes_of_expand_are_joined() -> None:
    """As TorchScript writes x.expand(len(v), -1, -1)."""
    model = expanded(BATCH + "t = Concat<axis = 0>(b, rest, rest)")
    written = simplified(model)[1]
    assert operators(written) == {"Shape": 1, "Gather": 1, "Concat": 1, "Expand": 1}
    for rows in (1, 3):
        feeds = {"x": np.arange(6, dtype=np.float32).reshape(1, 1, 6), "v": np.zeros((rows, 4), np.float32)}
        np.testing.assert_array_equal(run(written, feeds)[0], run(model, feeds)[0])


def test_sizes_without_minus_one_are_those_that_are_compared() -> None:
    model = expanded(BATCH + "t = Concat<axis = 0>(b, two, two)", "float[1, 2, 2] x, float[n, 4] v")
    assert operators(simplified(model)[1]) == {"Shape": 1, "Gather": 1, "Concat": 1, "Expand": 1}


@pytest.mark.parametrize("size", ["d = Sub(b, two)", "d = Identity(k)"], ids=["a difference", "an input"])
def test_a_number_that_may_be_minus_one_is_compared(size: str) -> None:
    model = expanded(f"{BATCH} {size} t = Concat<axis = 0>(d, rest, rest)", "float[1, 1, 6] x, float[n, 4] v, int64[1] k")
    assert operators(simplified(model)[1])["Where"] == 1
