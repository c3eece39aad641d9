"""A Resize to whole multiples of the sizes becomes one by scales, with the same result."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.simplification.test_simplify import operators, parsed, run, simplified

NUMBERS = "int64[1] zero = {0}, int64[1] two = {2}, int64[1] four = {4}, int64[2] both = {2, 2}, int64[2] one = {1, 1}"
SIZES = "s = Shape(x) kept = Slice(s, zero, two, zero) image = Slice(s, two, four, zero) "
NEAREST = 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
MODES = [
    NEAREST,
    'mode = "linear", coordinate_transformation_mode = "half_pixel"',
    'mode = "linear", coordinate_transformation_mode = "pytorch_half_pixel"',
    'mode = "linear", coordinate_transformation_mode = "align_corners"',
    'mode = "cubic", coordinate_transformation_mode = "half_pixel", cubic_coeff_a = -0.75',
]


def resized(attributes: str, size: str, value: str = "float[b, 3, h, w] x") -> onnx.ModelProto:
    body = f'{SIZES} large = {size} t = Concat<axis = 0>(kept, large) y = Resize<{attributes}>(x, "", "", t)'
    return parsed(body.replace('""', ""), value, "float[A, B, C, D] y", NUMBERS)


@pytest.mark.parametrize("attributes", MODES)
def test_a_resize_to_multiples_of_the_sizes_has_scales(attributes: str) -> None:
    model = resized(attributes, "Mul(image, both)")
    written = simplified(model)[1]
    assert operators(written) == {"Resize": 1}
    (scales,) = (one for one in written.graph.initializer if one.name == written.graph.node[0].input[2])
    assert onnx.numpy_helper.to_array(scales).tolist() == [1, 1, 2, 2]
    for shape in ((1, 3, 5, 7), (2, 3, 1, 6)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(run(written, {"x": x})[0], run(model, {"x": x})[0])


@pytest.mark.parametrize("size", ["Add(image, one)", "Div(image, both)"], ids=["one more", "a half"])
def test_other_sizes_are_computed(size: str) -> None:
    written = simplified(resized(NEAREST, size))[1]
    assert len(written.graph.node[-1].input) == 4


def test_a_region_that_is_cropped_keeps_its_sizes() -> None:
    attributes = 'mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize"'
    body = f"{SIZES} large = Mul(image, both) t = Concat<axis = 0>(kept, large) y = Resize<{attributes}>(x, r, , t)"
    weights = f"{NUMBERS}, float[8] r = {{0, 0, 0, 0, 1, 1, 0.5, 0.5}}"
    written = simplified(parsed(body, "float[b, 3, h, w] x", "float[A, B, C, D] y", weights))[1]
    assert len(written.graph.node[-1].input) == 4
