"""Folding with numpy gives bit for bit what onnx's reference evaluator gives."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onnx_subgraph.model import folding
from onnx_subgraph.model.folding import ARITHMETIC, FLOATS, evaluate

BINARY = frozenset({"Add", "Sub", "Mul", "Div"})


@pytest.mark.parametrize("operator", ARITHMETIC)
@given(data=st.data())
def test_numpy_folds_like_the_evaluator(operator: str, data: st.DataObject) -> None:
    """With broadcasting, subnormal numbers, infinities and NaN. Type and shape of the result are compared too."""
    dtype = data.draw(st.sampled_from(sorted(FLOATS, key=str)))
    shapes = data.draw(arrays.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3)).input_shapes
    operands = [data.draw(arrays.arrays(dtype, shape)) for shape in shapes[: 2 if operator in BINARY else 1]]
    (mine,) = evaluate(operator, operands, (), 1, 17)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folding, "ARITHMETIC", {})
        (other,) = evaluate(operator, operands, (), 1, 17)
    assert isinstance(mine, np.ndarray)
    assert (mine.dtype, mine.shape) == (dtype, np.asarray(other).shape)
    np.testing.assert_array_equal(mine, other)


def test_what_numpy_computes_differently_is_left_to_the_evaluator() -> None:
    """Division of integers truncates. Operands that do not broadcast are not folded."""
    assert evaluate("Div", [np.array([-7]), np.array([2])], (), 1, 17)[0] == [-3]
    node = ir.node("Add", [ir.val("a"), ir.val("b")])
    assert folding.fold(node, [np.ones(2, np.float32), np.ones(3, np.float32)], 17) is None


@pytest.mark.parametrize("kind", ["INT8", "INT32", "INT64", "UINT8", "UINT64"])
def test_a_float_that_no_integer_stands_for_is_not_cast(kind: str) -> None:
    """The standard leaves it open what Cast gives, and processors differ."""
    to = ir.DataType[kind]
    node = ir.node("Cast", [ir.val("x")], {"to": int(to)})
    limits = np.iinfo(to.numpy())
    for number in (np.inf, -np.inf, np.nan, 2.0 * float(limits.max), -2.0 * float(limits.max)):
        assert folding.fold(node, [np.array([1.0, number], np.float32)], 17) is None
    (cast,) = folding.fold(node, [np.array([0.0, 1.75, 100.0], np.float32)], 17) or [None]
    assert isinstance(cast, np.ndarray) and cast.tolist() == [0, 1, 100] and cast.dtype == to.numpy()


@pytest.mark.parametrize("axes", [[1, 0], [-2, -1], [3, 0], [-1, 1]])
def test_the_axes_of_an_unsqueeze_are_those_of_its_result(axes: list[int]) -> None:
    """In any order, also where they are an attribute."""
    node = ir.node("Unsqueeze", [ir.val("x")], {"axes": axes})
    (found,) = folding.fold(node, [np.ones((3, 4))], 12) or [None]
    assert isinstance(found, np.ndarray) and found.shape == np.expand_dims(np.ones((3, 4)), tuple(axes)).shape


def test_integers_that_onnxruntime_computes_otherwise_are_not_folded() -> None:
    """Interpolated integers, indices of the largest elements, and the mean of no elements."""
    image, scales = np.arange(12, dtype=np.int32).reshape(1, 1, 3, 4), np.array([1, 1, 1.5, 0.5], np.float32)
    resize = ir.node("Resize", [ir.val("x"), None, ir.val("s")], {"mode": "linear"})
    assert folding.fold(resize, [image, None, scales], 18) is None
    assert folding.fold(resize, [image.astype(np.float32), None, scales], 18) is not None
    pool = ir.node("MaxPool", [ir.val("x")], {"kernel_shape": [2, 1]}, num_outputs=2)
    assert folding.fold(pool, [image.astype(np.float32)], 18) is None
    mean = ir.node("ReduceMean", [ir.val("x"), ir.val("a")], {"keepdims": 0})
    assert folding.fold(mean, [np.zeros(0, np.int64), np.array([-1])], 18) is None
    unique = ir.node("Unique", [ir.val("x")], {"sorted": 0})  # the evaluator sorts a first result that is alone
    assert folding.fold(unique, [np.array([3, 1, 3])], 18) is None
