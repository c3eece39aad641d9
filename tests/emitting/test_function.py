"""The `function` target: the model contains the definitions of the operators that it calls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph.emitting import function
from onnx_subgraph.emitting.refused import Unloadable
from tests.rewriting.stage import pattern, rewritten, run

SILU = pattern("y = x * Sigmoid(x) | x * Sigmoid(a * x)", example='{x: "float32[2, 8]", a: "float32[]"}', id_="swish")
NORM = pattern(
    "n = x / Sqrt(ReduceMean(x ** 2, axes=[-1], keepdims=1) + eps)\ny = n * scale",
    example='{x: "float32[2, 8]", eps: 1e-5, scale: "float32[8]"}',
    id_="rms-norm",
)


def test_the_model_is_complete_and_runs_in_any_runtime(draw: Callable[..., np.ndarray]) -> None:
    text = """<ir_version: 7, opset_import: ["": 13]>
    g (float[N, 4] x) => (float[N, 4] z) { s = Sigmoid(x) y = Mul(s, x) t = Sigmoid(y) z = Mul(y, t) }"""
    stage = rewritten(text, SILU, target="function")
    assert stage.operators == ["onnx_subgraph.Swish", "onnx_subgraph.Swish"]
    assert [f.name for f in stage.after.functions] == ["Swish"], "sites with the same definition share it"
    assert stage.after.ir_version == 8 and all(r.body for r in stage.rewrites)
    onnx.checker.check_model(stage.after)
    stage.agrees({"x": draw(3, 4)})


def test_a_second_definition_of_a_pattern_gets_a_number(draw: Callable[..., np.ndarray]) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x) => (float[N, 4] z) <float k = {1.702}>
    { s = Sigmoid(x) y = Mul(s, x) b = Mul(k, y) t = Sigmoid(b) z = Mul(y, t) }"""
    stage = rewritten(text, SILU, target="function")
    assert sorted(f.name for f in stage.after.functions) == ["Swish", "Swish_2"]
    stage.agrees({"x": draw(3, 4)})


def test_the_next_round_reuses_a_definition(draw: Callable[..., np.ndarray]) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x) => (float[N, 4] z) { s = Sigmoid(x) y = Mul(s, x) t = Sigmoid(y) z = Mul(y, t) }"""
    once = rewritten(text, SILU, target="function")
    again = rewritten(once.after, SILU, target="function")
    assert not again.rewrites and [f.name for f in again.after.functions] == ["Swish"]


def test_literals_and_static_captures_are_part_of_the_definition(draw: Callable[..., np.ndarray]) -> None:
    text = """<ir_version: 8, opset_import: ["": 18]>
    g (double[N, 4] x, double[4] w) => (double[N, 4] y) <double two = {2.0}, double e = {0.001}, int64[1] last = {-1}>
    { p = Pow(x, two) m = ReduceMean<keepdims = 1>(p, last) a = Add(m, e) r = Sqrt(a) n = Div(x, r) y = Mul(n, w) }"""
    stage = rewritten(text, NORM, target="function")
    assert stage.operators == ["onnx_subgraph.RmsNorm"], stage.skips
    onnx.checker.check_model(stage.after)
    stage.agrees({"x": draw(3, 4, dtype="float64"), "w": draw(4, dtype="float64")})


def test_float16_and_float32_sites_have_constants_of_their_dtype(draw: Callable[..., np.ndarray]) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x, float16[N, 4] h) => (float[N, 4] y, float16[N, 4] z) <float two = {2.0}>
    { pair = Cast<to = 10>(two) a = Mul(x, two) y = Relu(a) b = Mul(h, pair) z = Relu(b) }"""
    twice = pattern("y = Relu(2 * x)", example='{x: "float32[2, 8]"}', id_="twice")
    stage = rewritten(text, twice, target="function")
    assert len(stage.rewrites) == 2
    stage.agrees({"x": draw(3, 4), "h": draw(3, 4, dtype="float16")})


