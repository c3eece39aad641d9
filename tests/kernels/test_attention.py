"""Attention equals its definition for all sizes, masks, group counts and layouts, on every instruction set."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.conftest import drawn, node, opened


def truth(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    mask: np.ndarray | float,
    scale: float,
    cap: float,
    sink: np.ndarray | float = -np.inf,
) -> np.ndarray:
    """The definition in float64. Operands are [batch, heads, length, size], and the sink is [1, heads, 1, 1]."""
    repeats = query.shape[1] // max(1, key.shape[1])
    q, k, v = query.astype(np.float64), *(np.repeat(a.astype(np.float64), repeats, axis=1) for a in (key, value))
    scores = scale * (q @ k.swapaxes(-1, -2))
    scores = (cap * np.tanh(scores / cap) if cap else scores) + mask
    if scores.shape[-1] == 0:
        return np.zeros((*q.shape[:3], v.shape[3]))
    with np.errstate(invalid="ignore"):
        largest = np.maximum(scores.max(axis=-1, keepdims=True), sink)
        e = np.exp(scores - largest)
        return (e / (e.sum(axis=-1, keepdims=True) + np.exp(sink - largest))) @ v


def behind(x: np.ndarray) -> np.ndarray:
    """The heads side by side: [batch, length, heads · size]."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


def test_attention_is_its_definition(library: Path, isa: str) -> None:
    lengths = st.sampled_from([0, 1, 2, 5, 13, 14, 31, 64, 100, 257])
    keys = st.sampled_from([0, 1, 3, 15, 16, 17, 33, 100, 255, 256, 257, 600])
    sizes = st.sampled_from([0, 1, 3, 4, 16, 31, 64, 80, 257, 300])
    values = st.sampled_from([0, 1, 8, 17, 32, 33, 64])
    mask_axes = st.one_of(st.none(), st.lists(st.booleans(), min_size=0, max_size=4))

    @settings(max_examples=60)
    @given(
        *(st.integers(0, 2), st.integers(1, 2), st.integers(1, 3), lengths, keys, sizes, values, mask_axes),
        *(st.sampled_from([0.0, 0.7]), st.booleans(), st.tuples(st.booleans(), st.booleans(), st.booleans()), st.integers(0, 9)),
    )
    def holds(
        batch: int, groups: int, repeats: int, length: int, count: int, size: int, wide: int,
        axes: list[bool] | None, cap: float, sunk: bool, apart: tuple[bool, bool, bool], seed: int,
    ) -> None:  # fmt: skip
        heads = groups * repeats
        query, key = drawn(seed, batch, heads, length, size), drawn(seed + 1, batch, groups, count, size)
        value = drawn(seed + 2, batch, groups, count, wide)
        shape = (batch, heads, length, count)
        arrays = {"query": query, "key": key, "value": value}
        arrays = {name: array if by else behind(array) for (name, array), by in zip(arrays.items(), apart, strict=True)}
        mask = np.zeros(())
        if axes is not None:
            full = shape[4 - len(axes) :]
            mask = arrays["mask"] = drawn(
                seed + 3, *(size if kept else 1 for size, kept in zip(full, axes, strict=True)), high=4.0
            )
        sink = -np.inf if not sunk else drawn(seed + 4, 1, heads, 1, 1, high=4.0)
        arrays |= {"sink": sink} if sunk else {}
        names = ", ".join(name if name in arrays else "" for name in ("query", "key", "value", "mask", "sink")).rstrip(", ")
        call = f"Attention <scale = 0.4, softcap = {cap}, heads = {heads}, repeats = {repeats}> ({names})"
        (result,) = opened(node(call, arrays), library, isa)(arrays)
        expected = truth(query, key, value, mask, 0.4, cap, sink)
        np.testing.assert_allclose(result, expected if apart[0] else behind(expected), rtol=0, atol=3e-6)

    holds()


@pytest.mark.parametrize("guarded", [0, 1])
def test_masked_keys_have_no_weight_and_a_fully_masked_row_is_nan_or_zero(library: Path, isa: str, guarded: int) -> None:
    query, key, value = drawn(0, 1, 2, 9, 16), drawn(1, 1, 2, 300, 16), drawn(2, 1, 2, 300, 24)
    mask = np.zeros((1, 1, 9, 300), np.float32)
    mask[0, 0, 1] = -np.inf  # all
    mask[0, 0, 2, :290] = -np.inf  # the whole first block
    mask[0, 0, 3, 1:] = -np.inf
    mask[0, 0, 4] = np.finfo(np.float32).min  # the least finite number throughout: all keys have the same weight
    arrays = {"query": query, "key": key, "value": value, "mask": mask}
    (result,) = opened(node(f"Attention <scale = 0.25, guarded = {guarded}> (query, key, value, mask)", arrays), library, isa)(
        arrays
    )
    expected = truth(query, key, value, mask, 0.25, 0.0)
    assert np.isnan(expected[:, :, 1]).all()
    np.testing.assert_allclose(result, np.nan_to_num(expected) if guarded else expected, rtol=0, atol=1e-6)


