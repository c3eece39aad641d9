"""The distance of an array from the truth: finite where both have numbers, infinite where only one has."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from onnx_subgraph.verification.rounding import distance

TRUTH = np.array([2.0, -0.5, 0.25])


NORMAL = st.floats(1e-30, 1e30) | st.floats(-1e30, -1e-30) | st.just(0.0)


@given(arrays(np.float64, st.integers(0, 9), elements=NORMAL))
def test_storing_the_truth_is_off_by_one_rounding(exact: np.ndarray) -> None:
    assert distance(exact.astype(np.float32), exact) <= 2.0**-24


def test_another_shape_is_infinitely_far() -> None:
    assert distance(TRUTH.astype(np.float32), TRUTH[None]) == math.inf


@pytest.mark.parametrize("lost", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", range(3))
def test_a_missing_number_is_infinitely_far(lost: float, at: int) -> None:
    array = TRUTH.astype(np.float32)
    array[at] = lost
    assert distance(array, TRUTH) == math.inf
    assert distance(TRUTH.astype(np.float32), array.astype(np.float64)) == math.inf


def test_the_same_infinity_is_no_distance() -> None:
    beyond = np.array([1.0, 1e39, -math.inf, math.nan])
    assert distance(np.array([1.0, math.inf, -math.inf, math.nan], np.float32), beyond) == 0.0
    assert distance(np.array([1.0, -math.inf, -math.inf, math.nan], np.float32), beyond) == math.inf


def test_the_unit_is_the_largest_value_of_the_truth() -> None:
    assert distance(np.array([2.0, -0.5, 0.5]), TRUTH) == 0.125


def test_for_a_truth_of_zero_the_distance_is_absolute() -> None:
    assert distance(np.array([0.0, 0.5]), np.zeros(2)) == 0.5
