"""What simplification takes for known holds at sizes that no verification draws: short lengths, and those below a bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph import Options, fuse, load_patterns
from onnx_subgraph.model.loop_states import loop_states
from onnx_subgraph.model.shapes import infer_shapes, proved_only
from onnx_subgraph.simplification.simplify_first import compute_read_rows
from onnx_subgraph.verification.sessions import Failure, Session, open_session, run
from tests.verification.models import write

HEAD = '<ir_version: 9, opset_import: ["" : 18]> g'
MODELS = {
    "a size below a bound is no other size that was named so before": f"""{HEAD}
      (float[batch, seq, 8] x) => (float[batch, 8] avg, float[batch, seq, 1] col, float[batch, seq, 8] y)
      <int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] five = {{5}}, int64[1] zero = {{0}}, int64[1] three = {{3}}> {{
        s = Shape (x)  d = Slice (s, two, three, zero)  dn = Neg (d)  c = Less (dn, zero)  width = Where (c, five, zero)
        n = Slice (s, one, two, zero)  k = Min (n, five)  top = Slice (x, zero, k, one)
        sm = ReduceSum <keepdims = 0> (top, one)  kf = Cast <to = 1> (k)  avg = Div (sm, kf)
        col = Gather <axis = 2> (x, width)  sg = Sigmoid (x)  y = Mul (x, sg) }}""",
    "an end that may be negative counts from the end": f"""{HEAD}
      (float[batch, seq, 8] x) => (float[batch, k, 8] out, int64[1] len, float[batch, seq, 8] y)
      <int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] five = {{5}}, int64[1] zero = {{0}}> {{
        s = Shape (x)  n = Slice (s, one, two, zero)  e = Sub (n, five)  a = Slice (x, zero, e, one)  b = Relu (a)
        out = Slice (b, zero, e, one)  sh = Shape (out)  len = Slice (sh, one, two, zero)
        sg = Sigmoid (x)  y = Mul (x, sg) }}""",
    "a Loop's state may grow, whatever the body declares": f"""{HEAD}
      (float[batch, seq, 8] x, float[1, 4] u) => (float[batch, seq, 8] y, float[k, 4] o, int64[q, 2] shs)
      <int64[1] i0 = {{0}}, int64[1] i1 = {{1}}, int64[1] i2 = {{2}}, int64[1] i5 = {{5}}, bool yes = {{1}}, int64 two = {{2}}> {{
        s = Shape (x)  n = Slice (s, i1, i2)  m = Min (n, i5)  d0 = Sub (i5, m)  d = Add (d0, i1)
        o, shs = Loop (two, yes, u) <body = b (int64 i, bool c, float[1, 4] st) => (bool c2, float[z, 4] nst, int64[2] sh) {{
          c2 = Identity (c)  sh = Shape (st)  rep = Concat <axis = 0> (d, i1)  nst = Tile (st, rep) }}>
        sg = Sigmoid (x)  y = Mul (x, sg) }}""",
    "a Loop without a step gives what it began with": f"""{HEAD}
      (float[batch, seq, 8] x, float[1, 4] u) => (float[batch, seq, 8] y, int64[2] size)
      <int64[1] i0 = {{0}}, int64[1] i1 = {{1}}, int64[1] i2 = {{2}}, int64[1] i5 = {{5}}, bool yes = {{1}},
       int64[2] rows = {{3, 1}}> {{
        s = Shape (x)  n = Slice (s, i1, i2)  m = Min (n, i5)  d = Div (m, i5)  trips = Squeeze (d)
        o = Loop (trips, yes, u) <body = b (int64 i, bool c, st) => (bool c2, nst) {{
          c2 = Identity (c)  one = Slice (st, i0, i1, i0)  nst = Tile (one, rows) }}>
        size = Shape (o)  sg = Sigmoid (x)  y = Mul (x, sg) }}""",
    "a row that a Slice takes need not be there": f"""{HEAD}
      (float[batch, seq, 8] x, float[8, 8] w) => (float[batch, k, 8] o, float[batch, k2, 8] o2)
      <int64[1] two = {{2}}, int64[1] three = {{3}}, int64[1] one = {{1}}, int64[1] m2 = {{-2}}, int64[1] m1 = {{-1}}> {{
        a = MatMul (x, w)  sg = Sigmoid (a)  y = Mul (a, sg)  o = Slice (y, two, three, one)
        c = MatMul (x, w)  sg2 = Sigmoid (c)  y2 = Mul (c, sg2)  o2 = Slice (y2, m2, m1, one) }}""",
}


@pytest.mark.parametrize("text", MODELS.values(), ids=MODELS)
def test_the_fused_model_gives_the_same_for_short_inputs(text: str, tmp_path: Path) -> None:
    model, output = write(tmp_path / "m.onnx", text), tmp_path / "fused.onnx"
    result = fuse(model, output, load_patterns(), Options())
    assert result.verdict.verdict == "equivalent" and result.rewrites
    sessions = [open_session(path, "CPUExecutionProvider", optimised=False) for path in (model, output)]
    random = np.random.default_rng(0)
    given = {"w": random.normal(size=(8, 8)).astype(np.float32), "u": np.ones((1, 4), np.float32)}
    for length in (1, 2, 3, 4, 5, 8):
        feeds = {"x": random.normal(size=(2, length, 8)).astype(np.float32)}
        feeds |= {name: array for name, array in given.items() if f"] {name}" in text.partition("=>")[0]}
        both = []
        for session in sessions:
            assert not isinstance(session, Failure)
            outputs = run(session, feeds)
            assert not isinstance(outputs, Failure), outputs
            both.append(outputs)
        for name, wanted in both[0].items():
            assert both[1][name].shape == wanted.shape, (name, length)
            np.testing.assert_allclose(both[1][name], wanted, rtol=1e-5, atol=1e-6)


LAST = """<ir_version: 9, opset_import: ["" : 18]> g (float[2, SIZE, 8] x, float[8, 8] w) => (float[?] o)
  <int64[1] start = {2}, int64[1] end = {3}, int64[1] axis = {AXIS}> {
    a = MatMul (x, w)  b = Relu (a)  o = Slice (b, start, end, axis) }"""


@pytest.mark.parametrize(("size", "rows"), [("3", 1), ("2", 2), ("seq", "seq")])
def test_a_row_is_computed_alone_where_it_is_there(size: str, rows: object) -> None:
    model = ir.from_proto(onnx.parser.parse_model(LAST.replace("SIZE", size).replace("AXIS", "1")))
    infer_shapes(model)
    compute_read_rows(model)
    product = next(node for node in model.graph if node.op_type == "MatMul")
    assert product.outputs[0].shape is not None and str(product.outputs[0].shape[1]) == str(rows)


@pytest.mark.parametrize("axis", ["5", "-5"])
def test_a_slice_along_no_axis_stays(axis: str) -> None:
    model = ir.from_proto(onnx.parser.parse_model(LAST.replace("SIZE", "3").replace("AXIS", axis)))
    infer_shapes(model)
    assert not compute_read_rows(model)


def test_the_sizes_of_states_that_a_loop_swaps_are_not_known() -> None:
    """One of them grows, which the other shows after the next step only. The Loop is in a body."""
    text = """<ir_version: 9, opset_import: ["" : 18]> g (bool c, float[1, 4] u) => (float[?, 4] o)
      <int64[2] rows = {2, 1}, bool yes = {1}, int64 two = {2}> {
        o = If (c) <else_branch = e () => (float[?, 4] z) { z = Identity (u) }, then_branch = t () => (float[?, 4] p) {
          p, q, r = Loop (two, yes, u, u, u) <body = b (int64 i, bool k, float[1, 4] s1, float[1, 4] s2, float[1, 4] s3)
            => (bool k2, float[?, 4] t1, float[?, 4] t2, float[1, 4] t3) {
              k2 = Identity (k)  t1 = Identity (s2)  t2 = Tile (s1, rows)  t3 = Relu (s3) }> }> }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    infer_shapes(model)
    with proved_only(model):
        sizes = [state.before.shape[0] for state in loop_states(model) if state.before.shape is not None]
    assert [isinstance(size, int) for size in sizes] == [False, False, True]


