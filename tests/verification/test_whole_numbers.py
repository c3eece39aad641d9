"""Whole numbers are exact in every form of a graph, so noise does not move them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnxruntime import InferenceSession

from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.verification.noise import add_noise, nodes_of
from onnx_subgraph.verification.rounded import where_rounded
from onnx_subgraph.verification.verify import verify
from onnx_subgraph.verification.whole_numbers import whole_numbers
from tests.verification.models import write

TEXT = """<ir_version: 8, opset_import: ["" : 18]> g (float[2, 8] x, int64[2, 8] i, float16[2, 8] h) => ({results})
<float two = {{2}}, float half = {{0.5}}, float huge = {{1e30}}, int64[1] last = {{1}}> {{ {nodes} }}"""


@pytest.mark.parametrize(
    ("nodes", "whole"),
    [
        ("r = Round (x)  y = Mul (r, two)", True),
        ("f = Floor (x)  c = Ceil (x)  y = Sub (c, f)", True),
        ("p = Greater (x, half)  v = Cast <to = 1> (p)  y = ReduceSum (v, last)", True),
        ("v = Cast <to = 1> (i)  y = Add (v, two)", True),
        ("s = Sign (x)  t = Transpose (s)  y = MatMul (s, t)", True),
        ("p = Greater (x, half)  r = Round (x)  w = Where (p, r, two)  n = Neg (w)  y = Add (n, two)", True),
        ("r = Round (x)  y = Mul (r, half)", False),
        ("r = Round (x)  y = Add (r, x)", False),
        ("r = Round (x)  y = Mul (r, huge)", False),
        ("p = Greater (x, half)  r = Round (x)  y = Where (p, r, x)", False),
        ("y = Mul (x, two)", False),
        ("e = Exp (x)  y = Mul (e, two)", False),
        ("v = Cast <to = 1> (h)  y = Add (v, two)", False),
        ("r = Round (x)  y = Div (r, two)", False),
        ("r = Round (h)  y = Add (r, r)", False),
    ],
)
def test_what_is_whole_by_its_computation(nodes: str, whole: bool) -> None:
    model = ir.from_onnx_text(TEXT.format(results="y", nodes=nodes))
    infer_shapes(model)
    (y,) = model.graph.outputs
    assert (y in whole_numbers(nodes_of(model))) is whole


def test_a_default_of_an_input_may_be_replaced_by_another_number() -> None:
    text = TEXT.replace("float16[2, 8] h)", "float two)").format(results="y", nodes="r = Round (x)  y = Mul (r, two)")
    model = ir.from_onnx_text(text)
    infer_shapes(model)
    assert model.graph.outputs[0] not in whole_numbers(nodes_of(model))


@pytest.mark.parametrize(
    ("operator", "dtype", "first", "second", "rounded"),
    [
        ("Div", "float32", [6, 1, 3], [2, 3, 2], [False, True, False]),
        ("Mul", "float32", [3, 1.1, 0.5], [2, 1.1, 3], [False, True, False]),
        ("Sub", "float32", [3, 1e8, 1e8], [2, 1, 8], [False, True, False]),
        ("Sum", "float32", [2**24 - 1, 2**24], [1, 2], [False, True]),
        ("Sum", "float64", [2**24, 2**53], [2, 2], [False, True]),
        ("Add", "float64", [2**24, 2**53], [2, 2], [False, True]),
    ],
)
def test_only_elements_that_a_run_rounds_are_noisy(
    operator: str, dtype: str, first: list[float], second: list[float], rounded: list[bool]
) -> None:
    """Those of arithmetic are seen by the operands; sums of other whole numbers, and of float64, by their size."""
    kind = ir.DataType.from_numpy(np.dtype(dtype))
    a, b, factor = (ir.val(name, kind, [len(first)]) for name in "abf")
    result = (node := ir.node(operator, [a, b])).outputs[0]
    result.dtype = kind
    nodes = where_rounded(node, result, factor, kind)
    nodes[-1].outputs[0].type = ir.TensorType(kind)
    graph = ir.Graph([a, b, factor], nodes[-1].outputs, nodes=[node, *nodes], opset_imports={"": 17})
    session = InferenceSession(ir.to_proto(ir.Model(graph, ir_version=8)).SerializeToString())
    feeds = {"a": np.array(first, dtype), "b": np.array(second, dtype), "f": np.full(len(first), 3, dtype)}
    np.testing.assert_array_equal(session.run(None, feeds)[0], np.where(rounded, 3, 1))


EXACT = """<ir_version: 8, opset_import: ["" : OPSET]> g (TYPE[4, 64] x) => (RESULT[4, 64] y) {
    most = ReduceMax <axes = [1]> (x)  r = Round (x)  NODES }"""


def test_noise_moves_what_was_rounded_and_nothing_else(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4, 64] x, float[4, 1] most) => (float[4, 64] d, bool[4, 64] y) {
        d = Div (x, most)  y = Less (d, x) }"""
    path = write(tmp_path / "m.onnx", text)
    model = ir.load(path)
    infer_shapes(model)
    add_noise(model, 1, lambda model: {value for node in model.graph for value in node.outputs})
    ir.save(model, noisy := tmp_path / "noisy.onnx")
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    feeds = {"x": x, "most": x.max(axis=1, keepdims=True)}
    plain, moved = (InferenceSession(m, providers=["CPUExecutionProvider"]).run(["d"], feeds)[0] for m in (path, noisy))
    exact = plain.astype(np.float64) * feeds["most"] == x
    assert exact[x == feeds["most"]].all()
    assert (plain == moved)[exact].all()
    assert (plain != moved)[~exact].mean() > 0.3