def test_a_definition_computes_at_least_as_precisely_as_the_match(draw: Callable[..., np.ndarray]) -> None:
    """Exporters normalise float16 values in float32, because squares of 300 overflow in float16."""
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float16[N, 4] h, float16[4] w) => (float16[N, 4] y) <float two = {2.0}, float e = {0.00001}>
    { x = Cast<to = 1>(h) p = Pow(x, two) m = ReduceMean<axes = [-1], keepdims = 1>(p) a = Add(m, e) r = Sqrt(a) n = Div(x, r)
      k = Cast<to = 10>(n) y = Mul(k, w) }"""
    mixed = pattern(
        "n = x / Sqrt(ReduceMean(x ** 2, axes=[-1], keepdims=1) + eps)\ny = n * scale",
        example='{x: "float32[2, 8]", eps: 1e-5, scale: "float32[8]"}',
        id_="rms-norm",
        extra="mixed-precision: true",
    )
    stage = rewritten(text, mixed, target="function")
    assert stage.operators == ["onnx_subgraph.RmsNorm"]
    (found,) = run(stage.after, {"h": draw(3, 4, dtype="float16") * np.float16(300), "w": np.ones(4, np.float16)})
    assert found.dtype == np.float16 and 0.1 < np.abs(found.astype(np.float32)).max() < 4


def test_many_sites_share_one_definition_and_the_model_has_no_metadata_of_the_tool() -> None:
    twice = pattern("y = Relu(2 * x)", example='{x: "float32[2, 8]"}', id_="twice")
    lines = " ".join(f"a{i} = Mul(x{i}, two) x{i + 1} = Relu(a{i})" for i in range(5))
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x0) => (float[N, 4] y) <float two = {{2.0}}> {{ {lines} y = Neg(x5) }}"""
    stage = rewritten(text, twice, target="function")
    assert len(stage.rewrites) == 5
    (definition,) = stage.after.functions
    assert not any(v.metadata_props for v in (*stage.after.graph.value_info, *definition.value_info))


EITHER = pattern("y = (Exp | Tanh)(x + b)", example='{x: "float32[2, 4]", b: "float32[4]"}', id_="either")


def test_the_definition_has_the_operator_that_matched(draw: Callable[..., np.ndarray]) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x, float[4] b) => (float[N, 4] y, float[N, 4] z) { s = Add(x, b) y = Exp(s) t = Add(y, b) z = Tanh(t) }"""
    stage = rewritten(text, EITHER, target="function")
    assert stage.operators == ["onnx_subgraph.Either", "onnx_subgraph.Either_2"]
    stage.agrees({"x": draw(3, 4), "b": draw(4)})


def test_a_function_of_the_model_gets_no_operator_that_crashes_onnxruntime() -> None:
    """SimplifiedLayerNormalization is onnxruntime's own, in the default domain. In a function it ends the process."""
    rms = pattern(
        "y = x / Sqrt(ReduceMean(x ** 2, axes=[-1], keepdims=1) + eps) * scale",
        example='{x: "float32[2, 8]", eps: 1e-5, scale: "float32[8]"}',
        onnxruntime="y = SimplifiedLayerNormalization(x, scale, epsilon=eps)",
    )
    norm = "{ p = Mul(x, x) m = ReduceMean<axes = [-1]>(p) a = Add(m, e) r = Sqrt(a) n = Div(x, r) y = Mul(n, w) }"
    header = '<ir_version: 8, opset_import: ["": 17, "local": 1]>\n'
    plain = header + f"g (float[N, 8] x, float[8] w) => (float[N, 8] y) <float e = {{0.001}}> {norm}"
    assert rewritten(plain, rms).operators == ["SimplifiedLayerNormalization"]
    called = header + "g (float[N, 8] x, float[8] w) => (float[N, 8] y) { y = local.F(x, w) }"
    body = f'<domain: "local", opset_import: ["": 17]> F (x, w) => (y) {norm}'
    constant = body.replace("{ p", "{ e = Constant<value = float {0.001}>() p")
    assert "the body of a function would hold SimplifiedLayerNormalization" in rewritten(f"{called}\n{constant}", rms).reason


