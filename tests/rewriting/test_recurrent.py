"""Loops whose step is the formula of an LSTM, GRU or RNN, in any spelling, become that operator. Other loops stay."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from onnx_subgraph import Options, fuse, load_patterns
from onnx_subgraph.explaining import explain
from onnx_subgraph.model.gaps import DECLARE
from onnx_subgraph.model.shapes import declared_only, infer_shapes
from onnx_subgraph.rewriting import recurrent
from onnx_subgraph.rewriting.cells import Cell, cell_of
from onnx_subgraph.rewriting.recurrent import make_recurrent
from onnx_subgraph.rewriting.rewrite import Way

INPUTS, HIDDEN = 3, 2
"""Sizes of a row of the sequence and of a state."""

KERAS_LSTM = """
    i0, f0, g0, o0 = Split<axis = 1>(wx)
    bi, bf, bg, bo = Split<axis = 0>(bias)
    s = Shape(h) ones = ConstantOfShape<value = float[1] {1}>(s) kept = Mul(h, ones)
    starts = Constant<value = int64[2] {0, 0}>() axes = Constant<value = int64[2] {0, 1}>()
    e2 = Constant<value = int64[2] {2147483647, 2}>() e4 = Constant<value = int64[2] {2147483647, 4}>()
    e6 = Constant<value = int64[2] {2147483647, 6}>() e8 = Constant<value = int64[2] {2147483647, 2147483647}>()
    s2 = Constant<value = int64[2] {0, 2}>() s4 = Constant<value = int64[2] {0, 4}>() s6 = Constant<value = int64[2] {0, 6}>()
    ri = Slice(wh, starts, e2, axes) rf = Slice(wh, s2, e4, axes) rg = Slice(wh, s4, e6, axes) ro = Slice(wh, s6, e8, axes)
    xi = MatMul(row, i0) xbi = Add(xi, bi) hi = MatMul(kept, ri) zi = Add(xbi, hi) i = Sigmoid(zi)
    xf = MatMul(row, f0) xbf = Add(bf, xf) hf = MatMul(h, rf) zf = Add(hf, xbf) f = Sigmoid(zf)
    xg = MatMul(row, g0) xbg = Add(xg, bg) hg = MatMul(kept, rg) zg = Add(xbg, hg) g = Tanh(zg)
    xo = MatMul(row, o0) xbo = Add(xo, bo) ho = MatMul(kept, ro) zo = Add(xbo, ho) o = Sigmoid(zo)
    keep = Mul(f, c) new = Mul(i, g) c_next = Add(keep, new) squashed = Tanh(c_next) h_next = Mul(o, squashed)
"""
PACKED_LSTM = """
    xs = MatMul(row, wx) hs = MatMul(h, wh) sum = Add(xs, hs) z = Add(sum, bias)
    zi, zf, zg, zo = Split<axis = 1>(z)
    i = Sigmoid(zi) f = Sigmoid(zf) g = Tanh(zg) o = Sigmoid(zo)
    keep = Mul(c, f) new = Mul(g, i) c_next = Add(new, keep) squashed = Tanh(c_next) h_next = Mul(squashed, o)
"""
GRU_AFTER = """
    bx, bh = Split<axis = 0>(both)
    xs = MatMul(row, wx) xb = Add(xs, bx) hs = MatMul(h, wh) hb = Add(hs, bh)
    xz, xr, xn = Split<axis = -1>(xb) hz, hr, hn = Split<axis = -1>(hb)
    z0 = Add(xz, hz) z = Sigmoid(z0) r0 = Add(xr, hr) r = Sigmoid(r0) rn = Mul(r, hn) n0 = Add(xn, rn) n = Tanh(n0)
    unit = Constant<value = float {1}>() rest = Sub(unit, z) old = Mul(z, h) new = Mul(rest, n) h_next = Add(old, new)
"""
GRU_BEFORE = """
    xz, xr, xn = Split<axis = 1>(wx) hz, hr, hn = Split<axis = 1>(wh) bz, br, bn = Split<axis = 0>(bias)
    z1 = MatMul(row, xz) z2 = MatMul(h, hz) z3 = Add(z1, z2) z4 = Add(z3, bz) z = Sigmoid(z4)
    r1 = MatMul(row, xr) r2 = MatMul(h, hr) r3 = Add(r1, r2) r4 = Add(r3, br) r = Sigmoid(r4)
    reset = Mul(r, h) n1 = MatMul(row, xn) n2 = MatMul(reset, hn) n3 = Add(n1, n2) n4 = Add(n3, bn) n = Tanh(n4)
    unit = Constant<value = float {1}>() rest = Sub(unit, z) old = Mul(z, h) new = Mul(rest, n) h_next = Add(old, new)
