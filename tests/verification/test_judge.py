"""The judge on arrays alone: the errors that it must find and the differences that it must allow."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_subgraph.verification import judge
from onnx_subgraph.verification.bounds import Bound, Noise, bound
from onnx_subgraph.verification.judge import compare, compare_all

DTYPES = [np.float32, np.float16, np.float64, ml_dtypes.bfloat16]


def output(seed: int, shape: tuple[int, ...] = (4, 33), dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def noise_of(reference: np.ndarray, relative: float, seed: int = 1000, draws: int = 3) -> Noise:
    """Noise that is independent of an output of another seed."""
    rng, noise = np.random.default_rng(seed), Noise()
    for _ in range(draws):
        moved = reference.astype(np.float64) * (1 + relative * rng.standard_normal(reference.shape))
        noise.add(reference.astype(np.float64), moved)
    return noise


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_output_is_equal_without_any_noise(dtype: type) -> None:
    r = output(0, dtype=dtype)
    assert compare(r, r.copy(), bound(r)).equal


@given(seed=st.integers(0, 999), at=st.integers(0, 131), over=st.floats(1.001, 1e6), sign=st.sampled_from([-1, 1]))
def test_one_element_over_its_bound_is_found_and_named(seed: int, at: int, over: float, sign: int) -> None:
    r = output(seed).astype(np.float64)
    allowed = bound(r, noise_of(r, 1e-6))
    index = np.unravel_index(at, r.shape)
    planted = r.copy()
    planted[index] += sign * over * allowed.element[index]
    finding = compare(r, planted, allowed)
    assert not finding.equal
    assert finding.worst == index
    assert finding.error > finding.bound


@given(seed=st.integers(0, 999), factor=st.floats(1e-4, 0.5))
def test_a_small_scale_over_all_elements_is_found(seed: int, factor: float) -> None:
    """An error too small for any one element's bound is found in the mean of many, here down to a tenth of the noise's bound."""
    r = output(seed, (64, 64)).astype(np.float64)
    assert not compare(r, r * (1 + factor), bound(r, noise_of(r, 2e-5))).equal


@settings(max_examples=50)
@given(seed=st.integers(0, 999), relative=st.sampled_from([1e-7, 1e-6, 1e-4]))
def test_a_difference_like_the_noise_is_accepted(seed: int, relative: float) -> None:
    """Rounding in another way, but of the size of the noise, is no difference."""
    r = output(seed)
    other = r * (1 + relative * np.random.default_rng(seed + 1).standard_normal(r.shape)).astype(np.float32)
    assert compare(r, other, bound(r, noise_of(r, relative, seed + 2))).equal


@given(seed=st.integers(0, 999))
def test_a_chaotic_output_may_exchange_its_values_and_nothing_else(seed: int) -> None:
    """Of few large values in silence, no draw finds all places where they can be."""
    rng = np.random.default_rng(seed)
    r, noise = np.ones(10_000), Noise()
    r[rng.choice(r.size, 20, replace=False)] = 101.0
    for _ in range(4):
        noise.add(r, rng.permutation(r))
    allowed = bound(r, noise)
    assert compare(r, rng.permutation(r), allowed).equal
    assert not compare(r, r + 101.0, allowed).equal


def exchanged(rows: np.ndarray, pairs: int, rng: np.random.Generator) -> np.ndarray:
    """The rows with a few neighbours exchanged, and every element moved by a rounding."""
    order = np.arange(len(rows))
    for first in 2 * rng.choice(len(rows) // 2, pairs, replace=False):
        order[[first, first + 1]] = order[[first + 1, first]]
    return rows[order] * (1 + 1e-7 * rng.standard_normal(rows.shape))


@given(seed=st.integers(0, 999))
def test_rows_that_a_detector_selects_may_change_places_as_often_as_the_noise_exchanges_them(seed: int) -> None:
    """Scores that are nearly equal: the noise exchanges three pairs of 300 rows, and a candidate may exchange six others."""
    rng = np.random.default_rng(seed)
    r, noise = rng.standard_normal((300, 6)), Noise()
    for _ in range(4):
        noise.add(r, exchanged(r, 3, rng))
    allowed = bound(r, noise)
    found = compare(r, exchanged(r, 6, rng), allowed)
    assert found.equal and found.jumps == 6 * 2 * 6
    assert not compare(r, exchanged(r, 7, rng), allowed).equal
    assert not compare(r, r * (1 + 3e-5), allowed).equal, "what does not jump is held to the small noise of the others"
    beyond = exchanged(r, 3, rng)
    beyond[0] += np.ptp(r) * 1.1
    assert not compare(r, beyond, allowed).equal, "what jumps stays in the range of the output"


@given(seed=st.integers(0, 999), share=st.floats(1e-3, 1e3))
def test_an_output_of_one_number_is_not_chaotic(seed: int, share: float) -> None:
    r = output(seed, (1,)).astype(np.float64)
    noise = noise_of(r, share)
    assert bound(r, noise).aggregate <= 4 * noise.loudest


@given(seed=st.integers(0, 999), tolerance=st.floats(1e-6, 1e-1))
def test_rtol_and_atol_replace_the_measured_bound(seed: int, tolerance: float) -> None:
    r = output(seed).astype(np.float64)
    loud = noise_of(r, 10.0)
    allowed = bound(r, loud, rtol=tolerance, atol=0.0)
    assert np.allclose(allowed.element, tolerance * np.abs(r))
    assert compare(r, r * (1 + 0.5 * tolerance), allowed).equal
    assert not compare(r, r * (1 + 2.0 * tolerance), allowed).equal


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_non_finite_values_are_allowed_only_where_the_reference_has_them(value: float, dtype: type) -> None:
    r = output(0, dtype=dtype)
    planted = r.copy()
    planted[1, 2] = value
    assert "[1, 2]" in compare(r, planted, bound(r)).problem
    assert "[1, 2]" in compare(planted, r, bound(planted)).problem
    assert compare(planted, planted.copy(), bound(planted)).equal


def test_infinities_of_opposite_sign_differ() -> None:
    r = np.array([1.0, np.inf], np.float32)
    assert not compare(r, np.array([1.0, -np.inf], np.float32), bound(r)).equal


def test_shape_and_dtype_are_compared() -> None:
    r = output(0)
    assert "shape" in compare(r, r.reshape(2, -1), bound(r)).problem
    assert "dtype" in compare(r, r.astype(np.float64), bound(r)).problem


def test_integers_are_equal_or_different() -> None:
    r = np.arange(10)
    one_off = r.copy()
    one_off[3] += 1
    finding = compare(r, one_off, bound(r))
    assert not finding.equal
    assert "1 of 10" in finding.problem


def test_integers_may_change_as_often_as_the_noise_changes_them() -> None:
    """Ties of an argmax: if noise changes a tenth of the elements, a fusion may change at most a fifth."""
    r, noise = np.zeros(10, np.int64), Noise()
    noise.add(r, np.eye(10, dtype=np.int64)[0])
    assert compare(r, np.r_[np.ones(2, np.int64), r[2:]], bound(r, noise)).equal
    assert not compare(r, np.r_[np.ones(3, np.int64), r[3:]], bound(r, noise)).equal


LARGE = np.arange(66) < 33
"""A mask of the first half of an output."""


def joined(noise: float = 0.0, draws: int = 3) -> tuple[np.ndarray, Noise]:
    """An output of large and of small elements, with each half as a part, and the noise of so many draws."""
    r, rng = np.r_[1e3 * output(0, (33,)), output(1, (33,))], np.random.default_rng(2)
    found = Noise(parts=((LARGE, Noise()), (~LARGE, Noise())))
    for _ in range(draws if noise else 0):
        found.add(r, (r * (1 + noise * rng.standard_normal(66))).astype(np.float32))
    return r, found


@pytest.mark.parametrize(("error", "equal"), [(1e-5, True), (1e-3, False)])
def test_a_part_is_held_to_its_own_noise(error: float, equal: bool) -> None:
    r, noise = joined(1e-5)
    allowed = bound(r, noise)
    assert compare(r, r + np.float32(error) * ~LARGE, allowed).equal is equal
    assert compare(r, r + np.float32(1e-3) * LARGE, allowed).equal


@pytest.mark.parametrize(("size", "equal"), [(32, True), (1024, False)])
def test_few_elements_of_a_part_are_not_judged_together(size: int, equal: bool) -> None:
    """In a peaked softmax few elements have all of the noise: a few draws show how far each goes, and not how far they all go."""
    r, peak = output(0, (size,)), np.arange(size) % 10 == 0
    noise = Noise(parts=((np.ones(size, bool), Noise()),))
    for sign in (1, -1):
        noise.add(r, (r + sign * np.float32(1e-4) * peak).astype(np.float32))
    allowed = bound(r, noise)
    assert compare(r, r + np.float32(8e-4) * peak, allowed.parts[0][1]).equal is equal


def test_larger_roundings_widen_the_bounds_of_parts() -> None:
    r, noise = joined()
    allowed, other = bound(r, noise), r + np.float32(1e-6) * ~LARGE
    assert not compare(r, other, allowed).equal
    assert compare(r, other, allowed.times(4.0)).equal


def test_a_part_may_overflow_no_longer() -> None:
    r, noise = joined()
    other = r.copy()
    r[40] = np.inf
    assert compare(r, other, bound(r, noise, fix_overflows=True)).equal
    assert not compare(r, other, bound(r, noise)).equal


def test_an_output_of_parts_must_have_its_shape() -> None:
    r, noise = joined()
    assert "shape" in compare(r, r[:60], bound(r, noise)).problem


def test_strings_and_empty_outputs() -> None:
    words = np.array(["a", "b"], object)
    assert compare(words, words.copy(), bound(words)).equal
    assert not compare(words, np.array(["a", "c"], object), bound(words)).equal
    empty = np.zeros((0, 3), np.float32)
    assert compare(empty, empty, bound(empty)).equal


def test_complex_outputs() -> None:
    r = (output(0) + 1j * output(1)).astype(np.complex64)
    assert compare(r, r.copy(), bound(r)).equal
    assert not compare(r, (r * 1.001).astype(np.complex64), bound(r)).equal
    assert not compare(r, np.where(np.arange(33) == 3, np.nan, r).astype(np.complex64), bound(r)).equal


def test_sequences_and_maps_are_compared_element_by_element() -> None:
    a, b = output(0), output(1)
    mine = {"s": [a, b], "m": {"k": a}, "absent": None}
    allowed = {name: bound(array) for name, array in judge.flatten(mine).items()}
    assert all(finding.equal for finding in compare_all(mine, mine, allowed).values())
    swapped = compare_all(mine, {"s": [b, a], "m": {"k": a}}, allowed)
    assert [name for name, finding in swapped.items() if not finding.equal] == ["s[0]", "s[1]"]
    shorter = compare_all(mine, {"s": [a], "m": {"k": a}}, allowed)
    assert [name for name, finding in shorter.items() if not finding.equal] == ["s[1]"]


def test_a_bound_of_zero_allows_nothing() -> None:
    zeros = np.zeros(3, np.float32)
    assert not compare(zeros, np.array([0, 1e-30, 0], np.float32), Bound(np.zeros(3))).equal


@pytest.mark.parametrize(
    ("dtype", "small"), [(np.float32, 1e-39), (np.float64, 1e-309), (np.float16, 6e-8), (ml_dtypes.bfloat16, 1e-40)]
)
def test_what_is_no_normal_number_may_be_flushed_to_zero(dtype: type, small: float) -> None:
    """So it is for inputs of many magnitudes. In types of 16 bits, the smallest number may be."""
    r = np.array([small, 0, small, 0], dtype)
    assert (r != 0).sum() == 2
    assert compare(r, np.zeros_like(r), bound(r, flushed=True)).equal
    assert not compare(r, np.zeros_like(r), bound(r)).equal
    larger = r * dtype(1000)
    assert not compare(larger, np.zeros_like(r), bound(larger, flushed=True)).equal
