"""Raising: a subgraph that computes the definition of a canonical operator is found as that operator."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
import onnxruntime
import pytest

from onnx_subgraph import FuseResult, Options, fuse, load_patterns
from onnx_subgraph.proving.covering import base_spellings
from onnx_subgraph.proving.instance import build
from onnx_subgraph.proving.spelling import LATEST

SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"
LIBRARY = load_patterns()
RAISED = tuple(pattern.id for pattern in LIBRARY.patterns if pattern.raised is not None)


def operators(result: FuseResult) -> Counter[str]:
    return Counter(rewrite.op for rewrite in result.rewrites)


def check_calls(model: onnx.ModelProto) -> None:
    """Assert that every call of a canonical operator has only inputs and attributes from the operator's page."""
    functions = {(f.name, f.overload): f for f in model.functions}
    for node in model.graph.node:
        if node.domain == "onnx_subgraph" and node.op_type in LIBRARY.operators:
            operator, function = LIBRARY.operators[node.op_type], functions[node.op_type, node.overload]
            assert tuple(function.input) == tuple(operator.inputs)[: len(function.input)]
            assert len(node.input) <= len(function.input)
            given = [name for name, value in zip(operator.inputs, node.input, strict=False) if value]
            assert set(operator.inputs) - operator.optional <= set(given)
            attributes = {a.name for a in node.attribute}
            assert attributes <= set(function.attribute) and attributes <= operator.attributes.keys()
            assert operator.attributes.keys() - operator.optional <= attributes


@pytest.mark.parametrize("name", ["bert_torchscript", "gpt2_dynamo", "llama_dynamo", "llama_torchscript", "t5_dynamo"])
def test_a_definition_raises_to_its_operator(name: str, tmp_path: Path) -> None:
    options = Options(target="function", only=RAISED)
    first = fuse(SAMPLES / f"{name}.onnx", tmp_path / "raised.onnx", LIBRARY, options)
    assert first.verdict.verdict == "equivalent" and operators(first)
    assert operators(first).keys() <= {f"onnx_subgraph.{operator}" for operator in LIBRARY.operators}
    raised = onnx.load(tmp_path / "raised.onnx")
    check_calls(raised)
    inlined = onnx.inliner.inline_local_functions(raised)
    onnx.save(inlined, tmp_path / "inlined.onnx")
    again = fuse(tmp_path / "inlined.onnx", tmp_path / "again.onnx", LIBRARY, options)
    assert operators(again) == operators(first) and again.verdict.verdict == "equivalent"


@pytest.mark.parametrize("name", RAISED)
def test_the_definition_written_for_an_instance_raises_to_the_operator(name: str, tmp_path: Path) -> None:
    pattern = LIBRARY.get(name)
    instance = build(pattern, replace(next(iter(base_spellings(pattern))), opset=LATEST))
    onnx.save(instance.proto, tmp_path / "model.onnx")
    options = Options(target="function", only=RAISED, verify=False)
    first = fuse(tmp_path / "model.onnx", tmp_path / "raised.onnx", LIBRARY, options)
    assert pattern.raised is not None
    assert operators(first) == {f"onnx_subgraph.{pattern.raised.operator.name}": 1}
    raised = onnx.load(tmp_path / "raised.onnx")
    check_calls(raised)
    inlined = onnx.inliner.inline_local_functions(raised)
    onnx.save(inlined, tmp_path / "inlined.onnx")
    assert operators(fuse(tmp_path / "inlined.onnx", tmp_path / "again.onnx", LIBRARY, options)) == operators(first)


NORMS = """<ir_version: 8, opset_import: ["": 18]>
g (float[N, 4] x, float[4] s, float[4] b) => (float[N, 4] y)
<float e = {0.00001}, float d = {0.001}, int64[1] last = {-1}> {
    m = ReduceMean<keepdims = 1>(x, last) c = Sub(x, m) q = Mul(c, c) v = ReduceMean<keepdims = 1>(q, last)
    a = Add(v, e) r = Sqrt(a) n = Div(c, r) k = Mul(n, s) h = Add(k, b)
    m2 = ReduceMean<keepdims = 1>(h, last) c2 = Sub(h, m2) q2 = Mul(c2, c2) v2 = ReduceMean<keepdims = 1>(q2, last)
    a2 = Add(v2, d) r2 = Sqrt(a2) n2 = Div(c2, r2) y = Mul(n2, s)
}"""


