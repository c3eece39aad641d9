"""A session of engines takes the feeds that onnxruntime takes, with the same results, and says what is wrong with others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnx_subgraph import EngineSession, UsageError
from onnx_subgraph.partitioning.options import PartitionOptions
from onnx_subgraph.partitioning.partition import partition
from onnx_subgraph.partitioning.worth import RegionLimits

LIMITS = RegionLimits(min_nodes=1, max_crossing=9, allow=("Sin", "Abs"))
X = np.linspace(0, 1, 2, dtype=np.float32)
FLOATS, STRINGS = np.ones(2, np.float32), np.array(["a", "bcé"])


def sessions(folder: Path, declared: str, result: str, nodes: str) -> tuple[ort.InferenceSession, EngineSession]:
    """Of a model with one engine beside an input `t`, which `nodes` make `z` of."""
    source, target = folder / "model.onnx", folder / "parted.onnx"
    text = f"""<ir_version: 9, opset_import: ["" : 18]>
      fed (float[n] x, {declared} t) => (float[n] y, {result} z) {{ a = Sin (x)  y = Abs (a)  {nodes} }}"""
    onnx.save(onnx.parser.parse_model(text), source)
    done = partition(source, target, PartitionOptions("onnxruntime", LIMITS, verify="optional" not in declared))
    assert len(done.engines) == 1
    return ort.InferenceSession(source), EngineSession(target)


def assert_equal(mine: Any, theirs: Any) -> None:
    assert type(mine) is type(theirs)
    if isinstance(theirs, list):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            assert_equal(one, other)
    elif theirs is not None:
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("declared", "nodes", "given"),
    [
        *(("float[m]", "z = Neg (t)", given) for given in ([1, 2.5], [True], [], [np.float32(3)], ["1.5"], [None, 1])),
        *(("int64[m]", "z = Neg (t)", given) for given in ([1, 2], [2.7, -2.7], [])),
        *((f"{dtype}[m]", "z = Identity (t)", [1, 0]) for dtype in ("double", "float16", "int32", "uint8", "bool")),
        *(("float", "z = Neg (t)", given) for given in ([1.5], np.ones((2, 3), np.float32))),
        ("float[m]", "z = Neg (t)", ort.OrtValue.ortvalue_from_numpy(FLOATS)),
        *(("string[m]", "z = Identity (t)", given) for given in (STRINGS, STRINGS.astype(object), STRINGS[::2], ["a", 1], [])),
        ("string", "z = Identity (t)", np.array("abc")),
        *(("seq(float[m])", "z = Identity (t)", given) for given in ([FLOATS, FLOATS[:1]], [])),
        ("seq(string[m])", "z = Identity (t)", [STRINGS]),
        *(("optional(float[m])", "z = Identity (t)", given) for given in (None, FLOATS, [1, 2])),
        *(("optional(seq(float[m]))", "z = Identity (t)", given) for given in (None, [FLOATS])),
    ],
)
def test_it_takes_what_onnxruntime_takes(tmp_path: Path, declared: str, nodes: str, given: Any) -> None:
    plain, session = sessions(tmp_path, declared, "float[r, s]" if declared == "float" else declared, nodes)
    assert [argument.type for argument in session.get_inputs()] == [argument.type for argument in plain.get_inputs()]
    assert [argument.type for argument in session.get_outputs()] == [argument.type for argument in plain.get_outputs()]
    assert [argument.shape for argument in session.get_inputs()] == [argument.shape for argument in plain.get_inputs()]
    found = session.run(None, {"x": X, "t": given})
    assert_equal(found[1], plain.run(None, {"x": X, "t": given})[1])


def test_an_optional_input_may_be_absent(tmp_path: Path) -> None:
    plain, session = sessions(tmp_path, "optional(float[m])", "bool", "z = OptionalHasElement (t)")
    assert_equal(session.run(["z"], {"x": X}), plain.run(["z"], {"x": X}))


def test_an_output_that_is_an_input_is_not_the_callers_own(tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    text = """<ir_version: 9, opset_import: ["" : 18]>
      g (seq(float[m]) t, float[n] x) => (seq(float[m]) t, float[n] y) { y = Neg (x) }"""
    onnx.save(onnx.parser.parse_model(text), source)
    found = EngineSession(source).run(None, {"t": (given := [FLOATS]), "x": X})
    assert_equal(found[0], given)
    assert found[0] is not given and not np.shares_memory(found[0][0], FLOATS)


def test_an_output_that_is_a_weight_is_the_callers_own(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]>
      g (float[n] x) => (float[n] y, float[2] w) <float[2] w = {1.0, 2.0}> { y = Mul (x, w) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    session = EngineSession(tmp_path / "model.onnx")
    found = session.run(None, {"x": np.ones(2, np.float32)})
    before = [array.copy() for array in found]
    found[1][:] = 9
    assert_equal(session.run(None, {"x": np.ones(2, np.float32)}), before)


def test_an_output_that_is_asked_for_twice_is_two_arrays(tmp_path: Path) -> None:
    _, session = sessions(tmp_path, "float[n]", "float[n]", "z = Neg (t)")
    first, second, third = session.run(["z", "z", "z"], {"x": X, "t": FLOATS})
    first[:], second[:] = 5, 6
    assert [list(array) for array in (first, second, third)] == [[5, 5], [6, 6], [-1, -1]]


def test_an_unknown_output_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    _, session = sessions(tmp_path, "float[m]", "float[m]", "z = Identity (t)")
    with pytest.raises(UsageError, match="the model has no output nothing") as raised:
        session.run(["z", "nothing"], {"x": X, "t": FLOATS})
    assert raised.value.hint is not None and "z" in raised.value.hint


def test_sequences_flow_between_parts(tmp_path: Path) -> None:
    """The engine reads the length of a sequence, and a node after the engine reads its elements."""
    source, target = tmp_path / "model.onnx", tmp_path / "parted.onnx"
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[n] x) => (float[n] y) <int64 zero = {0}> {
      s = SequenceConstruct (x, x)  length = SequenceLength (s)  f = Cast <to = 1> (length)
      a = Sin (f)  b = Abs (a)  c = Floor (b)  i = Cast <to = 7> (c)  e = SequenceAt (s, i)  y = Add (e, b) }"""
    onnx.save(onnx.parser.parse_model(text), source)
    assert len(partition(source, target, PartitionOptions("onnxruntime", LIMITS)).engines) == 1
    assert_equal(EngineSession(target).run(None, {"x": X}), ort.InferenceSession(source).run(None, {"x": X}))


