"""Engines in the bodies of If and Loop: the results equal onnxruntime's, however often a body runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_subgraph import EngineSession
from onnx_subgraph.engine.custom_op import register_engines
from onnx_subgraph.engine.settings import EngineSettings
from onnx_subgraph.errors import EngineError, OnnxSubgraphWarning
from onnx_subgraph.partitioning.inline import inline
from onnx_subgraph.partitioning.options import PartitionOptions
from onnx_subgraph.partitioning.partition import PartitionResult, partition
from onnx_subgraph.partitioning.worth import RegionLimits
from tests.engine.backends import Scripted, fails
from tests.engine.test_custom_op import NEEDED

# A Loop with a condition, a carried value, a stacked value and a capture; then an If, one branch of which passes on
# a value of the main graph.
MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
both (float[n, 4] x, int64 most, bool flag) => (float[n, 4] y, float[steps, n, 4] seen, float[n, 4] z)
<float[4] w = {1.0, 2.0, 3.0, 4.0}, bool yes = {1}, float limit = {0.99915}>
{
  [loop] y, seen = Loop (most, yes, x) <body = step (int64 i, bool go, float[n, 4] s) => (bool next, float[n, 4] t, float[n, 4] u)
  {
    [step_Mul] a = Mul (s, w)
    [step_Tanh] t = Tanh (a)
    [step_Add] b = Add (t, x)
    [step_Abs] u = Abs (b)
    [step_Max] top = ReduceMax <keepdims = 0> (t)
    [step_Less] next = Less (top, limit)
  }>
  [branch] z = If (flag) <
    then_branch = taken () => (float[n, 4] p) { [then_Mul] q = Mul (y, w) [then_Tanh] p = Tanh (q) },
    else_branch = other () => (float[n, 4] r) { [else_Identity] r = Identity (x) }>
}
"""
# A Loop in an If in a Loop. The body of the inner Loop captures `x` from the main graph.
NESTED = """
<ir_version: 8, opset_import: ["" : 17]>
nested (float[4] x, int64 most) => (float[4] y)
<bool yes = {1}, int64 two = {2}, float zero = {0.0}>
{
  y = Loop (most, yes, x) <body = outer (int64 i, bool go, float[4] s) => (bool on, float[4] t)
  {
    on = Identity (go)
    total = ReduceSum <keepdims = 0> (s)
    positive = Greater (total, zero)
    t = If (positive) <
      then_branch = up () => (float[4] p) {
        p = Loop (two, yes, s) <body = inner (int64 j, bool c, float[4] v) => (bool d, float[4] w) {
          d = Identity (c)
          half = Sin (v)
          w = Sub (half, x)
        }>
      },
      else_branch = down () => (float[4] r) { n = Neg (s) r = Sin (n) }>
  }>
}
"""
LIMITS = RegionLimits(min_nodes=1, max_crossing=9, bodies=True)


class Only(Scripted):
    """A backend that supports only these operators."""

    def __init__(self, *operators: str, answering: Callable[[list[Any]], Any] = lambda outputs: outputs) -> None:
        super().__init__(answering=answering)
        self.operators = operators

    def supports(self, node: Any) -> bool:
        return node.op_type in self.operators


def parted(text: str, folder: Path, backend: Scripted, limits: RegionLimits = LIMITS) -> tuple[Path, Path, PartitionResult]:
    source, target = folder / "model.onnx", folder / "parted.onnx"
    onnx.save(onnx.parser.parse_model(text), source)
    return source, target, partition(source, target, PartitionOptions("scripted", limits), backend=backend)


def feeds(most: int, flag: bool, rows: int = 3) -> dict[str, np.ndarray]:
    x = np.linspace(-0.5, 0.5, rows * 4, dtype=np.float32).reshape(rows, 4)
    return {"x": x, "most": np.array(most, np.int64), "flag": np.array(flag)}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[ort.InferenceSession, EngineSession]:
    backend = Only("Mul", "Tanh", "Add")
    source, target, result = parted(MODEL, tmp_path_factory.mktemp("control"), backend)
    assert result.verdict.verdict == "equivalent"
    assert [engine.replaces for engine in result.engines] == [("step_Mul", "step_Tanh", "step_Add"), ("then_Mul", "then_Tanh")]
    return ort.InferenceSession(source), EngineSession(target, backends={"scripted": backend})