GELU = pattern("y = 0.5 * x * (1 + Erf(x / sqrt(2)))", example='{x: "float32[2, 8]"}', id_="gelu", extra="mixed-precision: true")


def test_a_value_that_is_cast_and_cast_back_does_not_decide_the_precision(draw: Callable[..., np.ndarray]) -> None:
    """No operator computes in double, and Erf has no double kernel."""
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x) => (float[N, 4] y) <float root = {1.4142135}, float one = {1}, float half = {0.5}>
    { d = Div(x, root) e = Erf(d) t = Cast<to = 11>(e) f = Cast<to = 1>(t) s = Add(f, one) m = Mul(x, s) y = Mul(m, half) }"""
    stage = rewritten(text, GELU, target="function")
    assert stage.operators == ["onnx_subgraph.Gelu"]
    stage.agrees({"x": draw(3, 4)})


def test_a_definition_in_another_precision_has_to_load() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x) => (float[N, 4] y) <float root = {1.4142135}, double one = {1}, float half = {0.5}>
    { d = Div(x, root) e = Erf(d) t = Cast<to = 11>(e) s = Add(t, one) f = Cast<to = 1>(s) m = Mul(x, f) y = Mul(m, half) }"""
    assert "does not load Erf: no kernel for double" in rewritten(text, GELU, target="function").reason


def test_an_operator_that_onnxruntime_does_not_infer_in_a_body_is_refused_there() -> None:
    node = ir.node("EmbedLayerNormalization", [None], domain="com.microsoft")
    with pytest.raises(Unloadable, match="does not load EmbedLayerNormalization in the body of a function"):
        function.check_body([node])


SPREAD = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 8] x, float[N, 1] n, int64[2] s) => (float[N, 8] y) {
    t = Shape (x) e = Expand (n, t) a = Abs (e) y = Div (x, a) }"""


def test_a_function_that_is_the_match_has_its_shape_and_a_replacement_must_show_it() -> None:
    """The body of the function does not know the shape that is one of its inputs."""
    example = '{x: "float32[2, 8]", n: "float32[2, 1]", s: [2, 8]}'
    spread = pattern("y = x / Abs(Expand(n, s))", example=example, standard="y = Expand(Abs(n), s) * x")
    stage = rewritten(SPREAD, spread, target="function")
    assert stage.operators == ["Shape", "onnx_subgraph.Fused"]
    stage.agrees({"x": np.ones((3, 8), np.float32), "n": np.full((3, 1), 2, np.float32), "s": np.array([3, 8])})
    hidden = SPREAD.replace("t = Shape (x) e = Expand (n, t)", "e = Expand (n, s)")
    assert "can't be shown to be the same: [N,8] and unknown" in rewritten(hidden, spread, target="standard").reason


def test_a_body_that_would_lack_an_attribute_is_refused() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float16[N, 8] x) => (double[N, 8] y) { w = Cast<to = 1>(x) y = Cast<to = 11>(w) }"""
    casts = pattern("y = Cast(Cast(x, to=_), to=to)", example='{x: "float16[2, 8]", to: 11}', standard="y = Cast(x, to=to)")
    assert rewritten(text, casts, target="function").reason == (
        "the pattern does not give `to` of the Cast in the body of a function"
    )
    assert rewritten(text, casts, target="standard").operators == ["Cast"]


def test_numbers_beside_which_nothing_has_a_dtype_have_that_of_the_node(draw: Callable[..., np.ndarray]) -> None:
    """A Where of two numbers: only its result says that they are floats."""
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (bool[N, 4] m, bool[N, 4] n) => (float[N, 4] y, float16[N, 4] z) <float low = {-8}, float one = {-1}>
    { w = Where(m, low, one) y = Abs(w) a = Cast<to = 10>(low) b = Cast<to = 10>(one) v = Where(n, a, b) z = Abs(v) }"""
    stage = rewritten(text, pattern("y = Abs(Where(x, -8, -1))", example='{x: "bool[2, 8]"}', id_="chosen"), target="function")
    assert len(stage.rewrites) == 2, stage.skips
    stage.agrees({"m": draw(3, 4) > 0, "n": draw(3, 4) > 0})