"""
RNN = "xs = MatMul(row, wx) hs = MatMul(h, wh) z0 = Add(xs, hs) z = Add(z0, bias) h_next = Relu(z)"

CASES = {
    "LSTM as Keras": (KERAS_LSTM, 4, "LSTM"),
    "LSTM of packed gates": (PACKED_LSTM, 4, "LSTM"),
    "GRU, reset after": (GRU_AFTER, 3, "GRU"),
    "GRU, reset before": (GRU_BEFORE, 3, "GRU"),
    "simple RNN": (RNN, 1, "RNN"),
}


def model(
    step: str,
    gates: int,
    *,
    listed: str = "h_next",
    ended: str = "on = Less(next, length)",
    length: str = "Squeeze(steps)",
    carried: bool = True,
    steps: str = "5",
    last: bool = True,
    trips: str = "",
    going: str = "going = Less(start, length)",
) -> onnx.ModelProto:
    """A Loop over x (steps, N, 3) with these gates. It returns all hidden states, and the last states if `last`."""
    cell = "c" if "c_next" in step else ""
    states = ["h", *(["c"] if cell else [])]
    weights = ["wx", "wh", "bias", "both"]
    kept = ["wx", "wh"] if carried else []
    body_inputs = ", ".join([f"float[N, {HIDDEN}] {s}" for s in states] + [f"float[A, B] {w}" for w in kept])
    body_outputs = ", ".join(
        [f"float[N, {HIDDEN}] {s}_next" for s in states]
        + [f"float[A, B] {w}_same" for w in kept]
        + [f"float[N, {HIDDEN}] {listed}_listed"]
    )
    same = "wx_same = Identity(wx) wh_same = Identity(wh)" if carried else ""
    begin = ", ".join([f"{s}_0" for s in states] + [f"{w}_0" for w in kept])
    results = ", ".join([f"{s}_last" for s in states] + [f"{w}_last" for w in kept] + ["ys"])
    outputs = ", ".join([f"float[N, {HIDDEN}] {s}_last" for s in states if last] + [f"float[{steps}, N, {HIDDEN}] ys"])
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[{steps}, N, {INPUTS}] x) => ({outputs}) {{
        shape = Shape(x) zero = Constant<value = int64[1] {{0}}>() one = Constant<value = int64[1] {{1}}>()
        width = Constant<value = int64[1] {{{HIDDEN}}}>()
        steps = Gather(shape, zero) length = {length} rows = Gather(shape, one) size = Concat<axis = 0>(rows, width)
        h_0 = ConstantOfShape(size) c_0 = ConstantOfShape(size) start = Constant<value = int64 {{0}}>()
        four = Constant<value = int64 {{4}}>() five = Constant<value = int64 {{5}}>() six = Constant<value = int64 {{6}}>()
        {going}
        count, {results} = Loop({trips}, going, start, {begin}) <body = body (int64 number, bool was, int64 t, {body_inputs})
            => (bool on, int64 next, {body_outputs}) {{
            row = Gather<axis = 0>(x, t) by = Constant<value = int64 {{1}}>() next = Add(t, by)
            {step} {same} {listed}_listed = Identity({listed}) {ended}
        }}>
    }}"""
    made = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    arrays = {
        "wx": (INPUTS, gates * HIDDEN),
        "wh": (HIDDEN, gates * HIDDEN),
        "bias": (gates * HIDDEN,),
        "both": (2 * gates * HIDDEN,),
    }
    for name in weights:
        stored = f"{name}_0" if name in kept else name
        array = random.standard_normal(arrays[name]).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, stored))
    return made


def made(proto: onnx.ModelProto) -> tuple[list[str], onnx.ModelProto]:
    loaded = ir.from_proto(proto)
    infer_shapes(loaded)
    found = make_recurrent(loaded)
    with declared_only(loaded):
        written = ir.to_proto(loaded)
    return [one.operator for one in found], written


def run(proto: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    return list(onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x}))


