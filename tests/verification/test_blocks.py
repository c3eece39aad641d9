"""Laws of blocks: what is computed block by block is what numpy computes of the whole, in less memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph.verification import blocks
from onnx_subgraph.verification.blocks import Array, elementwise, spread_of, sum_of_squares
from onnx_subgraph.verification.bounds import FLOOR, JUMP, MOST_JUMPS, Noise, bound
from onnx_subgraph.verification.judge import compare

NUMBERS = st.sampled_from([0.0, 1.0, -2.5, 3e-3, 1e4, 7.0, np.nan, np.inf, -np.inf])
SEVERAL = (3, 4, 1 << 16)
"""Sizes of blocks. The drawn arrays have several blocks of the first two."""
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex64"])
WRONG = st.lists(st.tuples(st.integers(0, 19), NUMBERS), max_size=3)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    size = blocks.BLOCK
    yield
    blocks.BLOCK = size


@DTYPES
@given(values=st.lists(NUMBERS, min_size=1, max_size=20), size=st.sampled_from(SEVERAL))
def test_a_spread_is_that_of_all_finite_numbers(dtype: str, values: list[float], size: int) -> None:
    blocks.BLOCK = size
    array = np.asarray(values).astype(dtype)
    spread = spread_of(array)
    known = array[np.isfinite(array)].astype(np.complex128 if dtype == "complex64" else np.float64).view(np.float64)
    assert spread.count == known.size
    assert spread.squares == pytest.approx(float(np.sum(known**2)))
    assert spread.deviation == pytest.approx(float(np.std(known)) if known.size else 0.0)
    assert (spread.least, spread.largest) == ((known.min(), known.max()) if known.size else (0.0, 0.0))


@given(values=st.lists(st.floats(-9, 9), max_size=20), size=st.sampled_from(SEVERAL), wide=st.booleans())
def test_a_function_of_elements_is_computed_of_each(values: list[float], size: int, wide: bool) -> None:
    blocks.BLOCK = size
    array = np.asarray(values).reshape((len(values), 1) if wide else -1)
    assert np.array_equal(elementwise(lambda one, other, two: one * other + two, array, array, np.asarray(2.0)), array**2 + 2)
    assert sum_of_squares(array) == pytest.approx(float(np.sum(array**2)))


@DTYPES
@given(seed=st.integers(0, 10_000), wrong=WRONG, size=st.sampled_from(SEVERAL))
def test_a_finding_is_the_same_in_any_blocks(dtype: str, seed: int, wrong: list[tuple[int, float]], size: int) -> None:
    """Also where elements jump, or are NaN or infinite, in a run with noise or in the candidate."""
    rng = np.random.default_rng(seed)

    def near(array: Array) -> Array:
        moved = np.where(np.isfinite(array), array, 1.0) * (1 + 1e-3 * rng.standard_normal(array.shape))
        for at in rng.integers(0, array.size, rng.integers(0, 3)):
            moved[at] = rng.choice([5.0, np.nan, np.inf])
        return moved.astype(dtype)

    reference = near(rng.standard_normal(20))
    draw, candidate = near(reference), near(reference)
    for at, number in wrong:
        candidate[at] = number
    candidate = reference.copy() if seed % 5 == 0 else candidate
    found = []
    for blocks.BLOCK in (1 << 16, size):
        noise = Noise()
        noise.add(reference, draw)
        found.append((compare(reference, candidate, bound(reference, noise)), noise))
    (whole, noise), (parts, other) = found
    assert (whole.worst, whole.problem, whole.compared, whole.jumps) == (parts.worst, parts.problem, parts.compared, parts.jumps)
    assert (whole.error, whole.bound) == pytest.approx((parts.error, parts.bound))
    assert (noise.flips, noise.loudest) == pytest.approx((other.flips, other.loudest))


def test_a_comparison_takes_no_memory_of_the_size_of_the_output() -> None:
    reference = np.random.default_rng(0).standard_normal(1 << 22).astype(np.float32)
    candidate, allowed = reference + np.float32(1e-7), bound(reference)
    tracemalloc.start()
    found = compare(reference, candidate, allowed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.equal
    assert found.compared == reference.size
    assert peak < 2 * reference.size  # two bytes an element; one array of float64 takes eight


@pytest.mark.parametrize("size", SEVERAL)
def test_elements_that_jump_are_left_out_of_all_blocks(size: int) -> None:
    reference = np.linspace(-3.0, 3.0, 64)
    allowed = replace(bound(reference), element=np.full(64, 1e-3), aggregate=1e-4, jumps=2 / 64, furthest=6.0)
    candidate = reference.copy()
    candidate[[2, 30]] += [5e-4, -2.0]
    blocks.BLOCK = size
    found = compare(reference, candidate, allowed)
    assert (found.equal, found.worst, found.jumps) == (True, (2,), 1)
    assert found.error == pytest.approx(5e-4)
    candidate[50:53] -= [2.0, 2.5, 2.0]
    found = compare(reference, candidate, allowed)
    assert (found.equal, found.worst, found.jumps) == (False, (51,), 0), "more than two are no jumps"


@given(
    seed=st.integers(0, 10_000), far=st.sampled_from([0.9, 1.1]), usual=st.sampled_from([1e-9, 1e-6, 1e-3]), last=st.booleans()
)
def test_an_element_jumps_that_moves_further_than_nearly_all_others(seed: int, far: float, usual: float, last: bool) -> None:
    """JUMP times more than they move, and than kernels differ anyway."""
    rng = np.random.default_rng(seed)
    reference, moved = rng.standard_normal(80).astype(np.float32), usual * rng.random(80)
    at = -1 if last else 0
    floor = FLOOR * np.finfo(np.float32).eps * (abs(reference[at]) + np.sqrt(np.mean(reference**2)))
    moved[at] = far * JUMP * (np.quantile(np.delete(moved, at), 1.0 - MOST_JUMPS) + floor)
    noise = Noise()
    noise.add(reference, reference + moved)
    limit = JUMP * (np.quantile(moved, 1.0 - MOST_JUMPS) + floor)
    assert (noise.flips > 0) == (moved[at] > limit)
