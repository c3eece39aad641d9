"""Integers that count along their axes: those of a constant are known exactly."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.counting import Count, count
from onnx_subgraph.model.shapes import infer_shapes
from tests.simplification.test_simplify import parsed, run

SIZES = st.lists(st.integers(1, 4), max_size=3)


def counted(array: np.ndarray) -> Count | None:
    node = ir.node("Constant", [], {"value": ir.tensor(array)})
    node.outputs[0].name = "i"
    model = ir.Model(ir.Graph([], node.outputs, nodes=[node], opset_imports={"": 17}), ir_version=8)
    infer_shapes(model)
    return count(Constants(model), node.outputs[0])


def spelled(start: int, strides: dict[int, int], shape: tuple[int, ...]) -> np.ndarray:
    """The integers that count so."""
    along = [by * np.indices(shape)[axis] for axis, by in strides.items()]
    return np.full(shape, start) + sum(along, np.zeros(shape, np.int64))


@given(st.integers(-9, 9), SIZES, st.lists(st.integers(-5, 5), min_size=3, max_size=3))
def test_a_constant_that_counts_is_known(start: int, sizes: list[int], by: list[int]) -> None:
    strides = {axis: by[axis] for axis, size in enumerate(sizes) if size > 1 and by[axis]}
    found = counted(spelled(start, strides, tuple(sizes)))
    assert found is not None and found.start == start
    assert {axis: stride.by for axis, stride in found.strides.items()} == strides


@given(hnp.arrays(np.int64, SIZES.map(tuple), elements=st.integers(-2, 2)))
def test_what_is_known_of_a_constant_is_true(array: np.ndarray) -> None:
    found = counted(array)
    if found is not None:
        strides = {axis: stride.by for axis, stride in found.strides.items()}
        np.testing.assert_array_equal(spelled(found.start, strides, array.shape), array)  # type: ignore[arg-type]


def test_differences_that_overflow_are_not_known() -> None:
    """From the largest integer to the least one it is one step, modulo 2⁶⁴."""
    limits = np.iinfo(np.int64)
    assert counted(np.array([limits.max, limits.min])) is None


def test_a_constant_without_elements_counts_nothing() -> None:
    assert counted(np.zeros((2, 0), np.int64)) is None


POSITIONS = """l = Shape<start = 0, end = 1>(x) n = Squeeze(l, zero) r = Range(nought, n, step) p = Unsqueeze(r, zero)
s = Shape<start = 1, end = 2>(x) b = Concat<axis = 0>(s, one) e = Expand(p, b)
"""
"""Positions, as a row for each column of x."""
PREVIOUS = "f = Slice(e, zero, one, one) g = Sub(f, unit) j = Concat<axis = 1>(g, e) "
NUMBERS = """int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64 nought = {0}, int64 step = {1}, int64 unit = {1},
int64[1] end = {9223372036854775807}, int64[1] back = {-2}"""
COUNTED = {
    "positions": ("y = Identity(e)", 0, {1: 1}),
    "a first one before": (PREVIOUS + "y = Identity(j)", -1, {1: 1}),
    "neighbours": (PREVIOUS + "k = Slice(j, one, end, one) m = Slice(j, zero, l, one) y = Sub(k, m)", 1, {}),
    "from the third on": ("y = Slice(e, two, end, one)", 2, {1: 1}),
    "other rows": ("y = Slice(e, one, end, zero)", 0, {1: 1}),
    "a difference in two directions": ("t = Transpose<perm = [1, 0]>(e) u = Unsqueeze(r, one) y = Sub(u, p)", 0, {0: 1, 1: -1}),
}
NOT_COUNTED = {
    "positions twice": "y = Concat<axis = 1>(e, e)",
    "a gap": "f = Slice(e, zero, one, one) g = Sub(f, two) y = Concat<axis = 1>(g, e)",
    "the last two": "y = Slice(e, back, end, one)",
    "every second one": "y = Slice(e, zero, end, one, two)",
    "the other way": "g = Sub(e, unit) f = Slice(e, zero, one, one) y = Concat<axis = 1>(g, f)",
}


def positions(body: str, rows: int) -> tuple[Count | None, np.ndarray]:
    """What is known of y, and y for an x with this number of rows."""
    model = parsed(POSITIONS + body, "float[N, 3] x", "int64[A, B] y", NUMBERS)
    graph = ir.from_proto(model)
    infer_shapes(graph)
    return count(Constants(graph), graph.graph.outputs[0]), run(model, {"x": np.zeros((rows, 3), np.float32)})[0]


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize(("body", "start", "strides"), COUNTED.values(), ids=COUNTED)
def test_positions_that_are_joined_cut_and_subtracted_count(body: str, start: int, strides: dict[int, int], rows: int) -> None:
    found, given = positions(body, rows)
    assert found is not None and found.start == start
    assert {axis: stride.by for axis, stride in found.strides.items()} == strides
    np.testing.assert_array_equal(given, spelled(start, strides, given.shape))  # type: ignore[arg-type]


@pytest.mark.parametrize("body", NOT_COUNTED.values(), ids=NOT_COUNTED)
def test_other_positions_are_not_known(body: str) -> None:
    assert positions(body, 5)[0] is None
