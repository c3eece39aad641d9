"""A sum with 0 is left out where no operator tells -0 from 0, and stays where one may."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph import Options, fuse, load_patterns
from onnx_subgraph.simplification.simplify_first import simplify_first
from onnx_subgraph.simplification.zero_addends import SAME
from tests.simplification.test_simplify import operators, parsed, run, simplified

INPUTS = "float[N, 4] x"
WEIGHTS = """float zero = {0}, float[1] axis = {0}, float[1, 1, 1] axes = {0}, float[4] bias = {1, 2, -1, 3}, float two = {2},
  float less = {-2}, float[4] some = {1, 0, 2, 3}, float[4] zeros = {0, 0, 0, 0}, float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9,
  8, 7, 6, 5, 4, 3, 2}, int64[1] none = {0}"""
LEFT_OUT = {
    "that a product reads": "a = Add(x, zero) y = MatMul(a, w)",
    "of one axis": "a = Add(axis, x) y = MatMul(a, w)",
    "that the output shows": "a = Add(x, zero) y = Neg(a)",
    "before an exponential": "a = Add(x, zero) b = Exp(a) y = Reciprocal(b)",
    "twice": "a = Add(x, zero) b = Add(a, zero) y = Mul(b, two)",
    "behind a factor, as Paddle writes a scale": "s = Mul(x, two) a = Add(s, zero) y = MatMul(a, w)",
    "before a variance that is divided by": """a = Add(x, zero) m = ReduceMean<axes = [1]>(a) c = Sub(a, m) q = Pow(c, two)
        v = ReduceMean<axes = [1]>(q) e = Add(v, two) d = Sqrt(e) y = Div(c, d)""",
    "before a sum that is divided by": "a = Add(x, zero) b = Add(a, bias) y = Reciprocal(b)",
    "before a lower bound that is divided by": "a = Add(x, zero) b = Max(a, two) y = Reciprocal(b)",
    "before a Clip that is divided by": "a = Add(x, zero) b = Clip(a, two) y = Reciprocal(b)",
    "of integers": "i = Cast<to = 7>(x) a = Add(i, none) y = Cast<to = 1>(a)",
    "of indices": "i = Cast<to = 7>(x) a = Add(i, none) y = Gather(bias, a)",
    "of an exponent": "a = Add(x, zero) b = Pow(two, a) y = Reciprocal(b)",
    "that becomes integers": "a = Add(x, zero) i = Cast<to = 7>(a) f = Cast<to = 1>(i) y = Reciprocal(f)",
}
KEPT = {
    "that is divided by": "a = Add(x, zero) y = Reciprocal(a)",
    "that something is divided by": "a = Add(x, zero) y = Div(x, a)",
    "that has a negative power": "a = Add(x, zero) y = Pow(a, less)",
    "behind a product": "a = Add(x, zero) b = Mul(a, two) y = Reciprocal(b)",
    "behind a layout and a product": "a = Add(x, zero) b = Transpose(a) c = MatMul(b, a) y = Reciprocal(c)",
    "behind a sum that may keep it": "a = Add(x, zero) b = Add(a, some) y = Reciprocal(b)",
    "behind a bound below": "a = Add(x, zero) b = Max(a, less) y = Reciprocal(b)",
    "behind a Cast to another float": "a = Add(x, zero) d = Cast<to = 11>(a) e = Reciprocal(d) y = Cast<to = 1>(e)",
    "that is an output": "y = Add(x, zero)",
    "of more axes": "a = Add(x, axes) b = Neg(a) y = Squeeze(b, none)",
    "of several zeros": "a = Add(x, zeros) y = Neg(a)",
    "that a body reads": """a = Add(x, zero) n = ReduceSum<keepdims = 0>(x) c = Greater(n, zero)
        y = If(c) <then_branch = t () => (float[N, 4] s) {s = Reciprocal(a)},
        else_branch = e () => (float[N, 4] r) {r = Neg(x)}>""",
    "behind a Clip below": "a = Add(x, zero) b = Clip(a, less) y = Reciprocal(b)",
    "that another operator reads": "a = Add(x, zero) y = Hardmax(a)",
}


def feeds() -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    x[:, :2] = [0.0, -0.0]
    return {"x": x}


@pytest.mark.parametrize("body", LEFT_OUT.values(), ids=LEFT_OUT)
def test_it_is_left_out(body: str) -> None:
    model = parsed(body, INPUTS, weights=WEIGHTS)
    found, written = simplified(model)
    assert found.passed and not any("zero" in node.input or "axis" in node.input for node in written.graph.node)
    assert np.array_equal(run(written, feeds())[0], run(model, feeds())[0], equal_nan=True)


@pytest.mark.parametrize("body", KEPT.values(), ids=KEPT)
def test_it_stays(body: str) -> None:
    model = parsed(body, INPUTS, weights=WEIGHTS)
    written = simplified(model)[1]
    assert operators(written)["Add"] == operators(model)["Add"]


@pytest.mark.parametrize("scale", ["Mul(x, two)", "Div(x, two)"])
def test_a_sum_with_a_product_is_left_out_before_patterns(scale: str) -> None:
    """Patterns may write operators that are not known to pass the sign on."""
    model = parsed(f"s = {scale} a = Add(zero, s) y = Erf(a)", INPUTS, weights=WEIGHTS)
    found, written = simplified(model, simplify_first)
    assert found.passed == 1 and operators(written) == {scale[:3]: 1, "Erf": 1}
    assert not simplify_first(ir.from_proto(written))


def test_other_sums_stay_for_the_formulas_that_have_them(tmp_path: Path) -> None:
    """As the definition of Shrink, with a bias of 0."""
    body = """p = Mul(x, two) q = Add(p, zero) r = Neg(q) t = CastLike(two, r) b = CastLike(zero, r) n = Neg(t) l = Less(r, n)
      a = Add(r, b) s = Sub(r, b) g = Less(t, r) z = Where(g, s, b) y = Where(l, a, z)"""
    model = parsed(body, INPUTS, "float[N, 4] y", WEIGHTS)
    model.opset_import[0].version = 18
    onnx.save(model, tmp_path / "m.onnx")
    fuse(tmp_path / "m.onnx", tmp_path / "o.onnx", load_patterns(), Options(prefer="fusion"))
    assert operators(onnx.load(tmp_path / "o.onnx"))["Shrink"] == 1


STEPS = [
    *(
        "Neg({})",
        "Abs({})",
        "Relu({})",
        "Tanh({})",
        "Exp({})",
        "Sqrt({})",
        "Reciprocal({})",
        "Softmax({})",
        "Sign({})",
        "Erf({})",
    ),
    *("Mul({}, two)", "Mul({}, bias)", "Add({}, bias)", "Add({}, some)", "Add({}, zero)", "Sub({}, some)", "Sub(zero, {})"),
    *("Div({}, two)", "Div(x, {})", "Div(bias, {})", "Pow({}, two)", "Pow({}, less)", "Pow(two, {})", "MatMul({}, w)"),
    *(
        "Max({}, two)",
        "Max({}, less)",
        "Min({}, two)",
        "Clip({}, two)",
        "Clip({}, less)",
        "Where(c, {}, x)",
        "Where(c, bias, {})",
    ),
]


@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=5))
def test_only_signs_of_zeros_change(steps: list[str]) -> None:
    lines = [f"v{index + 1} = {step.format(f'v{index}')}" for index, step in enumerate(steps)]
    body = " ".join(["c = Greater(x, two) v0 = Add(x, zero)", *lines, f"y = Neg(v{len(steps)})"])
    model = parsed(body, INPUTS, weights=WEIGHTS)
    assert np.array_equal(run(simplified(model)[1], feeds())[0], run(model, feeds())[0], equal_nan=True)


def test_operators_of_another_domain_may_tell_zeros() -> None:
    model = parsed("a = Add(x, zero) y = own.Neg(a)", INPUTS, weights=WEIGHTS)
    model.opset_import.add(domain="own", version=1)
    assert operators(simplified(model)[1])["Add"] == 1


def test_a_sum_that_a_body_gives_may_be_divided_by_outside() -> None:
    body = """n = ReduceSum<keepdims = 0>(x) c = Greater(n, zero)
      b = If(c) <then_branch = t () => (float[N, 4] s) {z = Add(x, zero) s = Abs(z)}, else_branch = e () => (float[N, 4] r)
      {z = Add(x, zero) r = Neg(z)}> y = Reciprocal(b)"""
    written = simplified(parsed(body, INPUTS, weights=WEIGHTS))[1]
    (branches,) = [node for node in written.graph.node if node.op_type == "If"]
    assert [[inner.op_type for inner in branch.g.node] for branch in branches.attribute] == [["Abs"], ["Add", "Neg"]]


W = [*map(float, np.random.default_rng(0).standard_normal(32).round(3))]
TWO = "Add Sub Mul Max Min MatMul PRelu Equal Greater GreaterOrEqual Less LessOrEqual Mean Sum"
ELEMENTWISE = (
    "Asin Asinh Atan Ceil Celu Elu Erf Floor Gelu HardSigmoid HardSwish LeakyRelu Mish Neg Relu Round Selu Sign Sin Sinh Softsign"
)
CALLS = {
    **{name: f"{name}(x)" for name in (*ELEMENTWISE.split(), "Sqrt", "Tan", "Tanh", "GlobalAveragePool", "GlobalMaxPool")},
    **{name: f"{name}(x)" for name in sorted(SAME - {"Not", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})},
    **{name: f"{name}(x)" for name in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")},
    **{f"{name} {given}": f"{name}({given})" for name in TWO.split() for given in ("x, w", "w, x", "x, x")},
    **{name: f"{name}<kernel_shape = [2, 2]>(x)" for name in ("AveragePool", "MaxPool")},
    "Clip": "Clip(x, low)",
    "Conv": "Conv(x, k)",
    "ConvTranspose": "ConvTranspose(x, k)",
    "CumSum": "CumSum(x, axis)",
    "Div": "Div(x, w)",
    "Pow": "Pow(x, high)",
    "the exponent of Pow": "Pow(high, x)",
    "LayerNormalization": "LayerNormalization(x, ones)",
    "RMSNormalization": "RMSNormalization(x, ones)",
    "BatchNormalization": "BatchNormalization(x, two, two, two, two)",
    "InstanceNormalization": "InstanceNormalization(x, two, two)",
    "GroupNormalization": "GroupNormalization<num_groups = 2>(x, two, two)",
    "Attention": "Attention(x, x, x)",
    "Resize": 'Resize<mode = "linear">(x, , scales)',
    "Einsum": 'Einsum<equation = "abij,abjk->abik">(x, x)',
}


@pytest.mark.parametrize(("what", "call"), CALLS.items(), ids=CALLS)
def test_operators_tell_no_more_of_a_zero_than_the_tables_say(what: str, call: str) -> None:
    """onnxruntime's kernels give the same for zeros of either sign: bit by bit, or but for the signs of zeros."""
    numbers = [", ".join(map(str, W[:count])) for count in (32, 16)]
    text = f"""<ir_version: 10, opset_import: ["" : 23]> g (float[1, 2, 4, 4] x) => (y)
      <float[1, 2, 4, 4] w = {{ {numbers[0]} }}, float[2, 2, 2, 2] k = {{ {numbers[1]} }},
       float low = {{-0.5}}, float high = {{1.5}}, float[2] two = {{1, 2}}, float[4] ones = {{1, 1, 1, 1}}, int64 axis = {{3}},
       float[4] scales = {{1, 1, 1.5, 2}}>
      {{ y = {call} }}"""
    session = ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), providers=["CPUExecutionProvider"])
    zeros = np.random.default_rng(1).uniform(0.1, 1.0, (1, 2, 4, 4)).astype(np.float32)
    zeros[..., ::2, :] = 0.0
    zeros[:, 1] = 0.0
    plus, minus = (session.run(None, {"x": np.where(zeros == 0, sign, zeros).astype(np.float32)})[0] for sign in (0.0, -0.0))
    assert np.array_equal(plus, minus, equal_nan=True)
    if what.split(maxsplit=1)[0] in SAME:
        assert plus.tobytes() == minus.tobytes()
