"""A mask that hides nothing disappears, whatever its shape is; a mask that hides something, or only might, stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph import Options, fuse, load_patterns
from onnx_subgraph.model import uniform
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import infer_shapes
from tests.simplification.test_simplify import operators, parsed, run, simplified

INPUTS = "float[N, 4, 6] x, bool[N, 4, 6] c"
WEIGHTS = """bool[1, 1, 1] yes = {1}, bool[1, 4, 1] all = {1, 1, 1, 1}, bool[1, 4, 1] some = {1, 1, 0, 1}, float no = {0},
  float[1] low = {-1e9}, int64[2] inner = {4, 6},
  float[3] scales = {1, 2, 0.5}, float[6] region = {0, 0, 0, 1, 2, 2}, int64[2] image = {2, 12}, int64[2] part = {4, 3},
  int64[3] rows = {-1, 2, 12}, int64[3] back = {-1, 4, 6}, int64 nought = {0}, int64 step = {1}, int64[1] one = {1},
  int64[1] end = {9223372036854775807}, int64[1] first = {0}, float[1, 4, 1] zeros = {0, 0, 0, 0}"""
SIZE = "s = Shape<start = 0, end = 1>(x) t = Concat<axis = 0>(s, inner)\n"
IMAGE = "i = Concat<axis = 0>(s, image) o = ConstantOfShape<value = float[1] {1}>(i)\n"
PARTS = "p = Concat<axis = 0>(s, part) e = Expand(yes, p)\n"
CHOSEN = "b = Cast<to = 9>(r) w = Where(b, x, low) y = Relu(w)"
PACKED = """n = Squeeze(s, first) r = Range(nought, n, step) p = Unsqueeze(r, first)
b = Sub(p, step) f = Slice(b, first, one, one) j = Concat<axis = 1>(f, p)
k = Slice(j, one, end, one) m = Slice(j, first, s, one) d = Sub(k, m) q = Equal(d, step)
h = Not(q) i = Cast<to = 7>(h) z = CumSum(i, step) u = Unsqueeze(z, one) v = Transpose<perm = [2, 1, 0]>(u)
"""
"""Where positions do not grow by one, as transformers looks for packed sequences, in positions that all do."""
SUM = "e = Expand(all, t) m = Where(e, no, low) a = Add(x, m)\n"
WITHOUT_EFFECT = {
    "chosen by True everywhere": ("e = Expand(yes, t) w = Where(e, x, low) y = Relu(w)", {"Relu": 1}),
    "chosen by four times True": ("e = Expand(all, t) w = Where(e, x, low) y = Relu(w)", {"Relu": 1}),
    "chosen by what is not False": ("e = Expand(yes, t) f = Not(e) g = Not(f) w = Where(g, x, low) y = Relu(w)", {"Relu": 1}),
    "added before Softmax": (SUM + "y = Softmax(a)", {"Softmax": 1}),
    "added the other way": ("e = Expand(all, t) m = Where(e, no, low) a = Add(m, x) y = Softmax(a)", {"Softmax": 1}),
    "stored zeros before Softmax": ("a = Add(x, zeros) y = Softmax(a)", {"Softmax": 1}),
    "joined with a mask": ("e = Expand(yes, t) a = And(c, e) y = Where(a, x, low)", {"Where": 1}),
    "compared with True, as torch.export divides integers": (
        "e = Expand(yes, t) a = Equal(c, e) y = Where(a, x, low)",
        {"Where": 1},
    ),
    "no packed sequences, as transformers looks for them": (
        PACKED + "a = Equal(v, nought) w = And(c, a) y = Where(w, x, low)",
        {"Where": 1},
    ),
    "one of two masks": ("e = Expand(yes, t) f = Not(e) a = Or(f, c) y = Where(a, x, low)", {"Where": 1}),
    "larger than the mask, in a Where": (
        "f = Gather(c, first) e = Expand(yes, t) a = And(f, e) y = Where(a, x, low)",
        {"Where": 1, "Gather": 1},
    ),
    "made by ConstantOfShape": ("e = ConstantOfShape<value = bool[1] {1}>(t) w = Where(e, x, low) y = Relu(w)", {"Relu": 1}),
    "ones of another image": (IMAGE + 'r = Resize<mode = "nearest">(o, , scales)' + CHOSEN, {"Relu": 1}),
    "joined": (
        PARTS + "o = ConstantOfShape<value = bool[1] {1}>(p) j = Concat<axis = 2>(o, e) w = Where(j, x, low) y = Relu(w)",
        {"Relu": 1},
    ),
    "added before a second mask, other axes and Softmax": (
        SUM + "b = Add(a, x) v = Reshape(b, rows) p = Softmax(v) y = Reshape(p, back)",
        {"Add": 1, "Reshape": 2, "Softmax": 1},
    ),
    "zeros made by ConstantOfShape": ("e = ConstantOfShape(t) a = Add(x, e) y = Softmax(a)", {"Softmax": 1}),
}
OF_EFFECT = {
    "not everywhere": "e = Expand(some, t) y = Where(e, x, low)",
    "a mask of the input": "y = Where(c, x, low)",
    "a sum whose sign of zero is read": SUM + "y = Reciprocal(a)",
    "ones that are interpolated": IMAGE + 'r = Resize<mode = "linear">(o, , scales)' + CHOSEN,
    "ones that are extrapolated": (
        IMAGE + 'r = Resize<mode = "nearest", coordinate_transformation_mode = "tf_crop_and_resize">(o, region, scales)' + CHOSEN
    ),
    "joined True and False": PARTS + "f = Not(e) j = Concat<axis = 2>(e, f) y = Where(j, x, low)",
    "a sum whose sign of zero is read behind other axes": SUM + "v = Reshape(a, rows) r = Reciprocal(v) y = Reshape(r, back)",
    "a sum that is read twice": SUM + "b = Softmax(a) d = Reciprocal(a) y = Add(b, d)",
    "-1e9 everywhere": "e = Expand(all, t) m = Where(e, low, no) a = Add(x, m) y = Softmax(a)",
    "False joined to a mask": "e = Expand(yes, t) f = Not(e) a = And(c, f) y = Where(a, x, low)",
    "compared with False": "e = Expand(yes, t) f = Not(e) a = Equal(c, f) y = Where(a, x, low)",
    "True as one of two masks": "e = Expand(yes, t) a = Or(c, e) b = Not(a) y = Where(b, x, low)",
    "it gives the result its shape": "f = Gather(c, first) e = Expand(yes, t) a = And(f, e) y = Where(a, low, no)",
    "the shape is read": "f = Gather(c, first) e = Expand(yes, t) a = And(f, e) g = Cast<to = 1>(a) y = Add(g, no)",
    "chosen from fewer": "f = Gather(x, first) e = Expand(yes, t) y = Where(e, f, low)",
    "another number of axes": "e = Expand(yes, t) f = Unsqueeze(e, first) g = Where(f, x, low) y = Squeeze(g, first)",
}


def of(body: str) -> onnx.ModelProto:
    return parsed(SIZE + body, INPUTS, weights=WEIGHTS)


def feeds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4, 6)).astype(np.float32)
    x[:, :, :2] = [0.0, -0.0]
    return {"x": x, "c": rng.random((3, 4, 6)) < 0.5}


@pytest.mark.parametrize(("body", "left"), WITHOUT_EFFECT.values(), ids=WITHOUT_EFFECT)
def test_what_is_the_same_everywhere_and_hides_nothing_is_removed(body: str, left: dict[str, int]) -> None:
    model = of(body)
    found, written = simplified(model)
    assert found.passed or found.computed
    assert {k: n for k, n in operators(written).items() if k not in ("Shape", "Concat")} == left
    assert np.array_equal(run(written, feeds())[0], run(model, feeds())[0])


@pytest.mark.parametrize("body", OF_EFFECT.values(), ids=OF_EFFECT)
def test_what_changes_something_stays(body: str) -> None:
    model = of(body)
    _, written = simplified(model)
    kept = {"Add", "And", "Or"} if "Add(x, m)" in body else {"Where", "And", "Or"}  # a mask may be computed in advance
    assert {k: n for k, n in operators(written).items() if k in kept} == {k: n for k, n in operators(model).items() if k in kept}
    assert np.array_equal(run(written, feeds())[0], run(model, feeds())[0])


ATTENTION = """<ir_version: 9, opset_import: ["" : 20]>
g (float[N, 8, 32] x, float[32, 32] q, float[32, 32] k, float[32, 32] v) => (float[N, 8, 32] y)
<float no = {0}, float scale = {0.35}, int64[4] heads = {0, 0, 4, 8}, int64[3] joined = {0, 0, 32}, int64[2] inner = {8, 8},
 int64[1] one = {1}> {
  n = Shape<start = 0, end = 1>(x) size = Concat<axis = 0>(n, one, inner) keep = Expand(rows, size)
  qx = MatMul(x, q) qr = Reshape(qx, heads) qt = Transpose<perm = [0, 2, 1, 3]>(qr)
  kx = MatMul(x, k) kr = Reshape(kx, heads) kt = Transpose<perm = [0, 2, 3, 1]>(kr)
  vx = MatMul(x, v) vr = Reshape(vx, heads) vt = Transpose<perm = [0, 2, 1, 3]>(vr)
  p = MatMul(qt, kt) s = Mul(p, scale) m = Where(keep, no, low) b = Add(s, m) w = Softmax<axis = -1>(b)
  nan = IsNaN(w) sure = Where(nan, no, w) o = MatMul(sure, vt) t = Transpose<perm = [0, 2, 1, 3]>(o) y = Reshape(t, joined)
}"""


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("target", ["onnxruntime", "function"])
def test_attention_whose_mask_hides_nothing_has_no_mask_and_no_guard(masked: bool, target: str, tmp_path: Path) -> None:
    """As torch exports a network of images: no row is empty, so nothing guards against NaN."""
    model = onnx.parser.parse_model(ATTENTION)
    rows = np.array([True] * 7 + [not masked]).reshape(1, 1, 8, 1)
    model.graph.initializer.append(onnx.numpy_helper.from_array(rows, "rows"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(-np.inf, np.float32), "low"))
    path, output = tmp_path / "model.onnx", tmp_path / "fused.onnx"
    onnx.save(model, path)
    assert fuse(path, output, load_patterns(), Options(target=target)).verdict.verdict == "equivalent"
    written = onnx.load(output)
    (attention,) = [node for node in written.graph.node if node.op_type == "Attention"]
    assert any(attention.input[3:]) == masked
    assert any(a.name == "guarded" for a in attention.attribute) == (masked and target == "function")
    assert ("Expand" in operators(written)) == masked


def test_a_value_that_is_read_twice_at_each_step_is_followed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve steps, each of which adds a value to itself, would be 4,096 ways."""
    calls = 0
    real = uniform.fold

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return real(*arguments)

    monkeypatch.setattr(uniform, "fold", counted)
    sums = " ".join(f"a{i + 1} = Add(a{i}, a{i})" for i in range(12))
    model = ir.from_proto(of(f"e = Expand(zeros, t) a0 = Neg(e) {sums} u = Add(x, a12) y = Softmax(u)"))
    infer_shapes(model)
    assert uniform.element(Constants(model), model.graph[-1].inputs[0]) is None
    last = next(node for node in model.graph if node.outputs[0].name == "a12")
    assert uniform.element(Constants(model), last.outputs[0]) == 0 and calls < 40


@pytest.mark.parametrize(("last", "sums"), [("5", 0), ("-0.0", 1)])
def test_zeros_are_added_to_a_table_only_if_it_has_a_negative_zero(last: str, sums: int) -> None:
    """As the queries of DETR's decoder, which begins at torch.zeros_like(positions). -0 + 0 is 0."""
    body = f"{SIZE} e = ConstantOfShape(t) r = Expand(table, t) a = Add(e, r) y = Neg(a)"
    proto = parsed(body, INPUTS, weights=f"int64[2] inner = {{4, 6}}, float[1, 1, 6] table = {{0, 1, 2, 3, 4, {last}}}")
    written = simplified(proto)[1]
    assert operators(written)["Add"] == sums
    before, after = run(proto, feeds())[0], run(written, feeds())[0]
    assert before.tobytes() == after.tobytes()


def test_the_sum_of_zeros_and_an_input_stays_where_something_is_divided_by_it() -> None:
    proto = parsed(f"{SIZE} e = ConstantOfShape(t) a = Add(e, x) y = Reciprocal(a)", INPUTS, weights="int64[2] inner = {4, 6}")
    assert operators(simplified(proto)[1])["Add"] == 1
