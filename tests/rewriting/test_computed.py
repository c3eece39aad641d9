"""What depends on constants alone is stored as onnxruntime computes it, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph import Options, fuse, load_patterns
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.rewriting.computed import LARGEST, compute_constants

TABLE = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3, 4] x) => (float[2, 3, 4] y)
<float[3, 1] places = {0, 1, 2}, float[1, 4] rates = {1, 0.5, 0.25, 0.125}, float[4, 4] w = {
  0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7}> {
    angle = Mul(places, rates) sine = Sin(angle) h = MatMul(sine, w) s = Softmax<axis = 0>(h) t = Unsqueeze(s, first)
    y = Add(x, t) }"""


def computed(text: str) -> tuple[ir.Model, int]:
    model = ir.from_onnx_text(text)
    infer_shapes(model)
    return model, compute_constants(model)


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def run(model: ir.Model | onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    proto = ir.to_proto(model) if isinstance(model, ir.Model) else model
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return list(onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, feeds))


def test_a_table_has_the_numbers_that_onnxruntime_computes(tmp_path: Path) -> None:
    """To the last bit: numpy's sine and matrix product have others."""
    text = TABLE.replace("float[4, 4] w", "int64[1] first = {0}, float[4, 4] w")
    path, x = tmp_path / "table.onnx", np.zeros((2, 3, 4), np.float32)
    onnx.save(onnx.parser.parse_model(text), path)
    result = fuse(path, tmp_path / "out.onnx", load_patterns(), Options())
    assert (result.nodes_after, result.verdict.verdict, result.simplified.removed) == (1, "equivalent", 5)
    written = onnx.load(tmp_path / "out.onnx")
    assert [node.op_type for node in written.graph.node] == ["Add"] and len(written.graph.initializer) == 1
    assert np.array_equal(run(onnx.load(path), x=x)[0], run(written, x=x)[0])


def test_what_is_read_between_is_stored_too() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y, float[2] e)
      <float[2] w = {1, 2}> { e = Exp(w) l = Log(e) m = Sqrt(l) y = Mul(x, m) }"""
    model, count = computed(text)
    assert (count, operators(model)) == (3, ["Constant", "Mul"]), "a node must give a result of the graph"
    x = np.ones(2, np.float32)
    assert all(map(np.array_equal, run(model, x=x), run(onnx.parser.parse_model(text), x=x)))


def test_the_bodies_of_a_loop_and_an_if_store_what_depends_on_constants_alone() -> None:
    """A Constant outside, a weight outside and one inside are read; a result of the body may be one of these numbers."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, int64 n, bool c) => (float[k, 2] y, float[2] z)
      <float[2] w = {1, 2}, bool yes = {1}> {
        u = Constant <value_floats = [0.5, 3.0]> ()
        y = Loop (n, yes) <body = b (int64 i, bool go) => (bool on, float[2] r) <float[2] v = {0.25, 4}> {
          on = Identity (go) p = Mul (u, w) q = Add (p, v) s = Sin (q) r = Mul (x, s) }>
        z = If (c) <then_branch = t () => (float[2] a) { e = Exp (w) a = Sqrt (e) },
                    else_branch = f () => (float[2] d) { d = Identity (x) }> }"""
    model, count = computed(text)
    inner = [node.op_type for graph in model.graph.subgraphs() for node in graph if graph is not model.graph]
    assert count == 5 and sorted(inner) == ["Constant", "Identity", "Identity", "Mul"], inner
    assert operators(model) == ["Loop", "If"]
    feeds = {"x": np.array([1, -2], np.float32), "n": np.array(3), "c": np.array(True)}
    assert all(map(np.array_equal, run(model, **feeds), run(onnx.parser.parse_model(text), **feeds)))


OPERATORS = ["Sin", "Exp", "Tanh", "Erf", "Sigmoid", "Softmax", "Transpose", "Relu", "MatMul", "Mul", "Add", "Max", "ReduceSum"]


@given(data=st.data())
def test_any_table_has_the_same_bits(data: st.DataObject) -> None:
    """Operators on one or two of the values before; some results are read by the operator on the input, or given."""
    body, count = "", 2
    for _ in range(data.draw(st.integers(1, 8))):
        operator = data.draw(st.sampled_from(OPERATORS))
        arity = 2 if operator in ("MatMul", "Mul", "Add", "Max") else 1
        read = ", ".join(f"v{data.draw(st.integers(0, count - 1))}" for _ in range(arity))
        body += f"v{count} = {operator}({read}) "
        count += 1
    read = ", ".join(f"v{data.draw(st.integers(0, count - 1))}" for _ in range(2))
    numbers = [", ".join(f"{random:.3f}" for random in np.random.default_rng(seed).standard_normal(9)) for seed in (0, 1)]
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[3, 3] x) => (float[3, 3] y, float[A, B] v{count - 1})
      <float[3, 3] v0 = {{{numbers[0]}}}, float[3, 3] v1 = {{{numbers[1]}}}> {{ {body} y = Sum(x, {read}) }}"""
    x = np.ones((3, 3), np.float32)
    try:
        plain = run(onnx.parser.parse_model(text), x=x)
    except Exception:  # a product with the sum of all elements
        return
    model, _ = computed(text)
    written = run(model, x=x)
    assert all(np.array_equal(one, other, equal_nan=True) for one, other in zip(written, plain, strict=True))
    assert {"Constant", "Sum"} >= set(operators(model)) or not all(np.isfinite(array).all() for array in plain)


