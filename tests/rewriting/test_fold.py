"""Constants of a replacement: computed at rewrite time, not read if large, and shared if equal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph import Options, fuse
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.model.folding import evaluate
from tests.rewriting.stage import applied, by_hand, pattern, read, rewritten, run

SCALED = pattern(
    "y = Conv(x, w, **conv) * k",
    example='{x: "float32[1, 3, 8, 8]", w: "float32[4, 3, 3, 3] constant", k: "float32[4, 1, 1] constant"}',
    id_="scaled",
    standard="y = Conv(x, w * Reshape(k, [-1, 1, 1, 1]), **conv)",
)


def convolution(name: str = "w", size: int = 3) -> onnx.ModelProto:
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[N, {size}, 8, 8] x) => (float[N, 4, 6, 6] y) {{ c = Conv<kernel_shape = [3, 3]>(x, {name}) y = Mul(c, k) }}"""
    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    model.graph.initializer.append(onnx.numpy_helper.from_array(random.standard_normal((4, size, 3, 3)).astype(np.float32), name))
    model.graph.initializer.append(onnx.numpy_helper.from_array(random.standard_normal((4, 1, 1)).astype(np.float32), "k"))
    return model


def test_an_expression_over_constants_becomes_an_initializer(draw: Callable[..., np.ndarray]) -> None:
    stage = rewritten(convolution(), SCALED)
    assert stage.operators == ["Conv"], stage.skips
    assert len(stage.model.graph.initializers) == 1, "the weights that were folded are not needed any more"
    stage.agrees({"x": draw(2, 3, 8, 8)})


def test_large_weights_are_read_only_when_the_model_is_written(draw: Callable[..., np.ndarray]) -> None:
    proto = convolution(size=64)
    model = ir.from_proto(proto)
    weight = model.graph.initializers["w"]
    assert weight.const_value is not None
    stored, reads = weight.const_value.numpy(), []

    def load() -> ir.TensorProtocol:
        reads.append(1)
        return ir.tensor(stored)

    weight.const_value = ir.LazyTensor(load, dtype=ir.DataType.FLOAT, shape=ir.Shape(stored.shape))
    stage = read_and_fuse(model)
    assert not reads
    x = draw(1, 64, 8, 8)
    np.testing.assert_allclose(run(proto, {"x": x})[0], run(ir.to_proto(stage), {"x": x})[0], rtol=1e-3, atol=1e-4)
    assert reads


def test_an_operator_that_only_onnxruntime_has_stays_a_node_over_a_large_constant(draw: Callable[..., np.ndarray]) -> None:
    unit = pattern(
        "y = Neg(x)",
        example='{x: "float32[2, 8]"}',
        onnxruntime="y = SimplifiedLayerNormalization(x, [1.0, 2.0], axis=-1, epsilon=1e-6)",
    )
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[1024, 2] x) => (float[1024, 2] z) { y = Neg(table) z = Add(x, y) }""")
    model.graph.initializer.append(onnx.numpy_helper.from_array(draw(1024, 2), "table"))
    read_in = ir.from_proto(model)
    rewrites, skips = applied(read_in, by_hand(read_in, unit, "y", x="table", y="y"))
    assert rewrites and not skips and [n.op_type for n in read_in.graph] == ["SimplifiedLayerNormalization", "Add"]
    assert run(ir.to_proto(read_in), {"x": draw(1024, 2)})[0].shape == (1024, 2)


def read_and_fuse(model: ir.Model) -> ir.Model:
    from onnx_subgraph.model.shapes import infer_shapes

    infer_shapes(model)
    match = by_hand(model, SCALED, "c y", x="x", w="w", k="k", y="y")
    rewrites, skips = applied(model, match, target="standard")
    assert rewrites and not skips
    return model


def test_an_initializer_that_can_be_overridden_is_not_folded() -> None:
    proto = convolution()
    proto.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [4, 3, 3, 3]))
    model = ir.from_proto(proto)
    read_and_fuse(model)
    assert [i.name for i in model.graph.inputs] == ["x", "w"] and "w" in model.graph.initializers
    assert [n.op_type for n in model.graph] == ["Mul", "Conv"], "the product is computed at run time, from the override"


def test_equal_small_constants_are_shared_with_those_of_the_model() -> None:
    doubled = pattern("y = Relu(x)", example='{x: "float32[2, 8]"}', id_="d", onnxruntime="y = Relu(x) * 2.0")
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z) <float two = {2.0}>
    { a = Relu(x) b = Relu(a) y = Neg(b) z = Mul(a, two) }"""
    stage = rewritten(text, doubled)
    assert len(stage.rewrites) == 2
    assert list(stage.model.graph.initializers) == ["two"]
    other = rewritten(text.replace("2.0", "4.0"), doubled)
    assert list(other.model.graph.initializers) == ["two", "d_constant"]


