"""Normalizations, Softmax, activations and rotary embeddings equal their definitions at every size, on every instruction set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.conftest import drawn, node, opened
from tests.kernels.truth import ACTIVATIONS

ROWS = st.sampled_from([(), (0,), (1,), (5,), (2, 3), (70,)])
COLUMNS = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 768])


def normalized(x: np.ndarray, axes: int, epsilon: float, centred: bool) -> np.ndarray:
    over = tuple(range(x.ndim - axes, x.ndim))
    d = x - x.mean(axis=over, keepdims=True) if centred else x
    return d / np.sqrt((d * d).mean(axis=over, keepdims=True) + epsilon)


@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm", "AddLayerNorm", "AddRMSNorm"])
def test_a_normalization_is_its_definition(library: Path, isa: str, name: str) -> None:
    centred, adds = "Layer" in name, name.startswith("Add")

    @settings(max_examples=30)
    @given(ROWS, COLUMNS, st.sampled_from([1, 2]), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 9))
    def holds(rows: tuple[int, ...], columns: int, axes: int, scaled: bool, shifted: bool, both: bool, seed: int) -> None:
        last = (columns,) if axes == 1 else (2, columns)
        every = {"x": drawn(seed, *rows, *last) + 3, "other": drawn(seed + 1, *rows, *last)}
        every |= {"scale": drawn(seed + 2, *last), "shift": drawn(seed + 3, *last)}
        names = [
            "x",
            *(["other"] if adds else []),
            *(["scale"] if scaled else ['""']),
            *(["shift"] if centred and shifted else []),
        ]
        arrays = {name: every[name] for name in names if name != '""'}
        outputs = "y, sum" if adds and both else "y"
        written = ", ".join(f"-{axis}" for axis in range(axes, 0, -1))
        call = f"{name} <axes = [{written}], epsilon = 0.001> ({', '.join(names)})"
        results = opened(node(call, arrays, outputs), library, isa)(arrays)
        wide = {name: array.astype(np.float64) for name, array in arrays.items()}
        added = wide["x"] + wide.get("other", 0.0)
        if results[0].size:
            expected = normalized(added, axes, 0.001, centred) * wide.get("scale", 1.0) + wide.get("shift", 0.0)
            np.testing.assert_allclose(results[0], expected, rtol=0, atol=4e-5 if centred and columns == 2 else 2e-5)
        assert results[0].shape == added.shape
        if outputs == "y, sum":
            np.testing.assert_array_equal(results[1], arrays["x"] + arrays["other"])

    holds()


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize(
    "shape", [(), (1,), (7,), (1, 7), (6, 1), (6, 7), (3, 1, 1), (3, 1, 7), (3, 6, 1), (3, 6, 7), (2, 1, 6, 7)]
)
def test_a_shift_is_added_for_every_broadcastable_shape(library: Path, isa: str, shape: tuple[int, ...], axes: int) -> None:
    arrays = {"x": drawn(0, 2, 3, 6, 7), "shift": drawn(1, *shape, high=5.0)}
    written = ", ".join(f"-{axis}" for axis in range(axes, 0, -1))
    (result,) = opened(node(f'LayerNorm <axes = [{written}], epsilon = 0.001> (x, "", shift)', arrays), library, isa)(arrays)
    expected = normalized(arrays["x"].astype(np.float64), axes, 0.001, True) + arrays["shift"]
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-5)


def test_softmax_is_its_definition(library: Path, isa: str) -> None:
    run = {}

    @settings(max_examples=40)
    @given(ROWS, COLUMNS, st.sampled_from([1.0, 30.0, 1e4]), st.integers(0, 9))
    def holds(rows: tuple[int, ...], columns: int, high: float, seed: int) -> None:
        x = drawn(seed, *rows, columns, high=high)
        if x.ndim not in run:
            run[x.ndim] = opened(node("Softmax <axis = -1> (x)", {"x": x}), library, isa)
        (result,) = run[x.ndim]({"x": x})
        assert result.shape == x.shape
        if x.size:
            e = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
            # A difference of 87 is rounded by 4e-6, and its exponential by as much; below 1.8e-38 the result is 0.
            np.testing.assert_allclose(result, e / e.sum(axis=-1, keepdims=True), rtol=6e-6, atol=2e-38)

    holds()


def test_only_a_fully_masked_row_of_softmax_is_nan(library: Path, isa: str) -> None:
    for columns in (1, 5, 16, 40):
        x = drawn(0, 4, columns)
        x[1], x[2, 0], x[3, -1] = -np.inf, np.nan, -np.inf
        (result,) = opened(node("Softmax (x)", {"x": x}), library, isa)({"x": x})
        with np.errstate(invalid="ignore"):
            e = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
            np.testing.assert_allclose(result, e / e.sum(axis=-1, keepdims=True), rtol=2e-6)


FUNCTIONS = {"Gelu": "Gelu (x)", "FastGelu": "FastGelu (x)", "Swish": "Swish <alpha = 1.5> (x)"}
ALL = np.concatenate([np.linspace(-30, 30, 200_001), np.geomspace(1e-37, 1e30, 2_000), -np.geomspace(1e-37, 1e30, 2_000)]).astype(
    np.float32
)
WITHIN = {"Gelu": 1.5e-7, "FastGelu": 2.5e-7, "Swish": 2.5e-7, "Tanh": 3e-7, "Sigmoid": 3e-7, "Relu": 0.0, "Identity": 0.0}
"""The error of each, relative to the result; of what is multiplied by x, relative to max(1, |x|). kernels/vector.h says so."""


@pytest.mark.parametrize("name", WITHIN)
def test_functions_are_within_their_documented_error(library: Path, isa: str, name: str) -> None:
    if name in FUNCTIONS:
        (result,) = opened(node(FUNCTIONS[name], {"x": ALL}), library, isa)({"x": ALL})
    else:  # as the activation of a product with a one
        x, w = ALL[:, None], np.ones((1, 1), np.float32)
        call = f'Linear <act = "{name}", alpha = 1.5> (x, w)'
        result = opened(node(call, {"x": x, "w": w}), library, isa)({"x": x, "w": w})[0][:, 0]
    wide = ALL.astype(np.float64)
    expected = ACTIVATIONS[name](wide, 1.5)
    size = np.maximum(1, np.abs(wide)) if name in FUNCTIONS else np.abs(expected) + 1e-31
    assert (np.abs(result - expected) / size).max() <= WITHIN[name]


@pytest.mark.parametrize("count", [0, 1, 3, 16, 17, 16384, 16385, 50_000])
def test_every_element_is_computed(library: Path, isa: str, count: int) -> None:
    x = np.full(count, 20.0, np.float32)
    (result,) = opened(node("Gelu (x)", {"x": x}), library, isa, threads=2)({"x": x})
    np.testing.assert_array_equal(result, x)


def turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
    """The definition, of x [batch, heads, length, size]."""
    c, s = cos[:, None], sin[:, None]
    half = x.shape[-1] // 2
    low, high = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    first, second = low * c - high * s, high * c + low * s
    return np.stack([first, second], axis=-1).reshape(x.shape) if interleaved else np.concatenate([first, second], axis=-1)


def test_rotary_is_its_definition(library: Path, isa: str) -> None:
    sizes = st.sampled_from([0, 2, 4, 6, 16, 32, 34, 64, 66, 128])
    count = st.integers(0, 3)

    @settings(max_examples=40)
    @given(count, count, st.sampled_from([0, 1, 2, 7]), sizes, st.booleans(), st.booleans(), st.booleans(), st.integers(0, 9))
    def holds(batch: int, heads: int, length: int, size: int, interleaved: bool, shared: bool, apart: bool, seed: int) -> None:
        if not apart and heads == 0:
            return
        x = drawn(seed, batch, heads, length, size)
        angles = drawn(seed + 1, 1 if shared else batch, length, size // 2, high=3.0)
        cos, sin = np.cos(angles), np.sin(angles)
        given = x if apart else x.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)
        arrays = {"x": given, "cos": cos, "sin": sin}
        call = f"Rotary <heads = {heads}, interleaved = {int(interleaved)}> (x, cos, sin)"
        (result,) = opened(node(call, arrays), library, isa)(arrays)
        expected = turned(x.astype(np.float64), cos, sin, interleaved)
        if not apart:
            expected = expected.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)
        np.testing.assert_allclose(result, expected, rtol=0, atol=3e-7)

    holds()


def test_rows_are_the_same_bit_by_bit(library: Path, isa: str) -> None:
    x = drawn(0, 200, 300)
    arrays = {"x": x, "other": drawn(1, 200, 300), "scale": drawn(2, 300)}
    calls = {
        "AddRMSNorm <epsilon = 0.001> (x, other, scale)": arrays,
        "Softmax (x)": {"x": x},
        "Swish <alpha = 1.0> (x)": {"x": x},
    }
    for call, feeds in calls.items():
        runs = [opened(node(call, feeds), library, isa, threads) for threads in (1, 2)]
        assert len({run(feeds)[0].tobytes() for run in runs for _ in range(3)}) == 1


SHAPES: dict[str, tuple[str, dict[str, tuple[int, ...]], str]] = {
    "no axis": ("LayerNorm <epsilon = 0.1> (x)", {"x": ()}, "LayerNorm: x is [], and has fewer than 1 axes"),
    "a long scale": (
        "RMSNorm <epsilon = 0.1> (x, scale)",
        {"x": (2, 3), "scale": (4,)},
        "RMSNorm: scale is [4], and must be [3]",
    ),
    "a scale of rows": (
        "RMSNorm <epsilon = 0.1> (x, scale)",
        {"x": (3, 3), "scale": (3, 1)},
        "RMSNorm: scale is [3, 1], and must be [3]",
    ),
    "a wide shift": (
        "LayerNorm <epsilon = 0.1> (x, scale, shift)",
        {"x": (2, 3), "scale": (3,), "shift": (4, 2, 3)},
        "LayerNorm: shift is [4, 2, 3], and must broadcast to [2, 3]",
    ),
    "another other": (
        "AddLayerNorm <epsilon = 0.1> (x, other)",
        {"x": (2, 3), "other": (1, 3)},
        "AddLayerNorm: other is [1, 3], and must be [2, 3] as x is",
    ),
    "a softmax of a number": ("Softmax (x)", {"x": ()}, "Softmax: x is a single number"),
    "an odd head": (
        "Rotary <interleaved = 0> (x, cos, sin)",
        {"x": (1, 2, 3, 5), "cos": (1, 3, 2), "sin": (1, 3, 2)},
        "Rotary: x is [1, 2, 3, 5]: a head must have an even size",
    ),
    "two axes": (
        "Rotary <interleaved = 0> (x, cos, sin)",
        {"x": (2, 4), "cos": (1, 3, 2), "sin": (1, 3, 2)},
        "Rotary: x is [2, 4], and must have 3 or 4",
    ),
    "heads unsaid": (
        "Rotary <interleaved = 0> (x, cos, sin)",
        {"x": (1, 2, 4), "cos": (1, 2, 2), "sin": (1, 2, 2)},
        "the attribute heads must be given",
    ),
    "other heads": (
        "Rotary <heads = 3, interleaved = 0> (x, cos, sin)",
        {"x": (1, 2, 3, 4), "cos": (1, 3, 2), "sin": (1, 3, 2)},
        "Rotary: x is [1, 2, 3, 4], and heads is 3",
    ),
    "short cosines": (
        "Rotary <interleaved = 0> (x, cos, sin)",
        {"x": (2, 2, 3, 4), "cos": (2, 1, 2), "sin": (2, 1, 2)},
        "Rotary: cos is [2, 1, 2], and must be [1, 3, 2] or [2, 3, 2]",
    ),
    "other sines": (
        "Rotary <interleaved = 0> (x, cos, sin)",
        {"x": (2, 2, 3, 4), "cos": (2, 3, 2), "sin": (1, 3, 2)},
        "Rotary: sin is [1, 3, 2], and cos [2, 3, 2]",
    ),
}


@pytest.mark.parametrize("case", SHAPES)
def test_wrong_shapes_are_errors(library: Path, case: str) -> None:
    call, shapes, message = SHAPES[case]
    arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    run = opened(node(call, arrays), library)
    with pytest.raises(Exception, match="INVALID_ARGUMENT") as error:
        run(arrays)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("LayerNorm (x)", "LayerNorm: the attribute epsilon must be given, and not below 0"),
        ("LayerNorm <epsilon = -1.0> (x)", "LayerNorm: the attribute epsilon must be given, and not below 0"),
        ("LayerNorm <epsilon = 1> (x)", "LayerNorm: the attribute epsilon must be a float"),
        (
            "LayerNorm <epsilon = 1.0, axes = [1]> (x)",
            "LayerNorm: axes must be the last ones, counted from the end: -1 to -1, each once",
        ),
        ("LayerNorm <epsilon = 1.0, axes = [-1, -1]> (x)", "LayerNorm: axes must be the last ones"),
        ("LayerNorm <epsilon = 1.0, axes = [-3]> (x)", "LayerNorm: axes must be the last ones"),
        ("LayerNorm <epsilon = 1.0, axes = -1> (x)", "LayerNorm: the attribute axes must be a list of ints"),
        ("Softmax <axis = 0> (x)", "Softmax: axis is 0, and must be -1"),
        ("Swish <alpha = 2> (x)", "Swish: the attribute alpha must be a float"),
        ("Rotary <interleaved = 2> (x, x, x)", "Rotary: the attribute interleaved must be given, 0 or 1"),
        ("Swish (x)", "Swish: the attribute alpha must be given"),
        ("Rotary (x, x, x)", "Rotary: the attribute interleaved must be given, 0 or 1"),
        ("Rotary <heads = -1> (x, x, x)", "Rotary: heads is -1"),
    ],
)
def test_wrong_attributes_are_errors(library: Path, call: str, message: str) -> None:
    with pytest.raises(Exception, match="Exception during initialization") as error:
        opened(node(call, {"x": drawn(0, 2, 3)}), library)
    assert message in str(error.value)
