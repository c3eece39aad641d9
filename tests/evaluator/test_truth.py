"""The truth: numpy's formulas in float64. Each definition of an operator is compared with onnxruntime's kernel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import helper

from onnx_subgraph.evaluator import truth
from onnx_subgraph.evaluator.definitions import DEFINITIONS
from onnx_subgraph.evaluator.truth import UnknownError, evaluate
from onnx_subgraph.proving import comparison

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
X, SKIP, ROW, MATRIX = (2, 3, 8), (2, 3, 8), (8,), (8, 8)
IMAGE, FILTER = (1, 2, 5, 5), (3, 2, 3, 3)

CASES: list[tuple[str, list[tuple[int, ...] | None], int, dict[str, Any]]] = [
    ("Gelu", [X], 1, {}),
    ("Gelu", [X], 1, {"approximate": "tanh"}),
    ("com.microsoft.Gelu", [X], 1, {}),
    ("com.microsoft.BiasGelu", [X, ROW], 1, {}),
    ("com.microsoft.FastGelu", [X], 1, {}),
    ("com.microsoft.FastGelu", [X, ROW], 1, {}),
    ("com.microsoft.QuickGelu", [X], 1, {}),
    ("com.microsoft.QuickGelu", [X], 1, {"alpha": 1.0}),
    ("Erf", [X], 1, {}),
    ("BatchNormalization", [IMAGE, (2,), (2,), (2,), (2,)], 1, {"epsilon": 1e-3}),
    ("GatherElements", [(2, 3, 8), (1, 2, 5)], 1, {"axis": 2}),
    ("GatherElements", [(3, 8), (2, 4)], 1, {}),
    ("LpNormalization", [X], 1, {"axis": 1}),
    ("LpNormalization", [X], 1, {"p": 1}),
    ("SimplifiedLayerNormalization", [X, ROW], 1, {"epsilon": 1e-3}),
    ("SimplifiedLayerNormalization", [X, (3, 8)], 1, {"axis": 1}),
    ("com.microsoft.SkipLayerNormalization", [X, SKIP, ROW], 1, {}),
    ("com.microsoft.SkipLayerNormalization", [X, SKIP, ROW, ROW, ROW], 4, {"epsilon": 1e-3}),
    ("com.microsoft.SkipSimplifiedLayerNormalization", [X, SKIP, ROW, ROW], 4, {"epsilon": 1e-3}),
    ("com.microsoft.FusedMatMul", [X, MATRIX], 1, {"alpha": 0.5, "transB": 1}),
    ("com.microsoft.FusedMatMul", [(4, 3), (4, 8)], 1, {"transA": 1}),
    ("com.microsoft.MatMulIntegerToFloat", [X, (8, 4), (), (4,), (), (4,), (4,)], 1, {}),
    ("com.microsoft.MatMulIntegerToFloat", [X, (8, 4), (), ()], 1, {}),
    ("com.microsoft.MatMulNBits", [(2, 3, 40), (5, 3, 8), (5, 3)], 1, {"K": 40, "N": 5, "block_size": 16}),
    ("com.microsoft.MatMulNBits", [(3, 40), (5, 3, 8), (5, 3), (5, 2), None, (5,)], 1, {"K": 40, "N": 5, "block_size": 16}),
    ("com.microsoft.MatMulNBits", [(32,), (5, 1, 32), (5,), (5,)], 1, {"K": 32, "N": 5, "block_size": 32, "bits": 8}),
    ("com.microsoft.MatMulNBits", [(4, 32), (5, 2, 4), (10,), (5, 1)], 1, {"K": 32, "N": 5, "block_size": 16, "bits": 2}),
    ("STFT", [(2, 40), (), (10,)], 1, {}),
    ("STFT", [(2, 40, 1), (), (8,)], 1, {"onesided": 0}),
    ("com.microsoft.FusedGemm", [(2, 8), MATRIX, ROW], 1, {"activation": "Relu", "alpha": 0.5, "beta": 2.0, "transB": 1}),
    ("com.microsoft.FusedGemm", [(2, 8), MATRIX], 1, {"activation": "LeakyRelu", "activation_alpha": 0.1}),
    ("Conv", [(2, 2, 9), (3, 2, 4), (3,)], 1, {"auto_pad": "SAME_UPPER", "strides": [2]}),
    ("Conv", [(2, 2, 9), (3, 2, 4)], 1, {"auto_pad": "SAME_LOWER", "strides": [2]}),
    ("Conv", [(2, 2, 9), (3, 2, 4)], 1, {"auto_pad": "VALID"}),
    ("Conv", [(2, 4, 7, 6), (6, 2, 3, 2), (6,)], 1, {"group": 2, "dilations": [2, 1], "strides": [1, 3], "pads": [2, 0, 1, 1]}),
    ("Conv", [(1, 4, 5, 5), (4, 1, 3, 3)], 1, {"group": 4, "kernel_shape": [3, 3]}),
    ("Conv", [(1, 2, 4, 4, 4), (3, 2, 2, 1, 3)], 1, {"pads": [0, 0, 1, 1, 0, 1]}),
    ("ConvTranspose", [(2, 2, 5), (2, 3, 4), (3,)], 1, {}),
    ("ConvTranspose", [(2, 3, 5, 4), (3, 2, 3, 2), (2,)], 1, {"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 2]}),
    ("ConvTranspose", [(1, 4, 5, 4), (4, 3, 3, 2), (6,)], 1, {"group": 2, "dilations": [2, 1], "strides": [1, 2]}),
    ("ConvTranspose", [(1, 4, 5, 4), (4, 1, 2, 2)], 1, {"group": 4, "kernel_shape": [2, 2], "strides": [2, 2]}),
    ("ConvTranspose", [(1, 2, 5), (2, 3, 4)], 1, {"auto_pad": "SAME_UPPER", "strides": [3]}),
    ("ConvTranspose", [(1, 2, 5), (2, 3, 4)], 1, {"auto_pad": "SAME_LOWER", "strides": [3]}),
    ("ConvTranspose", [(1, 2, 5), (2, 3, 4)], 1, {"auto_pad": "VALID", "strides": [2]}),
    ("ConvTranspose", [(1, 2, 5), (2, 3, 4)], 1, {"output_shape": [11], "strides": [2]}),
    ("ConvTranspose", [(1, 2, 3, 3, 2), (2, 1, 2, 1, 2)], 1, {"strides": [1, 2, 2]}),
    ("MaxPool", [(2, 3, 9, 8)], 1, {"kernel_shape": [3, 2]}),
    ("MaxPool", [(2, 3, 9, 8)], 1, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("MaxPool", [(2, 3, 9, 8)], 1, {"kernel_shape": [2, 3], "strides": [2, 3], "ceil_mode": 1}),
    ("MaxPool", [(1, 2, 5)], 1, {"kernel_shape": [2], "strides": [3], "ceil_mode": 1, "pads": [1, 1]}),
    ("MaxPool", [(1, 2, 10)], 1, {"kernel_shape": [3], "dilations": [2], "strides": [2]}),
    ("MaxPool", [(1, 2, 10)], 1, {"kernel_shape": [4], "auto_pad": "SAME_UPPER", "strides": [3]}),
    ("MaxPool", [(1, 2, 10)], 1, {"kernel_shape": [4], "auto_pad": "SAME_LOWER", "strides": [3]}),
    ("MaxPool", [(1, 2, 4, 5, 6)], 1, {"kernel_shape": [2, 2, 2], "strides": [2, 1, 2]}),
    ("MaxPool", [(2, 3, 9, 8)], 2, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("MaxPool", [(2, 3, 5, 4)], 2, {"kernel_shape": [2, 3], "storage_order": 1}),
    ("DequantizeLinear", [(2, 3, 4), ()], 1, {}),
    ("DequantizeLinear", [(2, 3, 4), (), ()], 1, {}),
    ("DequantizeLinear", [(2, 3, 4), (3,), (3,)], 1, {}),
    ("DequantizeLinear", [(2, 3, 4), (4,), (4,)], 1, {"axis": -1}),
    ("DequantizeLinear", [(2, 5, 4), (2, 3, 4), (2, 3, 4)], 1, {"axis": 1, "block_size": 2}),
    ("Pad", [(3, 4), (4,)], 1, {}),
    ("Pad", [(3, 4), (4,), ()], 1, {}),
    ("Pad", [(3, 4), (2,), None, (1,)], 1, {}),
    ("Pad", [(3, 4), (4,)], 1, {"mode": "reflect"}),
    ("Pad", [(3, 4), (4,)], 1, {"mode": "edge"}),
    ("Unsqueeze", [(3, 4), (2,)], 1, {}),
    ("Unsqueeze", [(3, 4)], 1, {"axes": [-2, -1]}),
    ("com.microsoft.FusedConv", [IMAGE, FILTER], 1, {"activation": "Relu"}),
    ("com.microsoft.MultiHeadAttention", [X, (2, 5, 8), (2, 5, 8)], 1, {"num_heads": 2}),
    ("com.microsoft.MultiHeadAttention", [X, X, X, (24,), None, (2, 4, 3, 3)], 1, {"num_heads": 4, "scale": 0.1}),
    ("com.microsoft.MultiHeadAttention", [X, X, X], 1, {"num_heads": 2, "unidirectional": 1}),
    ("com.microsoft.MultiHeadAttention", [X, (2, 2, 8), (2, 2, 8)], 1, {"num_heads": 2, "unidirectional": 1}),
    (
        "com.microsoft.FusedConv",
        [IMAGE, FILTER, (3,)],
        1,
        {"activation": "Clip", "activation_params": [0.0, 6.0], "pads": [1, 1, 1, 1]},
    ),
    ("com.microsoft.FusedConv", [IMAGE, FILTER, (3,), (1, 3, 3, 3)], 1, {"activation": "Sigmoid"}),
    (
        "com.microsoft.FusedConv",
        [IMAGE, FILTER],
        1,
        {"activation": "HardSigmoid", "activation_params": [0.2, 0.5], "strides": [2, 2]},
    ),
]


QUANTIZED = {
    "MatMulIntegerToFloat": {"i0": np.uint8, "i1": np.int8, "i4": np.uint8, "i5": np.int8},
    "MatMulNBits": {"i1": np.uint8, "i3": np.uint8},
    "DequantizeLinear": {"i0": np.uint8, "i2": np.uint8},
}
"""Operator → its inputs of integers."""


@pytest.mark.parametrize(("operator", "shapes", "results", "attributes"), CASES)
def test_a_definition_equals_what_onnxruntime_computes(
    operator: str, shapes: list[tuple[int, ...]], results: int, attributes: dict[str, Any]
) -> None:
    rng = np.random.default_rng(3)
    domain, _, name = operator.rpartition(".")
    feeds = {f"i{i}": rng.standard_normal(s).astype(np.float32) for i, s in enumerate(shapes) if s is not None}
    if name == "BatchNormalization":
        feeds["i4"] = np.abs(feeds["i4"]) + np.float32(0.5)
    if name == "GatherElements":
        feeds["i1"] = rng.integers(-3, 3, feeds["i1"].shape)
    if name == "Unsqueeze" and "i1" in feeds:
        feeds["i1"] = np.array([-1, 1])
    if name == "STFT":
        feeds["i1"] = np.array(3)
    if name == "Pad":
        feeds["i1"] = np.array([1, -1, 0, 2])[: feeds["i1"].size]
        feeds |= {"i3": np.array([-1])} if "i3" in feeds else {}
    quantized = QUANTIZED.get(name)
    if quantized:
        feeds |= {i: rng.integers(0, 99, feeds[i].shape).astype(kind) for i, kind in quantized.items() if i in feeds}
    wanted = ["o0", *("" if name.endswith("LayerNormalization") and i in (1, 2) else f"o{i}" for i in range(1, results))]
    given = ["" if s is None else f"i{i}" for i, s in enumerate(shapes)]
    node = helper.make_node(name, given, wanted, domain=domain, **attributes)
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()]
    integers = ["o1"] if name == "MaxPool" else []
    outputs = [helper.make_tensor_value_info(o, INT64 if o in integers else FLOAT, None) for o in wanted if o]
    opset = 21 if "block_size" in attributes else 18 if name == "DequantizeLinear" else 12 if "axes" in attributes else 20
    imports = [
        helper.make_opsetid("", opset),
        helper.make_opsetid("com.microsoft", 1),
    ]
    model = helper.make_model(helper.make_graph([node], "g", inputs, outputs), opset_imports=imports, ir_version=8)
    truth, kernel = evaluate(model, feeds), comparison.outputs(model, feeds)
    assert isinstance(kernel, dict), kernel
    for output, exact in truth.items():
        assert exact.dtype == (np.int64 if output in integers else np.float64)
        assert kernel[output].shape == exact.shape
        assert np.allclose(kernel[output], exact, rtol=1e-4, atol=1e-5)


def test_every_definition_has_a_case() -> None:
    tested = {"Loop", *(operator for operator, *_ in CASES)}
    assert {f"{d.op_domain}.{d.__name__}".lstrip(".") for d in DEFINITIONS} == tested


ZEROS = """
<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[2, 32] x, uint8[3, 2, 8] w, float[3, 2] s, float[3, 2] z) => (float[2, 3] y) {
  y = com.microsoft.MatMulNBits <K = 32, N = 3, block_size = 16> (x, w, s, z)
}
"""


def test_zero_points_of_packed_weights_may_be_floats() -> None:
    rng, model = np.random.default_rng(5), onnx.parser.parse_model(ZEROS)
    feeds = {
        name: rng.standard_normal(shape).astype(np.float32) for name, shape in (("x", (2, 32)), ("s", (3, 2)), ("z", (3, 2)))
    }
    feeds["w"] = rng.integers(0, 256, (3, 2, 8)).astype(np.uint8)
    kernel = comparison.outputs(model, feeds)
    assert isinstance(kernel, dict) and np.allclose(kernel["y"], evaluate(model, feeds)["y"], rtol=1e-4, atol=1e-4)


OVERLOADS = """
<ir_version: 10, opset_import: ["" : 17, "d" : 1]>
g (float[3] x, bool on) => (float[3] y, float[3] z) {
  y = If(on) <then_branch = t () => (float[3] a) { a = d.F:other(x) }, else_branch = e () => (float[3] b) { b = d.F(x) }>
  z = d.F(x)
}
<domain: "d", opset_import: ["" : 17]> F (x) => (y) { y = Neg(x) }
<domain: "d", overload: "other", opset_import: ["" : 17]> F (x) => (y) { y = Exp(x) }
"""


def test_overloads_of_a_function_are_told_apart() -> None:
    x = np.float32([0, 1, 2])
    found = evaluate(onnx.parser.parse_model(OVERLOADS), {"x": x, "on": np.array(True)})
    assert np.allclose(found["y"], np.exp(np.float64(x))) and np.array_equal(found["z"], -x)


LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
g (int64 most, float[2] x, float limit) => (float[2] last, float[N, 2] states, float[N] sums) {
    start = Constant<value = bool {1}>()
    last, states, sums = Loop(most, start, x) <body = b (int64 i, bool was, float[2] h)
        => (bool on, float[2] next, float[2] state, float sum) {
        shape = Shape(x) zeros = ConstantOfShape(shape) step = Add(zeros, x) next = Add(h, step) state = Identity(next)
        sum = ReduceSum<keepdims = 0>(next) on = Less(sum, limit)
    }>
}"""