@pytest.mark.parametrize(
    ("declared", "given", "said"),
    [
        ("float[m]", np.ones(2), "input t is float64, the model takes float32"),
        ("float[m]", ["x"], "input t does not become an array of float32: could not convert"),
        ("float[m]", [[1], [2, 3]], "input t does not become an array of float32"),
        ("uint8[m]", [300], "input t does not become an array of uint8"),
        ("float[m]", [[1.0]], r"input t has the shape \[1, 1\], the model takes \['m'\]"),
        ("float[m]", None, "input t is not given"),
        ("string[m]", FLOATS, "input t is float32, the model takes strings"),
        ("string[m]", np.array([b"a"]), "input t is bytes8, the model takes strings"),
        ("seq(float[m])", FLOATS, "input t is no list of arrays"),
        ("seq(float[m])", [np.ones(2)], "input t is float64, the model takes float32"),
    ],
)
def test_it_says_what_is_wrong(tmp_path: Path, declared: str, given: Any, said: str) -> None:
    _, session = sessions(tmp_path, declared, declared, "z = Identity (t)")
    with pytest.raises(UsageError, match=said):
        session.run(None, {"x": X, "t": given})


def test_none_for_an_input_with_a_default_is_the_default(tmp_path: Path) -> None:
    source, target = tmp_path / "model.onnx", tmp_path / "parted.onnx"
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[n] x, float[2] w = {3.0, 4.0}) => (float[n] y) {
      a = Sin (x)  b = Abs (a)  y = Add (b, w) }"""
    onnx.save(onnx.parser.parse_model(text), source)
    partition(source, target, PartitionOptions("onnxruntime", LIMITS))
    plain, session = ort.InferenceSession(source), EngineSession(target)
    assert_equal(session.run(None, {"x": X, "w": None})[0], plain.run(None, {"x": X, "w": None})[0])


def test_the_weights_are_those_of_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the program goes to another folder, and the file is deleted."""
    source, target = tmp_path / "model.onnx", tmp_path / "parted.onnx"
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]> g (float[n, 64] x) => (float[n, 64] y) {
      a = MatMul (x, w)  b = Sin (a)  y = Abs (b) }""")
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, source, save_as_external_data=True, location="w.bin", size_threshold=0)
    partition(source, target, PartitionOptions("onnxruntime", RegionLimits(min_nodes=1)))
    monkeypatch.chdir(tmp_path)
    session, x = EngineSession(Path(target.name)), np.ones((2, 64), np.float32)
    expected = ort.InferenceSession(source).run(None, {"x": x})[0]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for data in tmp_path.glob("*w.bin*"):
        data.unlink()
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-5)
    assert session.fallbacks == 0
