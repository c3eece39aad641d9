"""Where one row of a value is read, only this row is computed, with the same results, and what other rows need stays."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph.model.shapes import declared_only, infer_shapes
from onnx_subgraph.simplification.simplify_first import compute_read_rows
from tests.simplification import test_expands
from tests.simplification.test_simplify import operators, run, simplified

SIZES = {"B": 2, "S": 5}
ENCODER = """
  q0 = MatMul(x, wq) k0 = MatMul(x, wk) v0 = MatMul(x, wv)
  q1 = Reshape(q0, heads) k1 = Reshape(k0, heads) v1 = Reshape(v0, heads)
  q = Transpose<perm = [0, 2, 1, 3]>(q1) k = Transpose<perm = [0, 2, 3, 1]>(k1) v = Transpose<perm = [0, 2, 1, 3]>(v1)
  scores = MatMul(q, k) masked = Add(scores, mask) p = Softmax<axis = -1>(masked) mixed = MatMul(p, v)
  apart = Transpose<perm = [0, 2, 1, 3]>(mixed) joined = Reshape(apart, flat) out = MatMul(joined, wo)
  sum = Add(out, x) norm = LayerNormalization<axis = -1>(sum, scale, shift)
  inner = MatMul(norm, w1) relu = Relu(inner) outer = MatMul(relu, w2) whole = Add(outer, norm)
