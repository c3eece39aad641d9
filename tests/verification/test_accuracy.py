"""How large elements are told apart from the usual ones."""

from __future__ import annotations

import numpy as np
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