@pytest.mark.parametrize(("most", "limit", "steps"), [(3, 100.0, 3), (9, 7.0, 2), (1, -1.0, 1)])
def test_a_loop_stacks_what_its_steps_list(most: int, limit: float, steps: int) -> None:
    model = onnx.parser.parse_model(LOOP)
    feeds = {"most": np.array(most), "x": np.array([1, 2], np.float32), "limit": np.array(limit, np.float32)}
    truth, kernel = evaluate(model, feeds), comparison.outputs(model, feeds)
    assert isinstance(kernel, dict), kernel
    assert kernel["states"].shape == (steps, 2)
    for name, exact in truth.items():
        assert exact.dtype == np.float64
        np.testing.assert_array_equal(kernel[name], exact)


def test_the_list_of_a_loop_without_iterations_is_unknown() -> None:
    feeds = {"most": np.array(0), "x": np.ones(2, np.float32), "limit": np.array(1, np.float32)}
    with pytest.raises(UnknownError, match="without a step"):
        evaluate(onnx.parser.parse_model(LOOP), feeds)


def test_the_truth_is_computed_in_float64() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        g (float16[4] x) => (float16[4] y) <float third = {0.333}> {
          h = Constant <value_float = 0.1> () c = Cast <to = 10> (h) t = Cast <to = 10> (third)
          s = Exp(x) m = Mul(s, t) y = Add(m, c) }""")
    x = np.asarray([0.1, 1, 2, 11], np.float16)
    third = float(np.float32(0.333))
    y = evaluate(model, {"x": x})["y"]
    assert y.dtype == np.float64
    assert np.allclose(y, np.exp(x.astype(np.float64)) * third + np.float32(0.1), rtol=1e-12), (
        "and it is beyond float16's largest"
    )


def test_the_elements_of_a_sequence_are_in_float64() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (seq(float[2]) x, int64 at) => (float[2] y)
      { a = SequenceAt (x, at) y = Exp (a) }""")
    given = [np.array([3.0, 4.0], np.float32), np.array([0.1, 0.2], np.float32)]
    (found,) = evaluate(model, {"x": given, "at": np.array(1)}).values()
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, np.exp(given[1].astype(np.float64)))


