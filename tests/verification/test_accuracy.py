"""How large elements are told apart from the usual ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph.verification import accuracy

SIZES = st.lists(st.floats(0, 1e300), min_size=1, max_size=9)


@given(SIZES)
def test_the_median_is_that_of_numpy(sizes: list[float]) -> None:
    assert accuracy._median(np.array(sizes)) == np.median(sizes)


def test_far_larger_elements_are_a_part_of_their_own() -> None:
    exact = np.array([1.0, -2.0, 0.0, 3.0, -1e9])
    usual, large = accuracy.parts_by_size(exact, np.isfinite(exact))
    assert usual.tolist() == [True, True, True, True, False] and large.tolist() == [False] * 4 + [True]


@pytest.mark.parametrize("kind", [object, np.str_])
def test_text_is_compared_for_equality(kind: type) -> None:
    """The text of a number may have more digits in float64. So the fused output is compared with the unfused one."""
    fused, exact = np.array(["0.1", "b"], kind), np.array(["0.1000", "b"], kind)
    assert accuracy.accuracy(fused, fused.copy(), exact).holds
    assert not accuracy.accuracy(fused, None, exact).holds
    assert not accuracy.accuracy(fused, np.array(["0.2", "b"], kind), exact).holds


def test_the_lowest_number_of_a_mask_counts() -> None:
    low = np.finfo(np.float32).min
    exact = np.array([low, 0.0, low], np.float64)
    mask = exact.astype(np.float32)
    assert accuracy.accuracy(mask, mask, exact).holds
    assert accuracy.accuracy(np.array([-np.inf, 0, low], np.float32), mask, exact).holds, "an overflow of a sum of two masks"
    for wrong in (0.0, -1e30, -low, np.nan):
        assert not accuracy.accuracy(np.array([wrong, 0, low], np.float32), mask, exact).holds
    assert accuracy.accuracy(np.zeros(3, np.float32), np.full(3, np.nan, np.float32), exact).holds, (
        "the original has no number there"
    )


def test_an_infinite_number_counts_unless_it_is_an_overflow() -> None:
    exact = np.array([-np.inf, 1.0, 2.0])
    mask = exact.astype(np.float32)
    assert accuracy.accuracy(mask, mask, exact, reads_infinity=True).holds
    for wrong in (-60.0, np.inf, np.nan):
        other = np.array([wrong, 1, 2], np.float32)
        assert not accuracy.accuracy(other, mask, exact, reads_infinity=True).holds
        assert not accuracy.accuracy(other, None, exact, reads_infinity=True).holds
        assert accuracy.accuracy(other, other, exact, reads_infinity=True).holds, "as in the original"
    assert accuracy.accuracy(np.array([-1e9, 1, 2], np.float32), mask, exact).holds


def test_integers_may_be_those_of_the_unfused_graph() -> None:
    exact, unfused = np.array([1, 2, 3]), np.array([1, 2, 4])
    assert all(accuracy.accuracy(fused, unfused, exact).holds for fused in (exact, unfused))
    assert not accuracy.accuracy(unfused, None, exact).holds
    assert not accuracy.accuracy(np.array([1, 3, 4]), unfused, exact).holds


def test_an_overflow_may_stay_as_it_is_in_the_unfused_graph() -> None:
    exact, unfused = np.array([100.0, 0.5, 2.0]), np.array([np.inf, np.nan, 2], np.float32)
    assert accuracy.accuracy(unfused, unfused, exact).holds and accuracy.accuracy(unfused, unfused, exact).compared == 1
    assert accuracy.accuracy(exact.astype(np.float32), unfused, exact).holds, "the truth is right as well"
    for wrong in ([np.nan, 0.5, 2], [100, np.inf, 2], [-np.inf, np.nan, 2], [np.inf, np.nan, 2.1], [90, np.nan, 2]):
        assert not accuracy.accuracy(np.array(wrong, np.float32), unfused, exact).holds
    assert not accuracy.accuracy(unfused, None, exact).holds


def test_no_number_counts_unless_it_is_an_overflow() -> None:
    exact = np.array([np.nan, 1.0, 2.0])
    undefined = exact.astype(np.float32)
    assert accuracy.accuracy(undefined, undefined, exact, undefined=True).holds
    for wrong in (0.0, np.inf, -np.inf):
        other = np.array([wrong, 1, 2], np.float32)
        assert not accuracy.accuracy(other, undefined, exact, undefined=True).holds
        assert not accuracy.accuracy(other, None, exact, undefined=True).holds
        assert accuracy.accuracy(other, other, exact, undefined=True).holds, "as in the original"
        assert accuracy.accuracy(undefined, other, exact, undefined=True).holds, "as in float64"
        assert accuracy.accuracy(other, undefined, exact).holds