"""
"""The last layer of an encoder."""
WEIGHTS = {
    **dict.fromkeys(("wq", "wk", "wv", "wo"), (8, 8)),
    "w1": (8, 16),
    "w2": (16, 8),
    "scale": (8,),
    "shift": (8,),
}
ROWS = "int64[4] heads = {0, 0, 2, 4}, int64[3] flat = {0, 0, 8}"
FIRST = "int64 first = {0}"
NO_ROW = "int64[1] start = {-1}, int64[1] end = {0}, int64[1] axis = {1}"
INPUTS = "float[B, S, 8] x, float[B, 1, S, S] mask"


def parsed(body: str, inputs: str, outputs: str, stored: str, opset: int = 17) -> onnx.ModelProto:
    """A model of float32, or of float64, in which the order of a sum is hardly seen, where the operators know it."""
    if opset == 17 and not any(name in body for name in ("com.microsoft", "QuantizeLinear", "n, m")):
        inputs, outputs, stored = (text.replace("float", "double") for text in (inputs, outputs, stored))
    head = f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>'
    return onnx.parser.parse_model(f"{head} g ({inputs}) => ({outputs}) <{stored}> {{ {body} }}")


def same(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model simplified, which computes the same, but for the order in which a kernel sums the elements of one row."""
    draw, feeds = np.random.default_rng(0), {}
    for value in proto.graph.input:
        shape = [dim.dim_value or SIZES[dim.dim_param] for dim in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        feeds[value.name] = draw.standard_normal(shape).astype(dtype)
    return test_expands.same(proto, feeds)


def weights(shapes: dict[str, tuple[int, ...]], others: str) -> str:
    """Weights with drawn elements, as `onnx.parser` reads them, and others."""
    draw = np.random.default_rng(1)
    parts = [
        f"float[{', '.join(map(str, shape))}] {name} = {{{', '.join(f'{x:.3f}' for x in draw.standard_normal(shape).ravel())}}}"
        for name, shape in shapes.items()
    ]
    return ", ".join([*parts, others])


def encoder(end: str, others: str = FIRST, outputs: str = "float[B, C] y") -> onnx.ModelProto:
    """The last layer of an encoder, and what reads its result `whole`."""
    return parsed(ENCODER + end, INPUTS, outputs, weights(WEIGHTS, f"{ROWS}, {others}"))


def rows(proto: onnx.ModelProto) -> dict[str, int]:
    """Operator → how many nodes of it compute one row."""
    made = [node for node in proto.graph.node if any(name.endswith("__row") for name in node.output)]
    return {name: sum(node.op_type == name for node in made) for name in sorted({node.op_type for node in made})}


@pytest.mark.parametrize(
    ("end", "others"),
    [
        ("y = Gather<axis = 1>(whole, first)", FIRST),
        ("y = Gather<axis = -2>(whole, first)", FIRST),
        ("y = Gather<axis = 1>(whole, last)", "int64 last = {-1}"),
        ("y = Gather<axis = 1>(whole, third)", "int64 third = {2}"),
        ("one = Gather<axis = 1>(whole, first) y = Squeeze(one, axis)", "int64[1] first = {0}, int64[1] axis = {1}"),
        (
            "one = Slice(whole, start, end, axis) y = Squeeze(one, axis)",
            "int64[1] start = {0}, int64[1] end = {1}, int64[1] axis = {1}",
        ),
        (
            "one = Slice(whole, start, end, axis, step) y = Squeeze(one, axis)",
            "int64[1] start = {-1}, int64[1] end = {9223372036854775807}, int64[1] axis = {1}, int64[1] step = {1}",
        ),
        ("a = Gather<axis = 1>(whole, first) b = Gather<axis = 1>(whole, first) y = Add(a, b)", FIRST),
    ],
)
def test_the_last_layer_computes_the_token_that_is_read(end: str, others: str) -> None:
    """All but the keys and the values, which come from all tokens."""
    proto = encoder(end, others)
    written = same(proto)
    assert rows(written)["MatMul"] == 6 and operators(written)["MatMul"] == 8
    assert rows(written)["Softmax"] == rows(written)["LayerNormalization"] == rows(written)["Relu"] == 1


@pytest.mark.parametrize(
    ("end", "outputs"),
    [
        ("y = Gather<axis = 1>(whole, first)", "float[B, C] y, float[B, S, 8] whole"),
        ("y = Gather<axis = 1>(whole, first) z = ReduceMean<axes = [1]>(whole)", "float[B, C] y, float[B, D, 8] z"),
        ("a = Gather<axis = 1>(whole, first) b = Gather<axis = 1>(whole, second) y = Add(a, b)", "float[B, C] y"),
        ("y = Gather<axis = 2>(whole, first)", "float[B, C] y"),
        ("y = Gather<axis = 1>(whole, both)", "float[B, C, D] y"),
        ("s = Softmax<axis = 1>(whole) y = Gather<axis = 1>(s, first)", "float[B, C] y"),
        ("s = CumSum(whole, one) y = Gather<axis = 1>(s, first)", "float[B, C] y"),
        ("m = ReduceMax<axes = [1]>(whole) d = Sub(whole, m) y = Gather<axis = 1>(d, first)", "float[B, C] y"),
        ("n, m = LayerNormalization(whole, scale, shift) y = Gather<axis = 1>(n, first)", "float[B, C] y, float[B, S, D] m"),
        ("y = Slice(whole, start, end, axis)", "float[B, C, D] y"),
        ("n, s, z = DynamicQuantizeLinear(whole) f = DequantizeLinear(n, s, z) y = Gather<axis = 1>(f, first)", "float[B, C] y"),
    ],
)
def test_what_other_rows_need_stays(end: str, outputs: str) -> None:
    proto = encoder(end, f"{FIRST}, int64 second = {{1}}, int64[2] both = {{0, 1}}, int64 one = {{1}}, {NO_ROW}", outputs)
    assert "MatMul" not in rows(same(proto))


@pytest.mark.parametrize(
    ("end", "split"),
    [("y = Gather<axis = 1>(h, first)", 1), ("c = Gather<axis = 1>(h, first) m = ReduceMax(b) y = Add(c, m)", 0)],
)
def test_both_halves_of_a_gate_are_computed_for_one_token_or_none(end: str, split: int) -> None:
    body = f"p = MatMul(x, w1) a, b = Split<axis = -1>(p, halves) g = Sigmoid(a) h = Mul(g, b) {end}"
    stored = weights({"w1": (8, 16)}, f"{FIRST}, int64[2] halves = {{8, 8}}")
    assert rows(same(parsed(body, INPUTS, "float[B, C] y", stored))).get("Split", 0) == split


def test_halves_of_which_a_row_and_a_column_are_read_are_computed_as_a_whole() -> None:
    end = "t = Transpose<perm = [0, 2, 1]>(b) d = Add(a, t) y = Gather<axis = 1>(d, first)"
    body = f"p = MatMul(x, w) a, b = Split<axis = -1>(p, halves) {end}"
    stored = weights({"w": (8, 10)}, f"{FIRST}, int64[2] halves = {{5, 5}}")
    assert "Split" not in rows(same(parsed(body, "float[B, 5, 8] x", "float[B, C] y", stored)))


def test_a_mean_beside_a_normalization_is_computed_for_one_token_too() -> None:
    body = "p = MatMul(x, w) n, m = LayerNormalization(p, scale) d = Sub(n, m) y = Gather<axis = 1>(d, first)"
    stored = weights({"w": (8, 8), "scale": (8,)}, FIRST)
    assert rows(same(parsed(body, "float[B, S, 8] x", "float[B, C] y", stored)))["LayerNormalization"] == 1


def test_what_is_an_output_is_computed_as_a_whole() -> None:
    proto = encoder("y = Gather<axis = 1>(whole, first)", outputs="float[B, C] y, float[B, S, 8] norm")
    assert rows(same(proto))["MatMul"] == 2


def test_a_value_of_which_a_row_and_a_column_are_read_is_computed_as_a_whole() -> None:
    body = "s = MatMul(x, w) t = Transpose<perm = [0, 2, 1]>(s) d = Add(s, t) y = Gather<axis = 1>(d, first)"
    proto = parsed(body, "float[B, 5, 8] x", "float[B, C] y", weights({"w": (8, 5)}, FIRST))
    assert not rows(same(proto))


@pytest.mark.parametrize("layer", [ENCODER, "whole = MatMul(x, wq)"])
def test_one_row_alone_is_left_as_it_is(layer: str) -> None:
    """A step of a decoder has one token already."""
    inputs = "float[B, 1, 8] x, float[B, 1, 1, 1] mask"
    stored = weights(WEIGHTS, f"{ROWS}, {FIRST}")
    model = ir.from_proto(parsed(f"{layer} y = Gather<axis = 1>(whole, first)", inputs, "float[B, C] y", stored))
    infer_shapes(model)
    assert not compute_read_rows(model)


def test_a_target_that_is_computed_in_the_run_gets_one_row() -> None:
    """As TorchScript's exporter computes them; this comes before anything is simplified."""
    body = """
      sizes = Shape(x) batch = Slice(sizes, zero, one) length = Slice(sizes, one, two)
      apart = Concat<axis = 0>(batch, length, two, four) whole = Concat<axis = 0>(batch, length, eight)
      p = MatMul(x, w) h = Reshape(p, apart) t = Transpose<perm = [0, 2, 1, 3]>(h) r = Relu(t)
      b = Transpose<perm = [0, 2, 1, 3]>(r) f = Reshape(b, whole) y = Gather<axis = 1>(f, first)
    """
    stored = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] four = {4}, int64[1] eight = {8}"
    proto = parsed(body, "float[B, S, 8] x", "float[B, C] y", weights({"w": (8, 8)}, f"{stored}, {FIRST}"))
    model = ir.from_proto(proto)
    infer_shapes(model)
    assert compute_read_rows(model).narrowed == 6
    with declared_only(model):
        written = ir.to_proto(model)
    assert rows(written) == {"MatMul": 1, "Relu": 1, "Reshape": 2, "Transpose": 2}
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 5, 8))}
    np.testing.assert_allclose(run(written, feeds)[0], run(proto, feeds)[0], rtol=1e-9)