STAYING = {
    "a run can override the weight": ("float[2] x, float[2] w", "float[2] w = {1, 2}", "e = Exp(w) y = Mul(x, e)"),
    "the result is much larger than its constants": (
        f"float[{LARGEST}] x",
        f"float zero = {{0}}, int64 one = {{1}}, int64 end = {{{LARGEST}}}",
        "r = Range(zero, end, one) f = Cast<to = 1>(r) e = Exp(f) y = Mul(x, e)",
    ),
    "it repeats a number": ("float[2] x", "int64[1] two = {2}", "e = ConstantOfShape(two) y = Add(x, e)"),
    "a quantized weight is smaller": (
        "float[2] x",
        "int8[2] q = {1, 2}, float s = {0.5}",
        "e = DequantizeLinear(q, s) f = Exp(e) y = Mul(x, f)",
    ),
    "onnxruntime ends the process for a quotient of integers that is too large": (
        "float[2] x",
        "int64[2] a = {-9223372036854775808, 2}, int64[2] b = {-1, 1}",
        "d = Div(a, b) f = Cast<to = 1>(d) y = Mul(x, f)",
    ),
    "onnxruntime ends the process for an empty image": (
        "float[2] x",
        "float[1, 1, 2] a = {1, 2}, float[1] b = {0}, int64[1] all = {-1}",
        "d = InstanceNormalization(a, b, b) f = Reshape(d, all) y = Mul(x, f)",
    ),
    "no kernel has it": ("float[2] x", "float[2] a = {1, 2}", "d = mine.Strange(a) y = Mul(x, d)"),
    "numbers are drawn": ("float[2] x", "float[2] a = {1, 2}", "d = RandomNormalLike(a) e = Exp(d) y = Mul(x, e)"),
    "one of a few is computed": ("float[2] x", "float[2] a = {1, 2}", "d = Mul(x, a) e = Exp(d) y = Mul(x, e)"),
}


@pytest.mark.parametrize("why", STAYING)
def test_nodes_stay_where(why: str) -> None:
    inputs, weights, body = STAYING[why]
    size = inputs.split("]")[0].removeprefix("float[")
    text = f"""<ir_version: 8, opset_import: ["" : 17, "mine" : 1]> g ({inputs}) => (float[{size}] y) <{weights}> {{ {body} }}"""
    before = operators(ir.from_onnx_text(text.replace("float zero", "int64 zero")))
    model, count = computed(text.replace("float zero", "int64 zero"))
    assert (count, operators(model)) == (0, before)


def test_large_constants_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y)
      <float[2] w = {1, 2}> { e = Exp(w) y = Mul(x, e) }"""
    assert computed(text)[1] == 1
    monkeypatch.setattr("onnx_subgraph.rewriting.computed._MOST_READ", 7)
    assert computed(text)[1] == 0