@pytest.mark.parametrize("carried", [True, False], ids=["weights that are carried", "weights from outside"])
@pytest.mark.parametrize(("step", "gates", "operator"), CASES.values(), ids=CASES)
def test_a_loop_of_a_cell_becomes_its_operator(step: str, gates: int, operator: str, carried: bool) -> None:
    proto = model(step, gates, carried=carried)
    found, written = made(proto)
    assert found == [operator]
    onnx.checker.check_model(written)
    assert not any(node.op_type == "Loop" for node in written.graph.node)
    for rows in (1, 3):
        x = np.random.default_rng(rows).standard_normal((5, rows, INPUTS)).astype(np.float32)
        for before, after in zip(run(proto, x), run(written, x), strict=True):
            np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("barred", "found"), [(None, []), ([("LSTM", "")], []), ([("GRU", "")], ["LSTM"]), ([], ["LSTM"])])
def test_an_operator_that_was_wrong_is_not_made_again(barred: list[Way] | None, found: list[str]) -> None:
    loaded = ir.from_proto(model(PACKED_LSTM, 4))
    infer_shapes(loaded)
    assert [one.operator for one in make_recurrent(loaded, barred=lambda place: barred)] == found
    assert any(node.op_type == "Loop" for node in loaded.graph) == (not found)


def test_a_sequence_may_have_any_length_if_the_last_states_are_unread() -> None:
    proto = model(PACKED_LSTM, 4, steps="T", last=False)
    found, written = made(proto)
    assert found == ["LSTM"]
    for steps in (0, 1, 7):
        x = np.random.default_rng(steps).standard_normal((steps, 2, INPUTS)).astype(np.float32)
        (before,), (after,) = run(proto, x), run(written, x)
        assert before.size == after.size  # for zero steps, onnxruntime's Loop gives the list another shape
        np.testing.assert_allclose(after.ravel(), before.ravel(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f = Sigmoid(zf)", "f = Tanh(zf)"),
        ("keep = Mul(c, f)", "keep = Mul(h, f)"),
        ("squashed = Tanh(c_next)", "squashed = Tanh(c)"),
        ("c_next = Add(new, keep)", "c_next = Sub(new, keep)"),
        ("z = Add(sum, bias)", "scaled = Mul(sum, sum) z = Add(scaled, bias)"),
        ("hs = MatMul(h, wh)", "hs = MatMul(c, wh)"),
    ],
)
def test_a_loop_with_another_formula_stays(before: str, after: str) -> None:
    assert before in PACKED_LSTM
    assert made(model(PACKED_LSTM.replace(before, after), 4))[0] == []


@pytest.mark.parametrize("ones", ["1, 1, 1", "1, 1"])
def test_a_constant_that_raises_the_rank_of_a_state_is_no_factor_of_one(ones: str) -> None:
    shape = ", ".join("1" for _ in ones.split(","))
    scaled = f"one = Constant<value = float[{shape}] {{1}}>() kept = Mul(h, one) hs = MatMul(kept, wh)"
    proto = model(PACKED_LSTM.replace("hs = MatMul(h, wh)", scaled), 4)
    assert made(proto)[0] == (["LSTM"] if ones == "1, 1" else [])


@pytest.mark.parametrize(("kind", "holds_it"), [(6, True), (7, True), (2, False), (3, False), (9, False), (10, False)])
def test_a_length_in_a_type_that_does_not_hold_it_is_no_limit(kind: int, holds_it: bool) -> None:
    """As int8, 130 rows are -126 steps."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[T, 2, 3] x) => (float[U, 2, 2] states)
    <float[3, 2] w = {{1, 2, 3, 4, 5, 6}}, float[2, 2] r = {{0.1, 0.2, 0.3, 0.4}}, float[2, 2] h0 = {{0, 0, 0, 0}},
    bool go = {{1}}, int64[1] first = {{0}}> {{
      s = Shape(x) size = Gather(s, first) rows = Squeeze(size)
      narrow = Cast<to = {kind}>(rows) trips = Cast<to = 7>(narrow)
      last, states = Loop(trips, go, h0) <
        body = b (int64 t, bool was, float[2, 2] h) => (bool on, float[2, 2] n, float[2, 2] k) {{
          row = Gather(x, t) a = MatMul(row, w) c = MatMul(h, r) z = Add(a, c)
          n = Tanh(z) k = Identity(n) on = Identity(was) }}> }}"""
    assert made(onnx.parser.parse_model(text))[0] == (["RNN"] if holds_it else [])