@pytest.mark.parametrize(("kind", "opset"), [("float", 11), ("float", 17), ("float16", 17)])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("q = Mul (r, quarter)  d = Div (q, quarter)  y = Floor (d)", "y = Sub (r, one)"),
        ("h = Mul (r, half)  f = Floor (h)  y = Add (f, x)", "h = Mul (r, half)  c = Ceil (h)  f = Sub (c, one)  y = Add (f, x)"),
        ("d = Div (x, most)  y = Floor (d)", "y = Mul (x, zero)"),
        ("d = Div (x, most)  l = Less (d, one)  y = Not (l)", "d = Div (x, most)  y = Greater (d, one)"),
        ("d = Sub (x, most)  l = Less (d, zero)  y = Not (l)", "l = Less (x, x)  y = Not (l)"),
    ],
    ids=["quantized", "halves", "the largest", "a bound that counts", "a difference"],
)
def test_a_choice_by_exact_numbers_must_be_the_same(one: str, other: str, kind: str, opset: int, tmp_path: Path) -> None:
    """Each number that decides is exact, though not whole: noise would let one or the other pass."""

    def model(name: str, nodes: str) -> Path:
        result = "bool" if "Less" in one else kind
        text = EXACT.replace("OPSET", str(opset)).replace("TYPE", kind).replace("RESULT", result).replace("NODES", nodes)
        numbers = {"zero": 0.0, "one": 1.0, "half": 0.5, "quarter": 0.25}
        constants = {key: np.asarray(number, "float32" if kind == "float" else kind) for key, number in numbers.items()}
        return write(tmp_path / f"{name}.onnx", text, **{key: array for key, array in constants.items() if key in nodes})

    assert verify(model("one", one), model("other", other)).verdict == "different"


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        ("d = Mul (r, two)  y = Floor (d)", "d = Mul (r, two)  s = Sub (d, little)  y = Floor (s)", "different"),
        ("y = GreaterOrEqual (r, one)", "y = Greater (r, one)", "different"),
        ("d = Mul (r, two)  y = Floor (d)", "d = Add (r, r)  y = Floor (d)", "equivalent"),
        ("d = Mul (x, third)  y = Floor (d)", "d = Div (x, three)  y = Floor (d)", "equivalent"),
    ],
    ids=["a floor below", "a bound that counts", "another form", "numbers that are not whole"],
)
def test_a_choice_by_whole_numbers_must_be_the_same(one: str, other: str, verdict: str, tmp_path: Path) -> None:
    kind = "bool" if "Greater" in one else "float"
    head = f"""<ir_version: 8, opset_import: ["" : 18]> g (float[64] x) => ({kind}[64] y) <float two = {{2}}, float one = {{1}},
        float little = {{0.001}}, float third = {{0.33333334}}, float three = {{3}}> {{ r = Round (x)  """
    first, second = (write(tmp_path / f"{name}.onnx", f"{head} {nodes} }}") for name, nodes in (("one", one), ("other", other)))
    assert verify(first, second).verdict == verdict