NARROW = """<ir_version: 10, opset_import: ["" : 18]> g (float[n] x) => (int64[k] y, int64[k] v, float[n] z)
  <int64[1] one = {1}> {
  s = Shape (x)  i = Cast <to = TYPE> (s)  t = Cast <to = 7> (i)  y = Mul (s, one)  v = Add (t, one)
  sg = Sigmoid (x)  z = Mul (x, sg) }"""


@pytest.mark.parametrize(("dtype", "length"), [("3", 200), ("2", 300), ("5", 40000), ("10", 4097), ("9", 3)])
def test_a_size_in_a_type_that_does_not_hold_it_is_another_number(dtype: str, length: int, tmp_path: Path) -> None:
    model, output = write(tmp_path / "m.onnx", NARROW.replace("TYPE", dtype)), tmp_path / "fused.onnx"
    assert fuse(model, output, load_patterns(), Options()).rewrites
    found = [run(session, {"x": np.zeros(length, np.float32)}) for session in map(opened, (model, output))]
    assert not any(isinstance(one, Failure) for one in found)
    np.testing.assert_array_equal(found[0]["v"], found[1]["v"])  # type: ignore[index]


def test_a_product_of_known_sizes_wraps_as_at_run_time(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 18]> g (float[3000] x) => (int64[1] y, float[3000] z)
      <int32[1] k = {1000000}> {
        s = Shape (x)  u = Cast <to = 6> (s)  p = Mul (u, k)  q = Div (p, k)  y = Cast <to = 7> (q)
        sg = Sigmoid (x)  z = Mul (x, sg) }"""
    model, output = write(tmp_path / "m.onnx", text), tmp_path / "fused.onnx"
    assert fuse(model, output, load_patterns(), Options()).verdict.verdict == "equivalent"
    outputs = run(opened(output), {"x": np.zeros(3000, np.float32)})
    assert not isinstance(outputs, Failure) and outputs["y"].tolist() == [-1294]


def test_a_scaled_size_is_rounded_as_at_run_time() -> None:
    """10 · 0.7 is 7 in float32 and a little less in float64."""
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[1, 1, 10, 20] x) => (float[?, ?, a, b] y)
      <float[0] e = {}, float[4] s = {1, 1, 0.7, 0.35}> { y = Resize <mode = "nearest"> (x, e, s) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    infer_shapes(model)
    assert model.graph.outputs[0].shape == [1, 1, 7, 7]


def opened(path: Path) -> Session:
    session = open_session(path, "CPUExecutionProvider", optimised=False)
    assert isinstance(session, Session)
    return session


def test_the_sizes_after_a_loop_that_may_not_run_are_those_of_an_operand_that_is_known() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]> g (int64 n, float[] unknown, float[1, 4] known) => (float[] p, float[] q)
      <bool yes = {1}, float[1, 4] made = {1, 2, 3, 4}> {
        p, q = Loop (n, yes, unknown, known) <body = b (int64 i, bool k, s, t) => (bool k2, float[1, 4] u, float[1, 4] v) {
          k2 = Identity (k)  u = Relu (made)  v = Neg (made) }> }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    infer_shapes(model)
    p, q = (value.shape for value in model.graph.outputs)
    assert p is None and q == ir.Shape([1, 4])
