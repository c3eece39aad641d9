"""A shuffle of channels becomes a Gather if its shapes are computed; other exchanges of axes stay."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.simplification.test_simplify import operators, parsed, run, simplified

NUMBERS = """int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[1] four = {4},
int64[1] six = {6}"""
SIZES = "s = Shape(x) b = Gather(s, zero) h = Gather(s, two) w = Gather(s, three) "
SPLIT = "a = Concat<axis = 0>(b, two, three, h, w) p = Reshape(x, a) "
SHUFFLE = SPLIT + "q = Transpose<perm = [0, 2, 1, 3, 4]>(p) "
STAYING = {
    "another axis is exchanged": SPLIT
    + "q = Transpose<perm = [0, 1, 2, 4, 3]>(p) t = Concat<axis = 0>(b, six, w, h) z = Reshape(q, t)",
    "the batch is exchanged": SPLIT + "q = Transpose<perm = [1, 0, 2, 3, 4]>(p) z = Reshape(q, s)",
    "the groups are read": SHUFFLE
    + "r = Reshape(q, s) m = ReduceMax<axes = [1, 2], keepdims = 0>(q) k = Unsqueeze(m, one) z = Mul(r, k)",
    "another shape comes out": SHUFFLE + "t = Concat<axis = 0>(b, six, w, h) u = Reshape(q, t) z = Relu(u)",
}


def shuffled(body: str, value: str = "float[b, 6, h, w] x", weights: str = NUMBERS) -> onnx.ModelProto:
    return parsed(f"{body} y = Neg(z)", value, "float[A, B, C, D] y", weights)


@pytest.mark.parametrize("groups", ["two, three", "three, two", "two, one, three"])
def test_a_shuffle_of_channels_is_a_gather(groups: str) -> None:
    count = groups.count(",") + 1
    order = [0, *range(count, 0, -1), count + 1, count + 2]
    body = f"{SIZES} a = Concat<axis = 0>(b, {groups}, h, w) p = Reshape(x, a) q = Transpose<perm = {order}>(p) z = Reshape(q, s)"
    model = shuffled(body)
    written = simplified(model)[1]
    assert set(operators(written)) <= {"Gather", "Neg"}
    x = np.random.default_rng(0).standard_normal((2, 6, 3, 5)).astype(np.float32)
    np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])


@pytest.mark.parametrize("body", STAYING.values(), ids=STAYING)
def test_other_exchanges_of_axes_stay(body: str) -> None:
    model = shuffled(SIZES + body)
    written = simplified(model)[1]
    assert operators(written)["Transpose"] == 1
    x = np.random.default_rng(0).standard_normal((2, 6, 3, 5)).astype(np.float32)
    np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])


def test_a_shuffle_with_constant_shapes_stays() -> None:
    weights = "int64[5] apart = {0, 2, 3, 4, 5}, int64[4] whole = {0, 6, 4, 5}"
    body = "p = Reshape(x, apart) q = Transpose<perm = [0, 2, 1, 3, 4]>(p) z = Reshape(q, whole)"
    assert operators(simplified(shuffled(body, "float[b, 6, 4, 5] x", weights))[1])["Reshape"] == 2