def test_an_operator_before_indices_from_the_end_is_left_as_it_is() -> None:
    proto = parsed(
        "p = MatMul(x, w) y = Gather<axis = 1>(p, first)", "float[B, S, 8] x", "float[B, C] y", weights({"w": (8, 8)}, FIRST), 10
    )
    assert not rows(simplified(proto)[1])


def test_no_row_is_taken_where_no_product_gets_smaller() -> None:
    proto = parsed("a = Add(x, x) r = Relu(a) y = Gather<axis = 1>(r, first)", "float[B, S, 8] x", "float[B, C] y", FIRST)
    assert operators(simplified(proto)[1]) == operators(proto)


CONTRIB = {
    "BiasGelu": ("y1 = com.microsoft.BiasGelu(p, bias)", "float[8] bias = {1, 2, 3, 4, 5, 6, 7, 8}"),
    "QuickGelu": ("y1 = com.microsoft.QuickGelu(p)", ""),
    "SkipLayerNormalization": (
        "y1 = com.microsoft.SkipLayerNormalization(p, x, bias)",
        "float[8] bias = {1, 2, 3, 4, 5, 6, 7, 8}",
    ),
    "FusedMatMul": ("y1 = com.microsoft.FusedMatMul<alpha = 2.0, transB = 1>(p, w)", ""),
    "MultiHeadAttention": ("y1 = com.microsoft.MultiHeadAttention<num_heads = 2>(p, x, x, , , mask)", ""),
    "Attention": ("y1 = Attention<q_num_heads = 2, kv_num_heads = 2>(p, x, x, mask)", ""),
}


@pytest.mark.parametrize("name", CONTRIB)
def test_one_row_goes_through_operators_of_one_row(name: str) -> None:
    end, others = CONTRIB[name]
    proto = parsed(
        f"p = MatMul(x, w) {end} y = Gather<axis = 1>(y1, first)",
        INPUTS,
        "float[B, C] y",
        weights({"w": (8, 8)}, ", ".join(filter(None, (FIRST, others)))),
        opset=23,
    )
    assert rows(same(proto)) == {name: 1, "MatMul": 1}