def test_a_loop_with_another_number_of_steps_stays() -> None:
    assert made(model(PACKED_LSTM, 4))[0] == ["LSTM"]
    assert made(model(PACKED_LSTM, 4, ended="on = LessOrEqual(next, length)"))[0] == []
    assert made(model(PACKED_LSTM, 4, ended="on = Less(t, length)"))[0] == []
    assert made(model(PACKED_LSTM, 4, length="ReduceMax<keepdims = 0>(shape)"))[0] == []
    assert made(model(PACKED_LSTM, 4, ended="by2 = Add(by, by) end = Less(next, length) on = Not(end)"))[0] == []


BOTH = "within = Less(number, {}) more = Less(next, {}) on = And(within, more)"
"""The condition of a Loop that Keras 3 exports, with limits of the numbers of this step and of the next one."""


@pytest.mark.parametrize(
    ("trips", "ended", "all_steps"),
    [
        ("five", BOTH.format("five", "five"), True),
        ("six", BOTH.format("six", "length"), True),
        ("", BOTH.format("four", "six"), True),
        ("five", "on = Identity(was)", True),
        ("length", "on = Less(number, length)", True),
        ("four", BOTH.format("five", "five"), False),
        ("six", BOTH.format("six", "six"), False),
        ("five", BOTH.format("five", "four"), False),
        ("six", BOTH.format("five", "six"), False),
        ("", "on = Identity(was)", False),
        ("five", "within = Less(number, five) on = Not(within)", False),
    ],
)
def test_a_loop_ends_at_the_least_of_its_limits(trips: str, ended: str, all_steps: bool) -> None:
    """Of its trip count, and of the limits in its condition, of which that of this step's number allows one step more."""
    proto = model(GRU_AFTER, 3, trips=trips, ended=ended)
    found, written = made(proto)
    assert found == (["GRU"] if all_steps else [])
    if all_steps:
        x = np.random.default_rng(0).standard_normal((5, 2, INPUTS)).astype(np.float32)
        for before, after in zip(run(proto, x), run(written, x), strict=True):
            np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("trips", "going", "ended", "all_steps"),
    [
        ("", "going = Less(start, length)", BOTH.format("length", "length"), True),
        ("length", "going = Less(start, length)", BOTH.format("length", "length"), True),
        ("length", "going = Constant<value = bool {1}>()", "on = Identity(was)", True),
        ("", "some = Less(start, length) going = And(some, some)", BOTH.format("length", "length"), True),
        ("", "going = Constant<value = bool {1}>()", BOTH.format("length", "length"), False),
        ("five", "going = Less(start, length)", BOTH.format("length", "length"), False),
        ("five", "going = Less(start, length)", BOTH.format("five", "five"), False),
        ("length", "going = Less(four, length)", "on = Identity(was)", False),
    ],
)
def test_a_limit_may_be_the_length_of_any_sequence(trips: str, going: str, ended: str, all_steps: bool) -> None:
    """A fixed limit may be below the length, and without a row the Loop must not start."""
    proto = model(PACKED_LSTM, 4, steps="T", last=False, trips=trips, ended=ended, going=going)
    found, written = made(proto)
    assert found == (["LSTM"] if all_steps else [])
    if all_steps:
        for steps in (0, 1, 7):
            x = np.random.default_rng(steps).standard_normal((steps, 2, INPUTS)).astype(np.float32)
            (before,), (after,) = run(proto, x), run(written, x)
            np.testing.assert_allclose(after.ravel(), before.ravel(), rtol=1e-5, atol=1e-6)


def test_loops_that_onnxruntime_computes_wrongly_for_an_empty_sequence_stay() -> None:
    """Its GRU ends the process for an empty sequence, and the other last states are uninitialised memory."""
    for step in (GRU_AFTER, GRU_BEFORE):
        assert made(model(step, 3, steps="T", last=False))[0] == []
    for step, gates, _ in CASES.values():
        assert made(model(step, gates, steps="T"))[0] == []


