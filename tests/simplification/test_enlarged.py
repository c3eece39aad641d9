"""Channels are mixed before an image is enlarged, with the same results, where this is less work."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simplification.test_simplify import operators, run, simplified

ENLARGE = '{0} = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> ({1}, , twice)'
TWICE = "float[4] twice = {1, 1, 2, 2}"
INPUTS = "float[n, 4, 6, 6] z, float[n, 4, 3, 3] x, float[n, 2, 3, 3] x2"


def numbers(*shape: int) -> str:
    drawn = np.random.default_rng(len(shape)).standard_normal(shape).round(3)
    return ", ".join(map(str, drawn.ravel()))


def parsed(
    body: str, channels: int = 8, inputs: str = INPUTS, others: str = TWICE, results: int = 5, opset: int = 17
) -> onnx.ModelProto:
    """Images, of which the body makes `c` with this number of channels, and a 1 × 1 convolution w of 5 results, with a bias b."""
    head = f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>'
    kernel = f"float[{results}, {channels}, 1, 1] w = {{{numbers(results, channels, 1, 1)}}}"
    weights = f"{kernel}, float[{results}] b = {{{numbers(results)}}}"
    return onnx.parser.parse_model(f"{head} g ({inputs}) => (float[n, m, s, t] y) <{weights}, {others}> {{ {body} }}")


def same(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model simplified, which computes the same but for the order of sums."""
    written = simplified(proto)[1]
    draw, feeds = np.random.default_rng(0), {}
    for value in proto.graph.input:
        shape = [dim.dim_value or 2 for dim in value.type.tensor_type.shape.dim]
        feeds[value.name] = draw.standard_normal(shape).astype(np.float32)
    for before, after in zip(run(proto, feeds), run(written, feeds), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)
    return written


def mixed(proto: onnx.ModelProto) -> int:
    """How many images a model enlarges behind a convolution."""
    made = {output: node.op_type for node in proto.graph.node for output in node.output}
    return sum(made.get(node.input[0]) == "Conv" for node in proto.graph.node if node.op_type == "Resize")


ONE = ENLARGE.format("u", "x")
SIDE_BY_SIDE = f"{ONE} c = Concat <axis = 1> (u, z)"
THREE = f"{ONE} {ENLARGE.format('v', 'x2')} r = Relu(z) c = Concat <axis = 1> (u, r, v)"
RELU = 'y = com.microsoft.FusedConv <activation = "Relu"> (c, w, b)'
TANH = 'y = com.microsoft.FusedConv <activation = "Tanh"> (c, w, b)'
CROP = 'mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize", extrapolation_value = 7.0'


@pytest.mark.parametrize(
    ("body", "channels", "left"),
    [
        (f"{SIDE_BY_SIDE} y = Conv (c, w, b)", 8, {"Conv": 2, "Resize": 1, "Add": 1}),
        (f"{ONE} c = Concat <axis = -3> (z, u) y = Conv (c, w)", 8, {"Conv": 2, "Resize": 1, "Add": 1}),
        (f"{ONE} c = Concat <axis = 1> (z, u, z) y = Conv (c, w, b)", 12, {"Conv": 2, "Resize": 1, "Add": 1, "Concat": 1}),
        (f"{ONE} y = Conv (u, w, b)", 4, {"Conv": 1, "Resize": 1}),
        (f"{THREE} y = Conv (c, w, b)", 10, {"Relu": 1, "Conv": 2, "Resize": 2, "Add": 1, "Concat": 1}),
        (f"{SIDE_BY_SIDE} {RELU}", 8, {"Conv": 2, "Resize": 1, "Add": 1, "Relu": 1}),
        (f"{SIDE_BY_SIDE} d = Conv (c, w, b) e = Conv (c, w) y = Sub(d, e)", 8, {"Conv": 4, "Resize": 2, "Add": 2, "Sub": 1}),
    ],
)
def test_channels_are_mixed_before_an_image_is_enlarged(body: str, channels: int, left: dict[str, int]) -> None:
    """Not those of the image of two channels: five results are more to enlarge."""
    written = same(parsed(body, channels))
    assert mixed(written) == left["Conv"] - left.get("Add", 0) and operators(written) == left


@pytest.mark.parametrize(
    ("resize", "others"),
    [
        (
            'u = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, , twice)',
            TWICE,
        ),
        (
            'u = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, , , size)',
            "int64[4] size = {2, 4, 6, 6}",
        ),
        (
            's = Shape <end = 2> (x) t = Concat <axis = 0> (s, size) u = Resize <mode = "linear"> (x, , , t)',
            "int64[2] size = {6, 6}",
        ),
    ],
)
def test_whatever_gives_the_size(resize: str, others: str) -> None:
    written = same(parsed(f"{resize} c = Concat <axis = 1> (u, z) y = Conv (c, w, b)", others=others))
    assert mixed(written) == 1