@pytest.mark.parametrize(
    "end",
    [
        "y1 = Attention<q_num_heads = 2, kv_num_heads = 2, is_causal = 1>(p, x, x)",
        "y1 = com.microsoft.MultiHeadAttention<num_heads = 2, unidirectional = 1>(p, x, x)",
        "y1 = com.microsoft.FusedMatMul<transBatchA = 1>(p, w)",
        "r, k = com.microsoft.MultiHeadAttention<num_heads = 2>(p, x, x) m = ReduceMax(k) y1 = Add(r, m)",
    ],
)
def test_a_row_whose_place_matters_is_computed_with_the_others(end: str) -> None:
    others = "float[8, 8] w = {" + ", ".join(["0.5"] * 64) + f"}}, {FIRST}"
    proto = parsed(f"p = MatMul(x, w) {end} y = Gather<axis = 1>(y1, first)", INPUTS, "float[B, C] y", others, opset=23)
    assert not rows(simplified(proto)[1])


STEPS = {
    "relu": "{0} = Relu({1})",
    "bias": "{0} = Add({1}, bias)",
    "each": "{0} = Mul(each, {1})",
    "own": "{0} = Sub({1}, x)",
    "of_rows": "{0} = Mul({1}, of_rows)",
    "norm": "{0} = LayerNormalization<axis = -1>({1}, bias)",
    "product": "{0} = MatMul({1}, w)",
    "softmax": "{0} = Softmax<axis = -1>({1})",
    "softmax_rows": "{0} = Softmax<axis = 1>({1})",
    "mean": "m{0} = ReduceMean<axes = [2]>({1}) {0} = Sub({1}, m{0})",
    "mean_dropped": "m{0} = ReduceMean<axes = [2], keepdims = 0>({1}) u{0} = Unsqueeze(m{0}, two) {0} = Add({1}, u{0})",
    "mean_rows": "m{0} = ReduceMean<axes = [1]>({1}) {0} = Sub({1}, m{0})",
    "mix": "t{0} = Transpose<perm = [0, 2, 1]>({1}) s{0} = MatMul({1}, t{0}) {0} = MatMul(s{0}, x)",
    "heads": "r{0} = Reshape({1}, heads) t{0} = Transpose<perm = [2, 0, 1, 3]>(r{0}) a{0} = Abs(t{0}) "
    "b{0} = Transpose<perm = [1, 2, 0, 3]>(a{0}) {0} = Reshape(b{0}, flat)",
    "halves": "a{0} = Slice({1}, zero, four, two) b{0} = Slice({1}, four, eight, two) {0} = Concat<axis = -1>(b{0}, a{0})",
    "gate": "a{0}, b{0} = Split<axis = -1>({1}, four_four) g{0} = Sigmoid(b{0}) h{0} = Mul(a{0}, g{0}) "
    "{0} = Concat<axis = 2>(h{0}, a{0})",
    "parts_of_rows": "a{0}, b{0} = Split<axis = 1>({1}, one_four) {0} = Concat<axis = 1>(b{0}, a{0})",
    "where": "c{0} = Less({1}, bias) {0} = Where(c{0}, {1}, x)",
    "clip": "{0} = Clip({1}, low)",
}
CONSTANTS = (
    "int64[4] heads = {0, 0, 2, 4}, int64[3] flat = {0, 0, 8}, int64[1] zero = {0}, int64[1] two = {2}, int64[1] four = {4}, "
    "int64[1] eight = {8}, int64[2] one_four = {1, 4}, int64[2] four_four = {4, 4}, float low = {-0.5}"
)


@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=7), st.sampled_from([0, 1, -1, -2]), st.booleans())
def test_any_chain_computes_the_same(steps: list[str], index: int, is_static: bool) -> None:
    """Whatever is between products and the row that is read."""
    lines, value = ["v0 = MatMul(x, w)"], "v0"
    for number, step in enumerate(steps, 1):
        lines.append(STEPS[step].format(f"v{number}", value))
        value = f"v{number}"
    batch, length = ("2", "5") if is_static else ("B", "S")
    proto = parsed(
        " ".join([*lines, f"y = Gather<axis = 1>({value}, row)"]),
        f"float[{batch}, {length}, 8] x, float[{batch}, {length}, 1] each, float[1, {length}, 1] of_rows",
        "float[B, C] y",
        weights({"w": (8, 8), "bias": (8,)}, f"{CONSTANTS}, int64 row = {{{index}}}"),
    )
    same(proto)