def test_definitions_that_differ_are_overloads_of_one_operator(tmp_path: Path) -> None:
    """Another epsilon, and no shift: a library with a kernel for LayerNorm runs both."""
    onnx.save(onnx.parser.parse_model(NORMS), tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", tmp_path / "raised.onnx", LIBRARY, Options(target="function", only=RAISED))
    assert result.verdict.verdict == "equivalent" and operators(result) == {"onnx_subgraph.LayerNorm": 2}
    raised = onnx.load(tmp_path / "raised.onnx")
    check_calls(raised)
    assert [(f.name, f.overload) for f in raised.functions] == [("LayerNorm", ""), ("LayerNorm", "2")]
    assert raised.ir_version == 10 and list(raised.graph.node[1].input)[1:] == ["s"]
    onnx.checker.check_model(raised)


UNSCALED = """<ir_version: 8, opset_import: ["": 18]>
g (float[N, 4] x) => (float[N, 4] y) <float e = {0.00001}, int64[1] last = {-1}, int64[1] first = {0}, float low = {1e-12}> {
    m = ReduceMean<keepdims = 1>(x, last) c = Sub(x, m) q = Mul(c, c) v = ReduceMean<keepdims = 1>(q, last)
    a = Add(v, e) r = Sqrt(a) n = Div(c, r)
    q2 = Mul(n, n) v2 = ReduceMean<keepdims = 1>(q2, last) a2 = Add(v2, e) r2 = Sqrt(a2) n2 = Div(n, r2)
    f = ReduceL2<keepdims = 1>(n2, first) g = Clip(f, low) t = Shape(n2) h = Expand(g, t) y = Div(n2, h)
}"""


def test_norms_without_a_scale_become_functions_too(tmp_path: Path) -> None:
    """An absent scale is 1 in the definitions. The shape of torch's F.normalize is an input of its function."""
    onnx.save(onnx.parser.parse_model(UNSCALED), tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", tmp_path / "raised.onnx", LIBRARY, Options(target="function"))
    assert result.verdict.verdict == "equivalent" and not result.undone
    raised = onnx.load(tmp_path / "raised.onnx")
    assert [node.op_type for node in raised.graph.node if node.op_type != "Shape"] == ["LayerNorm", "RMSNorm", "LpNormalization"]
    onnx.checker.check_model(raised)


IN_A_FUNCTION = """<ir_version: 10, opset_import: ["" : 17, "local" : 1]>
g (float[N, 4] x) => (float[N, 4] a, float[N, 4] b) <float k = {3.0}> {
  p = Mul(k, x) s = Sigmoid(p) a = Mul(x, s) b = local.F(x)
}
<domain: "local", opset_import: ["" : 17]>
F (x) => (y) { k = Constant<value = float {0.5}>() p = Mul(k, x) s = Sigmoid(p) y = Mul(x, s) }"""


def test_no_function_calls_an_overload(tmp_path: Path) -> None:
    """In the body of a function, onnxruntime takes the first definition of a name: an α of 3 in the place of 0.5."""
    onnx.save(onnx.parser.parse_model(IN_A_FUNCTION), tmp_path / "model.onnx")
    result = fuse(tmp_path / "model.onnx", tmp_path / "raised.onnx", LIBRARY, Options(target="function", only=RAISED))
    assert result.verdict.verdict == "equivalent" and not result.undone and len(result.rewrites) == 1
    assert ["in the body of a function" in skip.reason for skip in result.skipped] == [True]


def test_each_operator_has_a_formula_and_a_lowering() -> None:
    for name, operator in LIBRARY.operators.items():
        assert [p.id for p in LIBRARY.patterns if p.raised is not None and p.raised.operator.name == name]
        assert "standard" in operator.lowerings or operator.kernel
        assert operator.source and operator.summary


def test_the_definition_of_an_operator_is_in_the_model(tmp_path: Path) -> None:
    fuse(SAMPLES / "llama_dynamo.onnx", tmp_path / "raised.onnx", LIBRARY, Options(target="function", only=RAISED))
    functions = {function.name: function for function in onnx.load(tmp_path / "raised.onnx").functions}
    assert set(functions) == {"Attention", "Linear", "RMSNorm", "Rotary"}
    assert set(functions["Rotary"].input) == {"x", "cos", "sin"}
    assert {"query", "key", "value"} <= set(functions["Attention"].input)
    assert "Rotary position embedding" in functions["Rotary"].doc_string


FORMS = """
  <ir_version: 10, opset_import: ["" : 23]>
  g (float[2, 6, 32] a, float[2, 6, 32] b, float[2, 6, 32] c) => (float[2, 4, 6, 8] y) <int64[4] apart = {2, 6, 4, 8}> {
    HEADS
    k = Transpose <perm = [0, 1, 3, 2]> (i)
    s = MatMul (h, k)
    p = Softmax <axis = -1> (s)
    y = MatMul (p, j)
  }
"""
BY_HEADS = "h = Relu (a)  i = Relu (b)  j = Relu (c)"
FLAT = " ".join(
    f"{x}r = Reshape ({x}, apart)  {y} = Transpose <perm = [0, 2, 1, 3]> ({x}r)" for x, y in zip("abc", "hij", strict=True)
)


@pytest.mark.parametrize(
    ("target", "opset", "heads", "transposes"),
    [
        ("onnxruntime", 22, BY_HEADS, 2),
        ("onnxruntime", 22, FLAT, 1),
        ("onnxruntime", 23, BY_HEADS, 0),
        ("onnxruntime", 23, FLAT, 1),
        ("standard", 23, BY_HEADS, 0),
        ("standard", 23, FLAT, 1),
    ],
)
def test_the_layout_with_the_fewest_transposes_is_chosen(
    target: str, opset: int, heads: str, transposes: int, tmp_path: Path
) -> None:
    """MultiHeadAttention and Attention take keys of rank three or four, so they are not transposed in either form."""
    text = FORMS.replace("HEADS", heads).replace('"" : 23', f'"" : {opset}')
    text = text if heads is FLAT else text.replace("float[2, 6, 32]", "float[2, 4, 6, 8]")
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    options = Options(target=target, only=("multi-head-attention",), opset="keep", prefer="fusion")
    result = fuse(tmp_path / "m.onnx", tmp_path / "fused.onnx", LIBRARY, options)
    assert len(result.rewrites) == 1 and not result.undone
    nodes = Counter(node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node)
    assert nodes["Transpose"] == transposes


TWO_MASKS = """
  <ir_version: 8, opset_import: ["" : 17]>
  g (float[2, 2, 4, 8] q, float[2, 2, 8, 4] k, float[2, 2, 4, 8] v, bool[1, 1, 4, 4] near, float[2, 1, 4, 4] padding)
    => (float[2, 2, 4, 8] y) {
    s = MatMul (q, k)
    low = Constant <value = float {-3.4028234663852886e38}> ()
    kept = Where (near, s, low)
    masked = Add (kept, padding)
    p = Softmax <axis = -1> (masked)
    y = MatMul (p, v)
  }
"""


@pytest.mark.parametrize("target", ["onnxruntime", "standard", "function"])
def test_positions_that_two_masks_drop_have_no_weight_beside_those_that_one_drops(target: str, tmp_path: Path) -> None:
    """A row in which one mask or both drop each position, such as a window inside the padding."""
    onnx.save(onnx.parser.parse_model(TWO_MASKS), tmp_path / "m.onnx")
    options = Options(target=target, only=("multi-head-attention",))
    result = fuse(tmp_path / "m.onnx", tmp_path / "fused.onnx", LIBRARY, options)
    assert len(result.rewrites) == 1 and not result.undone
    rng = np.random.default_rng(0)
    feeds = {
        n: rng.standard_normal(s).astype(np.float32) for n, s in (("q", (2, 2, 4, 8)), ("k", (2, 2, 8, 4)), ("v", (2, 2, 4, 8)))
    }
    window = np.tril(np.ones((1, 1, 4, 4), bool)) & ~np.tril(np.ones((1, 1, 4, 4), bool), -2)
    padding = np.zeros((2, 1, 4, 4), np.float32)
    padding[1, :, :, :2] = np.finfo(np.float32).min
    feeds |= {"near": window, "padding": padding}
    before, after = (
        onnxruntime.InferenceSession(tmp_path / name, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        for name in ("m.onnx", "fused.onnx")
    )
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)