@pytest.mark.parametrize(
    ("body", "channels", "others", "results"),
    [
        (f"{SIDE_BY_SIDE} y = Conv <pads = [1, 1, 1, 1]> (c, w, b)", 8, TWICE, 5),
        (f"{SIDE_BY_SIDE} y = Conv <strides = [2, 2]> (c, w, b)", 8, TWICE, 5),
        (f"{SIDE_BY_SIDE} y = Conv <group = 2> (c, w, b)", 4, TWICE, 4),
        (f"{SIDE_BY_SIDE} y = Conv (c, w, b)", 8, TWICE, 9),
        (f"{SIDE_BY_SIDE} d = Conv (c, w, b) e = ReduceMax(c) y = Add(d, e)", 8, TWICE, 5),
        (f"{SIDE_BY_SIDE} d = Conv (c, w, b) e = ReduceMax(u) y = Add(d, e)", 8, TWICE, 5),
        (f"{SIDE_BY_SIDE} {TANH}", 8, TWICE, 5),
        (f"{ONE} c = Concat <axis = 2> (u, z) y = Conv (c, w, b)", 4, TWICE, 5),
        ('u = Resize <mode = "cubic"> (x, , twice) c = Concat <axis = 1> (u, z) y = Conv (c, w, b)', 8, TWICE, 5),
        (
            'u = Resize <mode = "linear"> (z, , half) c = Concat <axis = 1> (u, x) y = Conv (c, w, b)',
            8,
            "float[4] half = {1, 1, 0.5, 0.5}",
            5,
        ),
        ('u = Resize <mode = "linear"> (x2, , more) y = Conv (u, w, b)', 4, "float[4] more = {1, 2, 2, 2}", 5),
        ('u = Resize <mode = "nearest"> (x, , more) y = Conv (u, w, b)', 4, "float[4] more = {1, 1.1, 2, 2}", 5),
        (f"{SIDE_BY_SIDE} y = Conv (c, k, b)", 8, f"{TWICE}, float[5, 8, 2, 2] k = {{{numbers(5, 8, 2, 2)}}}", 5),
        (
            f"u = Resize <{CROP}> (x, roi, twice) c = Concat <axis = 1> (u, z) y = Conv (c, w, b)",
            8,
            f"{TWICE}, float[8] roi = {{0, 0, -1, -1, 1, 1, 2, 2}}",
            5,
        ),
    ],
)
def test_where_channels_differ_or_it_is_no_less_work_nothing_changes(body: str, channels: int, others: str, results: int) -> None:
    assert not mixed(simplified(parsed(body, channels, others=others, results=results))[1])


def test_sizes_of_named_axes_stay_as_they_are() -> None:
    body = 'u = Resize <mode = "linear", axes = [2, 3]> (x, , , size) c = Concat <axis = 1> (u, z) y = Conv (c, w, b)'
    assert not mixed(same(parsed(body, others="int64[2] size = {6, 6}", opset=18)))


def test_a_resize_that_must_have_a_region_stays() -> None:
    body = 'u = Resize <mode = "linear"> (x, roi, twice) c = Concat <axis = 1> (u, z) y = Conv (c, w, b)'
    assert not mixed(same(parsed(body, others=f"{TWICE}, float[8] roi = {{0, 0, 0, 0, 1, 1, 1, 1}}", opset=12)))


def test_sums_of_other_types_keep_their_order() -> None:
    body = f"h = Cast <to = 10> (x) {ENLARGE.format('u', 'h')} k = Cast <to = 10> (w) y = Conv (u, k)"
    proto = parsed(body, 4)
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    assert not mixed(simplified(proto)[1])


@given(
    st.lists(st.sampled_from(["x", "x2", "z", "Relu"]), min_size=1, max_size=5),
    st.sampled_from(["linear", "nearest"]),
    st.sampled_from(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]),
    st.integers(1, 6),
)
def test_any_images_side_by_side_give_the_same(images: list[str], mode: str, place: str, results: int) -> None:
    lines, parts, channels = list[str](), list[str](), 0
    for index, image in enumerate(images):
        name = f"p{index}"
        how = f'mode = "{mode}", coordinate_transformation_mode = "{place}"'
        text = f"Resize <{how}> ({image}, , twice)" if image in ("x", "x2") else "Relu (z)" if image == "Relu" else "Identity (z)"
        lines.append(f"{name} = {text}")
        parts.append(name)
        channels += 2 if image == "x2" else 4
    body = f"{' '.join(lines)} c = Concat <axis = 1> ({', '.join(parts)}) y = Conv (c, w, b)"
    same(parsed(body, channels, results=results))


@pytest.mark.parametrize("how", ["twice", "once", "almost", ", size"])
def test_a_resize_to_the_same_size_is_left_out(how: str) -> None:
    others = f"{TWICE}, float[4] once = {{1, 1, 1, 1}}, float[4] almost = {{1, 1, 1.1, 1.1}}, int64[4] size = {{2, 4, 6, 6}}"
    proto = parsed(f'u = Resize <mode = "linear"> (z, , {how}) r = Relu (u) y = Conv (r, w)', 4, "float[2, 4, 6, 6] z", others)
    assert ("Resize" in operators(same(proto))) == (how in ("twice", "almost"))


def test_a_resize_that_crops_stays() -> None:
    others = "float[4] once = {1, 1, 1, 1}, float[8] roi = {0, 0, 0.5, 0.5, 1, 1, 1, 1}"
    proto = parsed(f"u = Resize <{CROP}> (z, roi, once) r = Relu (u) y = Conv (r, w)", 4, others=others)
    assert "Resize" in operators(simplified(proto)[1])
