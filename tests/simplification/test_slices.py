"""A Slice names only the axes that it cuts, and the model computes the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper as oh
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from tests.simplification.test_layouts import simplified

SIZES = (2, "N", 5)


def sliced(numbers: dict[str, list[int] | None]) -> onnx.ModelProto:
    """A Slice of float[2, N, 5] with these numbers; None leaves an input out."""
    inputs = ["x", *("" if given is None else what for what, given in numbers.items())]
    stored = [oh.make_tensor(what, onnx.TensorProto.INT64, [len(n)], n) for what, n in numbers.items() if n is not None]
    nodes = [oh.make_node("Slice", inputs, ["s"]), oh.make_node("Softmax", ["s"], ["y"])]
    x, y = oh.make_tensor_value_info("x", 1, SIZES), oh.make_tensor_value_info("y", 1, None)
    graph = oh.make_graph(nodes, "g", [x], [y], stored)
    return onnx.shape_inference.infer_shapes(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8))


def numbers_of(proto: onnx.ModelProto) -> list[list[int]] | None:
    """The numbers of the Slice, as stored; None where there is no Slice."""
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor).tolist() for tensor in proto.graph.initializer}
    node = next((node for node in proto.graph.node if node.op_type == "Slice"), None)
    return None if node is None else [stored[name] for name in node.input[1:] if name]


END = 2**31 - 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"a": [0, 0, 1], "b": [END, END, END], "c": [0, 1, 2], "d": [1, 1, 2]}, [[1], [END], [2], [2]]),
        ({"a": [0, 1], "b": [END, 4], "c": [0, -1]}, [[1], [4], [-1]]),
        ({"a": [0, 1], "b": [2, 3], "c": [0, 1], "d": None}, [[1], [3], [1]]),
        ({"a": [4, 0], "b": [-9, 5], "c": [1, 2], "d": [-1, 1]}, [[4], [-9], [1], [-1]]),
    ],
    ids=["as TensorFlow slices every second element", "an axis from the end", "a known size as the end", "another direction"],
)
def test_axes_that_are_taken_whole_are_left_out(given: dict[str, list[int] | None], expected: list[list[int]]) -> None:
    assert numbers_of(simplified(sliced(given))) == expected


@pytest.mark.parametrize(
    "given",
    [
        {"a": [1, 1], "b": [END, END], "c": [0, 1]},
        {"a": [0, 0], "b": [3, 1], "c": [1, 2]},
        {"a": [1, -1], "b": [2, -9], "c": [2, 0], "d": [1, -1]},
        {"a": [0, 1], "b": [1, 2]},
    ],
    ids=["all cut", "a size that only a run knows", "an axis in the other direction", "axes that are not named"],
)
def test_axes_that_are_cut_stay(given: dict[str, list[int] | None]) -> None:
    assert numbers_of(simplified(sliced(given))) == [n for n in given.values() if n is not None]


@given(st.data())
def test_any_slice_gives_the_same(data: st.DataObject) -> None:
    axes = data.draw(st.permutations(range(3)))[: data.draw(st.integers(1, 3))]
    starts, steps = [], []
    for _ in axes:
        steps.append(data.draw(st.sampled_from([1, 1, 2, -1])))
        starts.append(data.draw(st.sampled_from([0, 0, 1, -1, 4])))
    ends = [data.draw(st.sampled_from([END, END, 1, 5] if step > 0 else [-END, 0])) for step in steps]
    named = [axis - data.draw(st.sampled_from([0, 3])) for axis in axes]
    proto = sliced({"a": starts, "b": ends, "c": named, "d": steps})
    written = simplified(proto)
    for free in (1, 2, 5):
        x = np.random.default_rng(free).standard_normal((2, free, 5)).astype(np.float32)
        one, two = (ReferenceEvaluator(model).run(None, {"x": x})[0] for model in (proto, written))
        np.testing.assert_array_equal(one, two)
