"""A Transpose that only moves axes of size 1 becomes a Reshape; every other one stays."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model.test_simplify import operators, parsed, run, simplified

RESHAPED = {
    "a batch of one behind the length": ("float[1, n, 8] x", "[1, 0, 2]", (1, 5, 8)),
    "heads of one token": ("float[b, 1, 4, 8] x", "[0, 2, 1, 3]", (2, 1, 4, 8)),
    "two axes at the end": ("float[3, 1, 4, 1] x", "[1, 0, 3, 2]", (3, 1, 4, 1)),
    "unknown sizes that stay in place": ("float[n, m, 1, 1, 3] x", "[0, 1, 3, 4, 2]", (2, 4, 1, 1, 3)),
}
KEPT = {
    "axes that change places": ("float[1, n, 8] x", "[0, 2, 1]", (1, 5, 8)),
    "sizes that may be one": ("float[b, n, 8] x", "[1, 0, 2]", (1, 5, 8)),
    "unknown sizes that no Reshape can name": ("float[1, n, m] x", "[1, 2, 0]", (1, 2, 3)),
    "an empty axis": ("float[1, 0, 8] x", "[1, 0, 2]", (1, 0, 8)),
}


def transposed(value: str, order: str) -> onnx.ModelProto:
    rank = value.count(",") + 1
    return parsed(f"t = Transpose<perm = {order}>(x) y = Neg(t)", value, f"float[{', '.join('ABCDE'[:rank])}] y", "float k = {1}")


@pytest.mark.parametrize(("value", "order", "shape"), RESHAPED.values(), ids=RESHAPED)
def test_moving_axes_of_size_one_is_a_reshape(value: str, order: str, shape: tuple[int, ...]) -> None:
    model = transposed(value, order)
    _, written = simplified(model)
    assert operators(written) == {"Reshape": 1, "Neg": 1}
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])


@pytest.mark.parametrize(("value", "order", "shape"), KEPT.values(), ids=KEPT)
def test_other_transposes_stay(value: str, order: str, shape: tuple[int, ...]) -> None:
    model = transposed(value, order)
    _, written = simplified(model)
    assert operators(written) == {"Transpose": 1, "Neg": 1}
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])


@given(st.data())
def test_any_transpose_computes_the_same(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.sampled_from([1, 1, 2, 3]), min_size=1, max_size=5))
    names = [data.draw(st.sampled_from([str(size), letter])) for size, letter in zip(sizes, "abcde", strict=False)]
    order = data.draw(st.permutations(range(len(sizes))))
    model = transposed(f"float[{', '.join(names)}] x", str(list(order)))
    _, written = simplified(model)
    x = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
    np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])
