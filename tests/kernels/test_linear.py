"""Linear is act(x w + b) * gate + residual at every size, with any operand absent, on every instruction set."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.conftest import drawn, node, opened
from tests.kernels.truth import ACTIVATIONS

ROWS = st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 13, 14, 15, 29, 100, 113, 130])
DEPTHS = st.sampled_from([0, 1, 2, 3, 7, 64, 255, 256, 257, 513, 700])
COLUMNS = st.sampled_from([0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 65, 257, 300])
PARTS = st.sets(st.sampled_from(["b", "gate", "residual"]))


def call(parts: set[str], activation: str) -> str:
    rest = ["b" if "b" in parts else '""', "gate" if "gate" in parts else '""', "residual" if "residual" in parts else '""']
    while rest and rest[-1] == '""':
        rest.pop()
    return f'Linear <act = "{activation}", alpha = 1.5> ({", ".join(["x", "w", *rest])})'


def feeds(rows: tuple[int, ...], depth: int, columns: int, parts: set[str], seed: int) -> dict[str, np.ndarray]:
    shapes = {"x": (*rows, depth), "w": (depth, columns), "b": (columns,), "gate": (*rows, columns), "residual": (*rows, columns)}
    return {name: drawn(seed + i, *shape) for i, (name, shape) in enumerate(shapes.items()) if name in {"x", "w", *parts}}


def truth(given: dict[str, np.ndarray], activation: str) -> tuple[np.ndarray, np.ndarray]:
    """Linear in float64, and a bound on float32's error: n products round n times, each by half a unit in the last place."""
    wide = {name: array.astype(np.float64) for name, array in given.items()}
    product = wide["x"] @ wide["w"] + wide.get("b", 0.0)
    size = np.abs(wide["x"]) @ np.abs(wide["w"]) + np.abs(wide.get("b", 0.0)) + 1
    gate, residual = wide.get("gate", 1.0), wide.get("residual", 0.0)
    result = ACTIVATIONS[activation](product, 1.5) * gate + residual
    return result, 2**-23 * (8 + np.sqrt(wide["x"].shape[-1])) * size


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "computed"])
def test_linear_is_its_definition(library: Path, isa: str, constant: bool) -> None:
    @settings(max_examples=40)
    @given(ROWS, DEPTHS, COLUMNS, PARTS, st.sampled_from(list(ACTIVATIONS)), st.integers(0, 99))
    def holds(rows: int, depth: int, columns: int, parts: set[str], activation: str, seed: int) -> None:
        arrays = feeds((rows,), depth, columns, parts, seed)
        stored = {"w": arrays["w"]} if constant else {}
        inputs = {name: array for name, array in arrays.items() if name not in stored}
        (result,) = opened(node(call(parts, activation), inputs, constants=stored), library, isa)(inputs)
        expected, allowed = truth(arrays, activation)
        assert result.shape == expected.shape
        assert (np.abs(result - expected) <= allowed).all()

    holds()


UNITS = {"float32": 2.0**-24, "bf16x3": 2.0**-16, "bf16": 2.0**-8}
"""How far a product may be off because of what its operands are rounded to, both of them."""


@pytest.mark.parametrize("numerics", UNITS)
def test_operands_are_rounded_no_further_than_the_node_allows(library: Path, isa: str, numerics: str) -> None:
    @settings(max_examples=25)
    @given(ROWS, DEPTHS, COLUMNS, st.integers(0, 99))
    def holds(rows: int, depth: int, columns: int, seed: int) -> None:
        arrays = feeds((rows,), depth, columns, {"b"}, seed)
        for stored in ({}, {"w": arrays["w"]}):
            inputs = {name: array for name, array in arrays.items() if name not in stored}
            model = node(f'Linear <numerics = "{numerics}"> (x, w, b)', inputs, constants=stored)
            (result,) = opened(model, library, isa)(inputs)
            expected, allowed = truth(arrays, "Identity")
            allowed += 2.5 * UNITS[numerics] * (np.abs(arrays["x"]).astype(float) @ np.abs(arrays["w"]).astype(float))
            assert (np.abs(result - expected) <= allowed).all()

    holds()