@pytest.mark.parametrize(
    ("proto", "why", "may_be_fixed"),
    [
        (model(GRU_AFTER, 3, steps="T", last=False), "onnxruntime's GRU is wrong for a sequence without rows", True),
        (model(RNN, 1, steps="T"), "onnxruntime's RNN is wrong for a sequence without rows", True),
        (model(RNN, 1, ended="on = Less(t, length)"), "its steps may be more or fewer than the rows of its sequence", False),
        (model(PACKED_LSTM, 4, listed="c_next"), "it gives other results than the operator", False),
    ],
    ids=["GRU", "last state", "steps", "results"],
)
def test_the_report_says_why_a_loop_of_a_cell_stays(proto: onnx.ModelProto, why: str, may_be_fixed: bool, tmp_path: Path) -> None:
    onnx.save(proto, tmp_path / "m.onnx")
    result = fuse(tmp_path / "m.onnx", None, load_patterns(), Options())
    told = [skip for skip in result.skipped if skip.pattern == "recurrent"]
    assert [skip.reason for skip in told] == [why] and told[0].change == (DECLARE if may_be_fixed else "")
    assert set(told) <= set(explain(tmp_path / "m.onnx", load_patterns(), Options()).skipped)


def test_a_loop_of_another_formula_is_not_told(tmp_path: Path) -> None:
    onnx.save(model(PACKED_LSTM.replace("f = Sigmoid(zf)", "f = Tanh(zf)"), 4), tmp_path / "m.onnx")
    assert not fuse(tmp_path / "m.onnx", None, load_patterns(), Options()).skipped


