"""What a match may remove: nothing that another node or output needs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnx_subgraph.matching.find import find
from tests.rewriting.stage import applied, by_hand, pattern, read, run

GELU = pattern(
    "y = 0.5 * x * (1 + Erf(x / sqrt(2)))", example='{x: "float32[2, 8]"}', id_="gelu", onnxruntime="y = com.microsoft.Gelu(x)"
)
BODY = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 4] x, bool flag) => (float[N, 4] z{outputs})
<float half = {{0.5}}, float r = {{1.4142135}}, float one = {{1.0}}>
{{
  a = Mul(x, half)
  b = Div(x, r)
  c = Erf(b)
  d = Add(c, one)
  y = Mul(a, d)
  {lines}
}}"""


def gelu(lines: str = "", outputs: str = "") -> ir.Model:
    return read(BODY.format(lines="z = Neg(y)\n" + lines if "z =" not in lines else lines, outputs=outputs))


def fuse(model: ir.Model) -> str:
    """The reason why the Gelu is not fused, or ""."""
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    rewrites, skips = applied(model, by_hand(model, GELU, "a b c d y", x="x", y="y"))
    if rewrites:
        assert not skips
        return ""
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before, "a refusal leaves no trace"
    return skips[0].reason


@pytest.mark.parametrize(
    ("lines", "outputs", "reason"),
    [
        ("w = Relu(c)", ", float[N, 4] w", "the inner value c is also used by Relu"),
        ("", ", float[N, 4] c", "the inner value c is an output of the graph"),
        ("", ", float[N, 4] a, float[N, 4] d", "is an output of the graph"),
        (
            """w = If(flag) <then_branch = t () => (float[N, 4] p) { p = Relu(c) },
                             else_branch = e () => (float[N, 4] q) { q = Neg(x) }>""",
            ", float[N, 4] w",
            "the inner value c is also used by Relu, in a nested body",
        ),
        ("w = Gather(x, i)\n i = ArgMax(c)", ", float w", "the inner value c is also used by ArgMax"),
    ],
)
def test_an_inner_value_with_other_readers_prevents_the_fusion(lines: str, outputs: str, reason: str) -> None:
    if "Gather" in lines:
        lines = "i = ArgMax<axis = 1>(c)\n w = Gather(x, i)"
        outputs = ", float[N, 1, 4] w"
    assert reason in fuse(gelu(lines, outputs))


def test_a_result_may_have_any_readers() -> None:
    lines = """z = If(flag) <then_branch = t () => (float[N, 4] p) { p = Relu(y) },
                            else_branch = e () => (float[N, 4] q) { q = Neg(y) }>"""
    model = gelu(lines, ", float[N, 4] y")
    assert fuse(model) == ""
    assert [o.name for o in model.graph.outputs] == ["z", "y"]
    x = np.ones((2, 4), np.float32)
    assert all(np.isfinite(v).all() for v in run(ir.to_proto(model), {"x": x, "flag": np.array(True)}))


def test_arithmetic_that_only_the_match_reads_is_removed_with_it() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x) => (float[N, 4] y) <int64[1] zero = {0}, int64[1] four = {4}>
    {
      a = Relu(x)
      s = Shape(a)
      n = Gather(s, zero)
      t = Concat<axis = 0>(n, four)
      b = Reshape(a, t)
      y = Neg(b)
    }"""
    relu = pattern("y = -Relu(x)", example='{x: "float32[2, 8]"}', onnxruntime="y = -Relu(x)")
    model = read(text)
    rewrites, skips = applied(model, by_hand(model, relu, "a b y", x="x", y="y"))
    assert not skips
    assert [n.op_type for n in model.graph] == ["Relu", "Neg"]
    assert rewrites[0].replaces == ("a", "s", "n", "t", "b", "y")
    assert not model.graph.initializers, "what only the dead arithmetic read goes as well"


def test_a_node_whose_result_the_replacement_reads_does_not_die_with_the_match() -> None:
    """The match alone reads z, but so does its replacement. Then the inner value t, which z needs, has a reader that stays."""
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x) => (float[N, 4] y) { t = Tanh(x) z = Neg(t) y = Mul(t, z) }"""
    product = pattern("y = Tanh(x) * z", example='{"x, z": "float32[2, 8]"}', onnxruntime="y = Sin(x) * z")
    model = read(text)
    assert not find(model, [product]).matches
    rewrites, (skip,) = applied(model, by_hand(model, product, "t y", x="x", z="z", y="y"))
    assert not rewrites and skip.reason == "the inner value t is also used by Neg"


def test_a_node_that_was_unread_before_stays() -> None:
    model = gelu("unread = Relu(y)\n other = Neg(x)\n orphan = Exp(other)")
    assert fuse(model) == ""
    assert [n.op_type for n in model.graph] == ["Gelu", "Neg", "Relu", "Neg", "Exp"]


def test_an_unread_reader_of_an_inner_value_is_removed_with_it() -> None:
    model = gelu("unread = Relu(c)")
    assert fuse(model) == ""
    assert [n.op_type for n in model.graph] == ["Gelu", "Neg"]


def test_a_shape_of_a_removed_value_is_read_elsewhere() -> None:
    model = gelu("s = Shape(c)", ", int64[2] s")
    assert fuse(model) == ""
    (shape,) = (n for n in model.graph if n.op_type == "Shape")
    assert shape.inputs[0] is model.graph.inputs[0]


@pytest.mark.parametrize("part", ["", " <start = 0>", " <start = 1>", " <end = -1>"])
def test_a_shape_is_computed_from_remaining_values(part: str) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, S] x, float[S, M] w) => (float[N, M] y, int64[k] t) <int64[1] k = {0}>
    {
      a = MatMul(x, w)
      b = Transpose(a)
      s = Shape PART (b)
      t = Add(s, k)
      c = Transpose(b)
      y = Relu(c)
    }"""
    plain = pattern("y = Relu(x @ w)", example='{x: "float32[2, 8]", w: "float32[8, 3]"}', onnxruntime="y = Relu(x @ w)")
    model = read(text.replace("PART", part))
    before = ir.to_proto(model)
    rewrites, skips = applied(model, by_hand(model, plain, "a b c y", x="x", w="w", y="y"))
    assert rewrites and not skips
    feeds = {"x": np.ones((3, 4), np.float32), "w": np.ones((4, 5), np.float32)}
    for was, now in zip(run(before, feeds), run(ir.to_proto(model), feeds), strict=True):
        np.testing.assert_array_equal(was, now)


def test_a_cast_before_the_match_with_other_readers_stays() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float16[N, 4] h) => (float[N, 4] y, float[N, 4] z) <float half = {0.5}, float r = {1.4142135}, float one = {1.0}>
    {
      x = Cast<to = 1>(h)
      i = Identity(x)
      z = Neg(i)
      a = Mul(i, half)
      b = Div(i, r)
      c = Erf(b)
      d = Add(c, one)
      y = Mul(a, d)
    }"""
    model = read(text)
    rewrites, skips = applied(model, by_hand(model, GELU, "i a b c d y", x="x", y="y"))
    assert not skips
    assert [n.op_type for n in model.graph] == ["Cast", "Identity", "Neg", "Gelu"]
    assert "i" not in rewrites[0].replaces