def test_a_literal_has_the_dtype_of_the_other_operand() -> None:
    for dtype in ("float", "double", "float16", "bfloat16", "int32", "int64"):
        literal = pattern("y = -x", example='{x: "float32[2, 8]"}', onnxruntime="y = x * -1")
        text = f'<ir_version: 8, opset_import: ["": 17]> g ({dtype}[N] x) => ({dtype}[N] y) {{ y = Neg(x) }}'
        model = read(text)
        rewrites, skips = applied(model, by_hand(model, literal, "y", x="x", y="y"))
        if skips:
            assert "does not load" in skips[0].reason  # bfloat16 on the CPU
            continue
        (node,) = model.graph
        assert rewrites and {v.dtype for v in node.inputs if v is not None} == {model.graph.inputs[0].dtype}


def test_a_model_whose_initializers_must_be_inputs_gets_constant_nodes() -> None:
    doubled = pattern("y = Relu(x)", example='{x: "float32[2, 8]"}', id_="d", onnxruntime="y = Relu(x) * 2.0")
    stage = rewritten('<ir_version: 3, opset_import: ["": 9]> g (float[N] x) => (float[N] y) { y = Relu(x) }', doubled)
    assert sorted(stage.operators) == ["Constant", "Mul", "Relu"] and not stage.model.graph.initializers


@given(st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=5), st.sampled_from(["Add", "Sub", "Mul"]))
def test_folding_computes_what_numpy_does(numbers: list[float], operator: str) -> None:
    a, b = np.array(numbers, np.float32), np.float32(1.5)
    expected = {"Add": a + b, "Sub": a - b, "Mul": a * b}[operator]
    (found,) = evaluate(operator, [a, np.asarray(b)], [], 1, 17)
    np.testing.assert_array_equal(found, expected)


SCALES = next(one for one in load_patterns().patterns if one.id == "affine")
SMALL = """<ir_version: 9, opset_import: ["" : 18]> g (float[n, 4] x) => (float[n, 4] y)
  <float c = {FIRST}, float d = {1e-30}> { a = Mul (x, c)  y = Mul (a, d) }"""


def test_factors_whose_product_is_too_small_stay_apart() -> None:
    """x is 1e38: one after the other they give 1e-22, together 0."""
    stage = rewritten(SMALL.replace("FIRST", "1e-30"), SCALES)
    assert stage.operators == ["Mul", "Mul"] and "too small for" in stage.reason
    assert rewritten(SMALL.replace("FIRST", "1e-3"), SCALES).operators == ["Mul"]
    assert rewritten(SMALL.replace("FIRST", "0"), SCALES).operators == ["Mul"], "a factor that is 0 gives 0"


ROUNDED = """<ir_version: 9, opset_import: ["" : 18]> g (float[n, 4] x) => (float[n, 4] y)
  <float a = {12582912}, float b = {-12582912}> { p = Add (x, a)  y = Add (p, b) }"""


ADDENDS = pattern(
    "y = x + a + b",
    standard="sum = a + b\ny = x + sum",
    example='{x: "float32[2, 4]", a: "float32[4] constant", b: "float32[4] constant"}',
)


def test_large_addends_that_cancel_stay_apart() -> None:
    """They round x to a whole number. In float64, where a fusion is checked alone, they do nothing."""
    stage = rewritten(ROUNDED, ADDENDS)
    assert stage.operators == ["Add", "Add"] and "cancel" in stage.reason
    small = ROUNDED.replace("12582912", "2.5")
    assert rewritten(small, ADDENDS).operators == ["Add"]
    assert rewritten(ROUNDED.replace("-12582912", "-2.5"), ADDENDS).operators == ["Add"]


def test_a_bias_that_rounds_is_not_folded_into_a_convolution(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 22]> g (float16[n, 1, 4, 4] x) => (float16[n, 1, 4, 4] y)
      <float[1, 1, 1, 1] one = {1}, float[1] eight = {8}, float minus = {-8}> {
        w = Cast <to = 10> (one)  bias = Cast <to = 10> (eight)  b = Cast <to = 10> (minus)
        p = Conv (x, w, bias)  y = Add (p, b) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    result = fuse(tmp_path / "m.onnx", None, load_patterns(), Options(dry_run=True))
    assert not result.rewrites and "cancel" in " ".join(skip.reason for skip in result.skipped)