@pytest.mark.parametrize(("step", "gates", "assumed"), [(PACKED_LSTM, 4, ["nonempty"]), (RNN, 1, [])], ids=["LSTM", "RNN"])
def test_an_operator_that_ends_the_process_for_an_empty_batch_says_what_it_assumes(
    step: str, gates: int, assumed: list[str], tmp_path: Path
) -> None:
    onnx.save(model(step, gates), tmp_path / "loop.onnx")
    command = [sys.executable, "-m", "onnx_subgraph", "fuse", "loop.onnx"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert ("assuming that no batch or length is 0" in " ".join(said.split())) is bool(assumed)
    loaded = json.loads(subprocess.run([*command, "--json"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
    assert [one["assumes"] for one in loaded["recurrent"]] == [assumed]


def test_a_fixed_batch_is_not_empty() -> None:
    loaded = ir.from_proto(model(PACKED_LSTM, 4))
    loaded.graph.inputs[0].shape = ir.Shape([5, 2, INPUTS])
    infer_shapes(loaded)
    assert [one.rewrite.assumes for one in make_recurrent(loaded)] == [frozenset()]


def test_an_unread_inner_loop_is_removed_with_its_body() -> None:
    inner = """most = Constant<value = int64 {2}>()
        unread = Loop(most, , h) <body = i (int64 j, bool so, float[A, B] z) => (bool more, float[A, B] zz) {
            more = Identity(so) zz = Neg(z) }>"""
    proto = model(RNN + " " + inner, 1)
    found, written = made(proto)
    assert found == ["RNN"]
    x = np.random.default_rng(0).standard_normal((5, 2, INPUTS)).astype(np.float32)
    for before, after in zip(run(proto, x), run(written, x), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


def test_a_loop_that_stacks_another_value_stays() -> None:
    assert made(model(PACKED_LSTM, 4, listed="c_next"))[0] == []
    assert made(model(PACKED_LSTM, 4, listed="h"))[0] == []


def test_a_loop_that_skips_masked_steps_stays() -> None:
    """Masked steps are known only at run time."""
    where = """new_h = Mul(squashed, o) zeros = Sub(h, h) present = Less(zeros, h) h_next = Where(present, new_h, h)"""
    masked = PACKED_LSTM.replace("h_next = Mul(squashed, o)", where)
    assert made(model(masked, 4))[0] == []


def test_a_slice_of_rows_is_not_a_gate() -> None:
    """A Slice along the batch does not select a gate."""
    cut = """first = Constant<value = int64[1] {0}>() some = Constant<value = int64[1] {2}>()
    cut = Slice(z0, first, some, first) z1 = Add(cut, bias) z = Identity(z1)"""
    assert made(model(RNN.replace("z = Add(z0, bias)", cut), 1))[0] == []


def test_fuse_verifies_the_operator_and_reports_it(tmp_path: Path) -> None:
    onnx.save(model(KERAS_LSTM, 4), tmp_path / "m.onnx")
    result = fuse(tmp_path / "m.onnx", tmp_path / "o.onnx", load_patterns(), Options())
    assert result.verdict.verdict == "equivalent" and [one.operator for one in result.recurrent] == ["LSTM"]
    assert result.operators_after["LSTM"] == 1 and "Loop" not in result.operators_after
    for options in (Options(keep_loops=True), Options(only=("gelu",))):
        kept = fuse(tmp_path / "m.onnx", None, load_patterns(), options)
        assert not kept.recurrent and kept.operators_after["Loop"] == 1


def renamed(graph: onnx.GraphProto, prefix: str) -> onnx.GraphProto:
    """The graph with a prefix on the names of all values, also in bodies."""
    for node in graph.node:
        node.input[:] = [name and prefix + name for name in node.input]
        node.output[:] = [name and prefix + name for name in node.output]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                renamed(attribute.g, prefix)
    for named in (*graph.input, *graph.output, *graph.initializer):
        named.name = prefix + named.name
    return graph


def two_loops() -> onnx.ModelProto:
    """An LSTM and a GRU that are independent."""
    one, other = model(KERAS_LSTM, 4), renamed(model(GRU_AFTER, 3).graph, "other_")
    one.graph.node.extend(other.node)
    one.graph.initializer.extend(other.initializer)
    one.graph.input.extend(other.input)
    one.graph.output.extend(other.output)
    return one


def test_each_loop_is_checked_alone(tmp_path: Path) -> None:
    onnx.save(two_loops(), tmp_path / "m.onnx")
    result = fuse(tmp_path / "m.onnx", None, load_patterns(), Options(sites=True))
    assert [one.operator for one in result.recurrent] == ["LSTM", "GRU"]
    checks = [check for check in result.sites if check.rewrite.pattern == "recurrent"]
    assert [check.rewrite.place.results for check in checks] == [("h_last", "c_last", "ys"), ("other_h_last", "other_ys")]
    assert all(check.proved and check.against == "float64" and check.values == "flowing" for check in checks), checks


def test_a_wrong_operator_is_named_and_undone_and_the_other_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(formula: Mapping[Any, Any]) -> Cell | None:
        cell = cell_of(formula)
        return replace(cell, weight=cell.weight * np.float32(1.01)) if cell is not None and cell.operator == "GRU" else cell

    monkeypatch.setattr(recurrent, "cell_of", wrong)
    onnx.save(two_loops(), tmp_path / "m.onnx")
    result = fuse(tmp_path / "m.onnx", tmp_path / "o.onnx", load_patterns(), Options())
    assert result.verdict.verdict == "equivalent" and result.output is not None
    assert [(one.rewrite.pattern, one.rewrite.op, one.found) for one in result.undone] == [("recurrent", "GRU", "site")]
    assert [one.operator for one in result.recurrent] == ["LSTM"] and [one.operator for one in result.unrecurrent] == ["GRU"]
    assert result.operators_after["LSTM"] == result.operators_after["Loop"] == 1 and "GRU" not in result.operators_after


def test_a_loop_in_a_branch_is_checked_on_random_values_with_equal_steps(tmp_path: Path) -> None:
    """Values inside a branch can't be captured. The number of steps follows from the random sequence."""
    inner = model(PACKED_LSTM, 4, steps="T", last=False)
    outer = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (bool which, float[T, N, {INPUTS}] x) => (float[T, N, {HIDDEN}] y) {{ }}"""
    )
    zero = onnx.parser.parse_graph(
        f"z () => (float[T, N, {HIDDEN}] zero) {{ s = Constant<value = int64[1] {{0}}>() e = Constant<value = int64[1] {{2}}>()"
        " a = Constant<value = int64[1] {2}>() zero = Slice(x, s, e, a) }"
    )
    branch = onnx.helper.make_graph(list(inner.graph.node), "b", [], list(inner.graph.output))
    outer.graph.initializer.extend(inner.graph.initializer)
    outer.graph.node.append(onnx.helper.make_node("If", ["which"], ["y"], then_branch=branch, else_branch=zero))
    onnx.save(outer, tmp_path / "m.onnx")
    result = fuse(tmp_path / "m.onnx", None, load_patterns(), Options(sites=True))
    assert [one.operator for one in result.recurrent] == ["LSTM"], result.undone
    (check,) = [check for check in result.sites if check.rewrite.pattern == "recurrent"]
    assert check.proved and check.values == "drawn", check