def test_erf_is_not_rounded_to_float32() -> None:
    """Otherwise 1 + erf(x) has no digit left at -5."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Erf (x) }""")
    x = np.array([-5, 0.3], np.float32)
    assert evaluate(model, {"x": x})["y"].tolist() == [math.erf(number) for number in x.tolist()]


def test_layer_normalization_equals_numpys() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[2, 8] x, float[8] w, float[8] b) => (float[2, 8] y) {
          y = LayerNormalization <axis = -1, epsilon = 0.01> (x, w, b) }""")
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((2, 8), (8,), (8,)))
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + np.float32(0.01)) * w + b
    assert np.allclose(evaluate(model, {"x": x, "w": w, "b": b})["y"], expected, rtol=1e-6)


def test_a_body_of_an_if_is_computed_in_float64_too() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        g (bool c, float[2] x) => (float[2] y) {
          y = If (c) <then_branch = a () => (float[2] p) <float k = {0.1}> { p = Mul(x, k) },
                      else_branch = b () => (float[2] q) { q = Identity(x) }> }""")
    y = evaluate(model, {"c": np.asarray(True), "x": np.ones(2, np.float32)})["y"]
    assert y.dtype == np.float64 and np.allclose(y, np.float32(0.1), rtol=1e-12)


def test_a_model_that_can_not_be_evaluated_gives_an_error() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18, "nowhere": 1]>
        g (float[2] x) => (float[2] y) { y = nowhere.Nonesuch(x) }""")
    with pytest.raises(UnknownError, match="Nonesuch"):
        evaluate(model, {"x": np.ones(2, np.float32)})


def test_shapes_that_do_not_broadcast_are_named() -> None:
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[2, 8] x, float[3] b) => (y) { y = Mul(x, b) }'
    with pytest.raises(UnknownError, match=r"\(2,8\) \(3,\)"):
        evaluate(onnx.parser.parse_model(text), {"x": np.ones((2, 8), np.float32), "b": np.ones(3, np.float32)})


def test_large_weights_are_fed_and_not_written_into_the_float64_file(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 4] x) => (float[1, 2] y) { y = MatMul (x, w) }'
    model, w = onnx.parser.parse_model(text), np.full((4, 2), 0.1, np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    x = np.arange(4, dtype=np.float32)[None]
    for large, kept in ((1 << 20, 1), (1, 0)):
        monkeypatch.setattr(truth, "LARGE", large)
        exact = truth.Exact(model)
        assert len(exact._wide.graph.initializer) == kept
        assert np.array_equal(exact({"x": x})["y"], x.astype(np.float64) @ w.astype(np.float64))