def test_bfloat16_weights_are_the_nearest_ones(library: Path, isa: str) -> None:
    """Ties go to even, and only infinity becomes infinite. A row with a single 1 gives the weights themselves."""
    w = np.array([[1.0, 1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-7), 3.4e38, np.inf, np.nan, 1e-30, 1 + 2**-8 + 2**-20]], np.float32)
    arrays = {"x": np.ones((1, 1), np.float32)}
    (result,) = opened(node('Linear <numerics = "bf16"> (x, w)', arrays, constants={"w": w}), library, isa)(arrays)
    expected = w.astype(ml_dtypes.bfloat16).astype(np.float32)
    expected[0, 4] = np.float32(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("rows", [(), (3, 5), (2, 0, 4), (1, 2, 3, 2)])
def test_x_may_have_any_number_of_axes(library: Path, rows: tuple[int, ...]) -> None:
    arrays = feeds(rows, 20, 12, {"b", "residual"}, 1)
    (result,) = opened(node(call({"b", "residual"}, "Gelu"), arrays), library)(arrays)
    expected, allowed = truth(arrays, "Gelu")
    assert result.shape == expected.shape
    assert (np.abs(result - expected) <= allowed).all()


def test_a_nan_and_an_infinity_reach_the_result(library: Path, isa: str) -> None:
    for activation in ACTIVATIONS:
        x = np.array([[np.nan, 0.0], [np.inf, 0.0], [-np.inf, 0.0], [1.0, 2.0]], np.float32)
        w = np.ones((2, 5), np.float32)
        (result,) = opened(node(call(set(), activation), {"x": x, "w": w}), library, isa)({"x": x, "w": w})
        with np.errstate(invalid="ignore"):
            expected = ACTIVATIONS[activation]((x @ w).astype(np.float64), 1.5)
        np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("numerics", UNITS)
@pytest.mark.parametrize("rows", [1, 9, 150])
def test_results_are_the_same_bit_by_bit(library: Path, isa: str, rows: int, numerics: str) -> None:
    """In repeated runs and with more threads: the division of the work does not change the result."""
    arrays = feeds((rows,), 300, 500, {"b", "gate", "residual"}, 3)
    model = node(call({"b", "gate", "residual"}, "Swish").replace("<", f'<numerics = "{numerics}", '), arrays)
    runs = [opened(model, library, isa, threads) for threads in (1, 2, 3)]
    results = [run(arrays)[0].tobytes() for run in runs for _ in range(3)]
    assert len(set(results)) == 1


def test_concurrent_runs_of_one_session_equal_single_runs(library: Path, isa: str) -> None:
    arrays = [feeds((rows,), 200, 90, {"b", "residual"}, rows) for rows in (1, 5, 33, 64, 130)]
    run = opened(node(call({"b", "residual"}, "Gelu"), arrays[0]), library, isa, threads=2)
    alone = [run(one)[0].tobytes() for one in arrays]
    with ThreadPoolExecutor(5) as pool:
        together = list(pool.map(lambda i: run(arrays[i % 5])[0].tobytes(), range(40)))
    assert together == alone * 8


BAD: dict[str, tuple[dict[str, tuple[int, ...]], str]] = {
    "depths differ": ({"x": (4, 5), "w": (6, 3)}, "x is [4, 5] and w [6, 3]: the last axis of x must be as long as w has rows"),
    "a number for x": ({"x": (), "w": (6, 3)}, "x is [] and w [6, 3]"),
    "w of one axis": ({"x": (4, 6), "w": (6,)}, "w must have 2 axes, and is [6]"),
    "w of three axes": ({"x": (4, 6), "w": (1, 6, 3)}, "w must have 2 axes, and is [1, 6, 3]"),
    "a short bias": ({"x": (4, 6), "w": (6, 3), "b": (2,)}, "b is [2], and must be [3]"),
    "a column for a bias": ({"x": (4, 6), "w": (6, 3), "b": (3, 1)}, "b is [3, 1], and must be [3]"),
    "a gate of another shape": (
        {"x": (4, 6), "w": (6, 3), "gate": (4, 1)},
        "gate is [4, 1], and must be [4, 3]",
    ),
    "a residual of more axes": ({"x": (4, 6), "w": (6, 3), "residual": (1, 4, 3)}, "residual is [1, 4, 3], and must be [4, 3]"),
    "too many axes": ({"x": (1,) * 8 + (6,), "w": (6, 3)}, "x has 9 axes; 8 are the most"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_shapes_are_errors(library: Path, case: str) -> None:
    shapes, message = BAD[case]
    arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    run = opened(node(call(set(arrays), "Identity"), arrays), library)
    with pytest.raises(Exception, match="INVALID_ARGUMENT") as error:
        run(arrays)
    assert f"onnx_subgraph.Linear: {message}" in str(error.value)


ATTRIBUTES: dict[str, tuple[str, str]] = {
    "an unknown activation": (
        'act = "Softplus"',
        'act is "Softplus"; choose one of Identity, Relu, Gelu, ',
    ),
    "a long word": ('act = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"', "the attribute act is longer than any word that it may be"),
    "a number for a word": ("act = 1", "the attribute act must be a string"),
    "a whole alpha": ("alpha = 1", "the attribute alpha must be a float"),
    "no alpha": ('act = "Swish"', "the attribute alpha must be given with Swish"),
    "unknown numerics": ('numerics = "tf32"', 'numerics is "tf32"; choose one of float32, bf16x3, bf16'),
    "a list": ("alpha = [1, 2]", "the attribute alpha must be a float"),
}


@pytest.mark.parametrize("case", ATTRIBUTES)
def test_wrong_attributes_are_errors(library: Path, case: str) -> None:
    given, message = ATTRIBUTES[case]
    arrays = feeds((2,), 3, 4, set(), 0)
    with pytest.raises(Exception, match="Exception during initialization") as error:
        opened(node(f"Linear <{given}> (x, w)", arrays), library)
    assert f"onnx_subgraph.Linear: {message}" in str(error.value)


def test_wrong_constant_weights_are_an_error_when_the_model_is_loaded(library: Path) -> None:
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(Exception, match=r"w must have 2 axes, and is \[3\]"):
        opened(node("Linear (x, w)", {"x": x}, constants={"w": x[0]}), library)


def test_another_element_type_is_an_error_when_the_model_is_loaded(library: Path) -> None:
    model: Any = node("Linear (x, w)", feeds((2,), 3, 4, set(), 0))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = 11
    with pytest.raises(Exception, match="Type"):
        opened(model, library)