def test_a_sink_takes_the_weight_of_a_fully_masked_row(library: Path, isa: str) -> None:
    for count in (9, 300):
        query, key, value = drawn(0, 1, 2, 9, 16), drawn(1, 1, 2, count, 16), drawn(2, 1, 2, count, 24)
        mask, sink = np.zeros((9, count), np.float32), np.array([-80.0, 80.0], np.float32).reshape(1, 2, 1, 1)
        mask[1], mask[2] = -np.inf, np.finfo(np.float32).min
        arrays = {"query": query, "key": key, "value": value, "mask": mask, "sink": sink}
        (result,) = opened(node("Attention <scale = 0.25> (query, key, value, mask, sink)", arrays), library, isa)(arrays)
        assert not result[:, :, 1:3].any()
        np.testing.assert_allclose(result, truth(query, key, value, mask, 0.25, 0.0, sink), rtol=0, atol=1e-6)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_a_nan_or_infinite_score_makes_its_row_nan(library: Path, isa: str, odd: float) -> None:
    query, key, value = drawn(0, 1, 1, 3, 8), drawn(1, 1, 1, 300, 8), drawn(2, 1, 1, 300, 8)
    mask = np.zeros((3, 300), np.float32)
    mask[0, 0], mask[1, 299] = odd, odd
    arrays = {"query": query, "key": key, "value": value, "mask": mask}
    (result,) = opened(node("Attention <scale = 0.25> (query, key, value, mask)", arrays), library, isa)(arrays)
    assert np.isnan(result[0, 0, :2]).all() and not np.isnan(result[0, 0, 2]).any()


def test_large_scores_do_not_overflow(library: Path, isa: str) -> None:
    query, key, value = drawn(0, 1, 1, 20, 32, high=100), drawn(1, 1, 1, 700, 32, high=100), drawn(2, 1, 1, 700, 8)
    arrays = {"query": query, "key": key, "value": value}
    (result,) = opened(node("Attention <scale = 1.0> (query, key, value)", arrays), library, isa)(arrays)
    np.testing.assert_allclose(result, truth(query, key, value, 0.0, 1.0, 0.0), rtol=0, atol=2e-2)


def test_attention_is_the_same_bit_by_bit_on_any_number_of_threads_and_in_concurrent_runs(library: Path, isa: str) -> None:
    arrays = {"query": drawn(0, 2, 4, 150, 32), "key": drawn(1, 2, 2, 300, 32), "value": drawn(2, 2, 2, 300, 32)}
    model = node("Attention <scale = 0.2, repeats = 2> (query, key, value)", arrays)
    runs = [opened(model, library, isa, threads) for threads in (1, 2)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda i: runs[i % 2](arrays)[0].tobytes(), range(12)))
    assert len(set(results)) == 1


SHAPES: dict[str, tuple[str, tuple[tuple[int, ...], ...], str]] = {
    "two axes": ("", ((4, 8), (1, 2, 4, 8), (1, 2, 4, 8)), "query is [4, 8], and must have 3 or 4 axes"),
    "heads unsaid": ("", ((1, 4, 8), (1, 4, 8), (1, 4, 8)), "query has 3 axes, and so the attribute heads must be given"),
    "uneven heads": (
        ", heads = 3",
        ((1, 4, 8), (1, 4, 8), (1, 4, 8)),
        "query is [1, 4, 8], and its last axis no multiple of 3 heads",
    ),
    "other heads": (", heads = 4", ((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)), "query is [1, 2, 4, 8], and must have 4 heads"),
    "other groups": (", repeats = 2", ((1, 4, 4, 8), (1, 4, 4, 8), (1, 4, 4, 8)), "key is [1, 4, 4, 8], and must have 2 heads"),
    "odd groups": (", repeats = 2", ((1, 3, 4, 8), (1, 1, 4, 8), (1, 1, 4, 8)), "its heads are no multiple of repeats, 2"),
    "another size": ("", ((1, 2, 4, 8), (1, 2, 4, 7), (1, 2, 4, 8)), "they do not fit"),
    "another batch": ("", ((2, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)), "they do not fit"),
    "fewer values": ("", ((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 3, 8)), "they do not fit"),
    "another mask": (
        "",
        ((1, 2, 4, 8), (1, 2, 5, 8), (1, 2, 5, 8), (4, 4)),
        "mask is [4, 4], and must broadcast to [1, 2, 4, 5]",
    ),
    "another sink": (
        "",
        ((1, 2, 4, 8), (1, 2, 5, 8), (1, 2, 5, 8), (4, 5), (2,)),
        "sink is [2], and must be [1, 2, 1, 1]",
    ),
    "five axes": ("", ((1, 2, 4, 8), (1, 2, 5, 8), (1, 2, 5, 8), (1, 1, 1, 1, 1)), "mask is [1, 1, 1, 1, 1], and must broadcast"),
}


@pytest.mark.parametrize("case", SHAPES)
def test_wrong_shapes_are_errors(library: Path, case: str) -> None:
    attributes, shapes, message = SHAPES[case]
    names = ("query", "key", "value", "mask", "sink")
    arrays = {name: np.zeros(shape, np.float32) for name, shape in zip(names, shapes, strict=False)}
    run = opened(node(f"Attention <scale = 1.0{attributes}> ({', '.join(arrays)})", arrays), library)
    with pytest.raises(Exception, match="INVALID_ARGUMENT") as error:
        run(arrays)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("heads = 2", "the attribute scale must be given"),
        ("scale = 1.0, softcap = -1.0", "softcap must not be below 0"),
        ("scale = 1.0, repeats = 0", "repeats is 0, and must be 1 or more"),
        ("scale = 1.0, heads = 3, repeats = 2", "heads is 3, and no multiple of repeats, 2"),
        ("scale = 1.0, heads = -2", "heads is -2"),
    ],
)
def test_wrong_attributes_are_errors(library: Path, attributes: str, message: str) -> None:
    x = drawn(0, 1, 2, 3, 4)
    with pytest.raises(Exception, match="Exception during initialization") as error:
        opened(node(f"Attention <{attributes}> (x, x, x)", {"x": x}), library)
    assert f"onnx_subgraph.Attention: {message}" in str(error.value)