@given(most=st.integers(0, 9), flag=st.booleans(), rows=st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_it_computes_what_onnxruntime_computes(
    both: tuple[ort.InferenceSession, EngineSession], most: int, flag: bool, rows: int
) -> None:
    """The number of iterations is zero, the maximum, or fewer because of the condition. An empty batch is tried too."""
    plain, session = both
    given = feeds(most, flag, rows or 1)
    expected, found = plain.run(None, given), session.run(None, given)
    assert [array.shape for array in found] == [array.shape for array in expected]
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
        assert not any(np.shares_memory(mine, array) for array in given.values()), "what is handed out is the caller's"
    assert session.fallbacks == 0


def test_the_condition_ends_it(both: tuple[ort.InferenceSession, EngineSession]) -> None:
    _, session = both
    assert 1 < len(session.run(["seen"], feeds(50, True))[0]) < 50


def test_bodies_in_bodies(tmp_path: Path) -> None:
    source, target, result = parted(NESTED, tmp_path, backend := Only("Sin", "Sub", "Neg"))
    assert result.verdict.verdict == "equivalent" and len(result.engines) == 2
    plain, session = ort.InferenceSession(source), EngineSession(target, backends={"scripted": backend})
    for start in (0.7, -0.7):
        given = {"x": np.full(4, start, np.float32), "most": np.array(5, np.int64)}
        np.testing.assert_allclose(session.run(None, given)[0], plain.run(None, given)[0], rtol=1e-5, atol=1e-6)
    none = {"x": np.ones(4, np.float32), "most": np.array(0, np.int64)}
    (found,) = session.run(None, none)
    np.testing.assert_array_equal(found, none["x"])
    assert not np.shares_memory(found, none["x"]), "a Loop that never runs hands on what it got, but not the caller's own array"


def test_branches_may_use_equal_names_and_a_loop_may_have_unused_outputs(tmp_path: Path) -> None:
    """Each branch has its own engine, also after `warm`. An unused Loop output is not a result of the engine."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    alike (float[n, 4] x, int64 most, bool flag) => (float[n, 4] z)
    <bool yes = {1}>
    {
      y, unread = Loop (most, yes, x) <body = step (int64 i, bool go, float[n, 4] s) => (bool on, float[n, 4] t, float[n, 4] u)
        { on = Identity (go)  t = Sin (s)  u = Neg (t) }>
      z = If (flag) <
        then_branch = taken () => (float[n, 4] p) { q = Sin (y)  p = Neg (q) },
        else_branch = other () => (float[n, 4] p) { q = Neg (y)  r = Sin (q)  p = Sin (r) }>
    }
    """
    source, target, result = parted(text, tmp_path, backend := Only("Sin", "Neg"))
    assert len(result.engines) == 3
    plain, session = ort.InferenceSession(source), EngineSession(target, backends={"scripted": backend})
    for most, flag in ((0, True), (0, False), (3, True), (3, False)):
        expected = plain.run(None, feeds(most, flag))[0]
        np.testing.assert_allclose(session.warm(feeds(most, flag))[0], expected, rtol=1e-6)
        np.testing.assert_allclose(session.run(None, feeds(most, flag))[0], expected, rtol=1e-6)


def test_it_runs_anywhere_and_comes_back(tmp_path: Path) -> None:
    source, target, _ = parted(MODEL, tmp_path, Only("Mul", "Tanh", "Add"))
    plain, inlined = ort.InferenceSession(source), ort.InferenceSession(target)
    for mine, theirs in zip(inlined.run(None, feeds(4, True)), plain.run(None, feeds(4, True)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    assert inline(target, tmp_path / "back.onnx").calls == 2
    names = {node.name for graph in bodies(onnx.load(tmp_path / "back.onnx").graph) for node in graph.node}
    assert {"step_Mul", "step_Tanh", "step_Add", "then_Mul", "then_Tanh"} <= names


def bodies(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    return [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]


def test_by_default_bodies_get_no_engines(tmp_path: Path) -> None:
    *_, result = parted(MODEL, tmp_path, Only("Mul", "Tanh"), RegionLimits(min_nodes=1, max_crossing=9))
    assert result.unchanged


def test_onnxruntime_runs_a_body_whose_engine_fails(tmp_path: Path) -> None:
    source, target, _ = parted(MODEL, tmp_path, Only("Mul", "Tanh", "Add"))
    broken = Only("Mul", "Tanh", "Add", answering=fails(RuntimeError("gone")))
    session = EngineSession(target, backends={"scripted": broken}, settings=EngineSettings(retry=1e9))
    with pytest.warns(OnnxSubgraphWarning, match="gone"):
        found = session.run(None, feeds(4, True))
    for mine, theirs in zip(found, ort.InferenceSession(source).run(None, feeds(4, True)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_a_region_that_is_wrong_in_a_body_is_left(tmp_path: Path) -> None:
    wrong = Only("Mul", "Tanh", "Add", answering=lambda outputs: [output * 1.5 for output in outputs])
    *_, result = parted(MODEL, tmp_path, wrong)
    assert result.unchanged and {region.node for region in result.refused} == {"step_Mul", "then_Mul"}


def test_warming_reaches_bodies(tmp_path: Path) -> None:
    backend = Only("Mul", "Tanh", "Add")
    _, target, _ = parted(MODEL, tmp_path, backend)
    session = EngineSession(target, backends={"scripted": backend}, settings=EngineSettings(patience=0.0))
    session.warm(feeds(2, True))
    before = len(backend.compiled)
    session.run(None, feeds(2, True))
    assert session.fallbacks == 0 and len(backend.compiled) == before
    failing = EngineSession(target, backends={"scripted": Only("Mul", "Tanh", "Add", answering=fails(RuntimeError("gone")))})
    with pytest.raises(EngineError, match="gone"):
        failing.warm(feeds(2, True))


@NEEDED
def test_a_custom_operator_in_a_body_calls_its_backend(tmp_path: Path) -> None:
    backend = Only("Mul", "Tanh", "Add")
    source, target, _ = parted(MODEL, tmp_path, backend)
    options, counting = ort.SessionOptions(), Only("Mul", "Tanh", "Add")
    content = register_engines(target, options, backends={"scripted": counting})
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    for mine, theirs in zip(
        session.run(None, feeds(4, True)), ort.InferenceSession(source).run(None, feeds(4, True)), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    assert len(counting.compiled) == 2


def test_a_value_that_is_given_twice_is_two_arrays(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (int64 most, float[n] x) => (float[n] y, float[n] z) {
      y, z = Loop (most, "", x, x) <body = b (int64 i, bool c, float[n] s, float[n] t) => (bool d, float[n] u, float[n] u) {
        d = Identity (c)  a = Add (s, t)  e = Relu (a)  u = Mul (e, e) }> }"""
    model, output = tmp_path / "m.onnx", tmp_path / "p.onnx"
    onnx.save(onnx.parser.parse_model(text), model)
    limits = RegionLimits(min_nodes=1, max_crossing=1e9, deny=("Loop",), bodies=True)
    assert partition(model, output, PartitionOptions("onnxruntime", limits)).verdict.verdict == "equivalent"
    y, z = EngineSession(output).run(None, {"most": np.array(2), "x": np.ones(2, np.float32)})
    y *= 100
    np.testing.assert_array_equal(z, [64, 64])


@pytest.mark.parametrize(
    ("number", "condition", "given"),
    [("[1]", "", ""), ("", "[1]", "[1]"), ("[1]", "[k]", "[]"), ("", "", "[]"), ("", "[]", "[1]")],
)
@pytest.mark.parametrize("gives", ["", "[1]"])
def test_a_body_gets_its_number_and_condition_in_the_declared_shape(
    tmp_path: Path, number: str, condition: str, given: str, gives: str
) -> None:
    """Whatever shapes the condition of the model and that of the body have, results have the shapes that onnxruntime gives."""
    text = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    shapes (float[2] x, int64 most, bool{given} flag) => (y, numbers, ranks, conditions)
    {{
      y, numbers, ranks, conditions = Loop (most, flag, x) <body = step (int64{number} i, bool{condition} go, float[2] s)
        => (bool{gives} next, float[2] t, a, b, c)
      {{
        u = Sin (s)  t = Abs (u)
        shape = Constant <value_ints: ints = [{gives.strip("[]")}]> ()
        limit = Constant <value = int64 {{2}}> ()
        less = Less (i, limit)
        next = Reshape (less, shape)
        a = Identity (i)  b = Shape (i)  c = Identity (go)
      }}>
    }}
    """
    source, target, result = parted(text, tmp_path, backend := Only("Sin", "Abs"))
    assert result.verdict.verdict == "equivalent" and len(result.engines) == 1
    plain, session = ort.InferenceSession(source), EngineSession(target, backends={"scripted": backend})
    for most in (1, 9):
        flag = np.array([True]) if given == "[1]" else np.array(True)
        feed = {"x": np.ones(2, np.float32), "most": np.array(most, np.int64), "flag": flag}
        for mine, theirs in zip(session.run(None, feed), plain.run(None, feed), strict=True):
            assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
            np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def test_a_sequence_that_a_loop_hands_on_is_not_the_callers(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
      g (seq(float[n]) s, float[n] x, int64 most) => (seq(float[n]) t, float[n] y) <bool yes = {1}> {
        t, y = Loop (most, yes, s, x) <body = step (int64 i, bool go, seq(float[n]) a, float[n] b)
          => (bool next, seq(float[n]) c, float[n] d) { next = Identity (go) c = Identity (a) e = Sin (b) d = Abs (e) }> }"""
    _, target, result = parted(text, tmp_path, backend := Only("Sin", "Abs"))
    assert result.engines
    given = {"s": [np.ones(3, np.float32)], "x": np.ones(3, np.float32), "most": np.array(0, np.int64)}
    handed, _ = EngineSession(target, backends={"scripted": backend}).run(None, given)
    np.testing.assert_array_equal(handed[0], given["s"][0])
    assert not np.shares_memory(handed[0], given["s"][0])


def test_stacked_results_have_the_shape_of_the_first(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[a, b] x, int64 most) => (y, seen) <bool yes = {1}> {
      y, seen = Loop (most, yes, x) <body = step (int64 i, bool go, float[a, b] s) => (bool next, float[b, a] t, float[a, b] u)
        { next = Identity (go) v = Sin (s) w = Abs (v) u = Identity (s) t = Transpose (w) }> }"""
    source, target, result = parted(text, tmp_path, backend := Only("Sin", "Abs"))
    assert result.verdict.verdict == "equivalent" and result.engines
    given = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "most": np.array(3, np.int64)}
    expected, found = (
        ort.InferenceSession(source).run(None, given),
        EngineSession(target, backends={"scripted": backend}).run(None, given),
    )
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def test_a_branch_may_give_a_constant(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, bool flag) => (float[2] y) {
      y = If (flag) <then_branch = t () => (float[2] p) { a = Sin (x) p = Abs (a) },
                     else_branch = e () => (float[2] q) { q = Constant <value = float[2] {3.0, 4.0}> () }> }"""
    _, target, result = parted(text, tmp_path, backend := Only("Sin", "Abs"))
    assert result.engines
    session = EngineSession(target, backends={"scripted": backend})
    for flag, expected in ((True, np.sin([1, 1])), (False, [3, 4])):
        (found,) = session.run(None, {"x": np.ones(2, np.float32), "flag": np.array(flag)})
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_loop_of_no_steps_may_read_what_another_part_computes(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, int64 n) => (float[2] last, float[steps, 2] every) {
      most = Abs (n)
      begin = Neg (x)
      last, every = Loop (most, "", begin) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] u) {
        d = Identity (c) t = Sin (s) u = Neg (s) }> }"""
    source, target, result = parted(text, tmp_path, backend := Only("Sin"))
    assert result.engines
    session = EngineSession(target, backends={"scripted": backend})
    for number in (0, 2):
        given = {"x": np.ones(2, np.float32), "n": np.array(number)}
        for mine, theirs in zip(session.run(None, given), ort.InferenceSession(source).run(None, given), strict=True):
            assert mine.shape == theirs.shape
            np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def test_a_condition_that_a_loop_hands_on_is_not_the_callers(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, bool more) => (bool last, float[2] y) {
      one = Constant <value_int = 1> ()
      last, y = Loop (one, more, more, x) <body = b (int64 i, bool k, bool l, float[2] s) => (bool d, bool k, float[2] t) {
        d = Identity (k) t = Sin (s) }> }"""
    _, target, result = parted(text, tmp_path, backend := Only("Sin"))
    assert result.engines
    given = {"x": np.ones(2, np.float32), "more": np.array(True)}
    last, _ = EngineSession(target, backends={"scripted": backend}).run(None, given)
    assert last and not np.shares_memory(last, given["more"])
