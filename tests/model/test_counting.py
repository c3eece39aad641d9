"""Integers that count along their axes: those of a constant are known exactly."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.counting import Count, count
from onnx_subgraph.model.shapes import infer_shapes

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
