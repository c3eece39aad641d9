"""Feeds on which onnxruntime would end the process are refused; each of these models ends it without this."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnx_subgraph import Options, bench, fuse, load_patterns
from onnx_subgraph.errors import UsageError
from onnx_subgraph.files.models import load
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.timing import BenchOptions
from onnx_subgraph.verification import fatal
from onnx_subgraph.verification.fatal import guarded
from onnx_subgraph.verification.memory import open_file
from onnx_subgraph.verification.sessions import Failure, Session, run
from tests.verification.models import write

CPU = "CPUExecutionProvider"
BODY = "body = b (float[4] u, float[4] v) => (float[4] w, float[4] z) { w = Add (u, v)  z = Sigmoid (w) }"
CUT = "c = Slice (x, nine, end, AXIS)"
"""Leaves out the first nine rows or columns."""
HEAD = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (float[SHAPE] x) => (float[?] t)
    <int64[1] nine = {9}, int64[1] end = {10000}, int64[1] zero = {0}, int64[1] one = {1}, float[4] s = {0, 0, 0, 0}>"""


def scan(shape: str, axis: str, attributes: str) -> str:
    head, cut = HEAD.replace("SHAPE", shape), CUT.replace("AXIS", axis)
    return f"{head} {{ {cut}  f, y = Scan <{attributes}num_scan_inputs = 1, {BODY}> (s, c)  e = Sigmoid (y)  t = Mul (y, e) }}"


def recurrent(operator: str, shape: str, axis: str, gates: int) -> str:
    head, cut = HEAD.replace("SHAPE", shape), CUT.replace("AXIS", axis)
    constants = f"size = Constant <value = int64[3] {{1, {gates * 4}, 4}}> ()  half = Constant <value = float {{0.5}}> ()"
    return f"""{head} {{ {cut}  {constants}  w = Expand (half, size)
      y = {operator} <hidden_size = 4> (c, w, w)  e = Sigmoid (y)  t = Mul (y, e) }}"""


MODELS = {
    "Scan": scan("n, 4", "zero", ""),
    "Scan along the second axis": scan("4, n", "one", "scan_input_axes = [1], "),
    "Scan along the last axis": scan("4, n", "one", "scan_input_axes = [-1], "),
    "GRU without a sequence": recurrent("GRU", "n, 2, 4", "zero", 3),
    "GRU without a batch": recurrent("GRU", "2, n, 4", "one", 3),
    "LSTM without a batch": recurrent("LSTM", "2, n, 4", "one", 4),
    "DynamicQuantizeLSTM without a batch": f"""{HEAD.replace("SHAPE", "2, n, 4")} {{ {CUT.replace("AXIS", "one")}
      size = Constant <value = int64[3] {{1, 4, 16}}> ()  two = Constant <value = uint8[1] {{2}}> ()  w = Expand (two, size)
      a = Constant <value = float[1] {{0.5}}> ()  z = Constant <value = uint8[1] {{0}}> ()
      y = com.microsoft.DynamicQuantizeLSTM <hidden_size = 4> (c, w, w, , , , , , a, z, a, z)
      e = Sigmoid (y)  t = Mul (y, e) }}""",
    "InstanceNormalization without an image": f"""{HEAD.replace("SHAPE", "1, 4, n")} {{
      two = Constant <value = int64[1] {{2}}> ()  c = Slice (x, nine, end, two)  y = InstanceNormalization (c, s, s)
      e = Sigmoid (y)  t = Mul (y, e) }}""",
}


def opened(path: Path) -> Session:
    session = open_file(path, CPU, optimised=False)
    assert isinstance(session, Session)
    model = load(path)
    infer_shapes(model)
    return guarded(session, model, path, CPU)


def of_length(path: Path, length: int) -> np.ndarray:
    shape = load(path).graph.inputs[0].shape
    assert shape is not None
    return np.ones([d if isinstance(d, int) else length for d in shape], np.float32)


@pytest.mark.parametrize("text", MODELS.values(), ids=MODELS)
def test_a_run_that_would_end_the_process_is_refused(text: str, tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", text)
    session = opened(path)
    refused = run(session, {"x": of_length(path, 9)})
    assert isinstance(refused, Failure) and "would get an empty operand" in refused.message
    for length in (10, 12):
        assert not isinstance(run(session, {"x": of_length(path, length)}), Failure)


@pytest.mark.parametrize("name", ["Scan", "GRU without a sequence", "LSTM without a batch"])
def test_sizes_are_found_that_leave_something(name: str, tmp_path: Path) -> None:
    """The sizes that are tried first leave nothing."""
    result = fuse(write(tmp_path / "m.onnx", MODELS[name]), tmp_path / "fused.onnx", load_patterns(), Options())
    assert result.verdict.verdict == "equivalent" and len(result.rewrites) == 1, result.verdict.reason


def test_bench_finds_sizes_too_and_refuses_feeds(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", MODELS["GRU without a sequence"])
    assert bench([path], BenchOptions(budget=0.01, memory=False)).sizes["n"] > 9
    np.savez(tmp_path / "feeds.npz", x=of_length(path, 9))
    with pytest.raises(UsageError, match="can't be run on the feeds given: GRU at y would get an empty operand"):
        bench([path], BenchOptions(inputs=tmp_path / "feeds.npz"))


def test_of_nodes_with_the_same_sizes_one_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a run of a network with many layers would compute its beginning for each of them."""
    text = recurrent("GRU", "n, 2, 4", "zero", 3)
    layers = "  ".join(f"y{i} = GRU <hidden_size = 4> (z{i}, w, w)  z{i + 1} = Squeeze (y{i}, one)" for i in range(5))
    path = write(tmp_path / "m.onnx", text.replace("e = Sigmoid (y)", f"z0 = Squeeze (y, one)  {layers}  e = Sigmoid (y)"))
    session, opened_ones = opened(path), []
    monkeypatch.setattr(fatal, "open_model", lambda *_: opened_ones.append(1) or Failure(""))
    run(session, {"x": of_length(path, 12)})
    assert len(opened_ones) == 1


def test_a_scan_of_what_a_scan_gives_is_refused_too(tmp_path: Path) -> None:
    text = scan("n, 4", "zero", "").replace(
        "e = Sig", f"d = Slice (y, one, end, zero)  a, b = Scan <num_scan_inputs = 1, {BODY}> (s, d)  e = Sig"
    )
    session = opened(write(tmp_path / "m.onnx", text))
    for length, at in ((9, "Scan at f"), (10, "Scan at a")):
        refused = run(session, {"x": np.ones((length, 4), np.float32)})
        assert isinstance(refused, Failure) and refused.message.startswith(at)
    assert not isinstance(run(session, {"x": np.ones((11, 4), np.float32)}), Failure)


def test_nothing_more_is_run_where_the_sizes_are_those_of_an_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.onnx", scan("n, 4", "zero", "").replace(CUT.replace("AXIS", "zero"), "c = Neg (x)"))
    session = opened(path)
    monkeypatch.setattr(fatal, "open_model", None)
    assert not isinstance(run(session, {"x": np.ones((2, 4), np.float32)}), Failure)


def test_empty_feeds_of_the_user_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", scan("n, 4", "zero", "").replace(CUT.replace("AXIS", "zero"), "c = Neg (x)"))
    np.savez(tmp_path / "feeds.npz", x=np.ones((0, 4), np.float32))
    result = fuse(path, tmp_path / "fused.onnx", load_patterns(), Options(inputs=tmp_path / "feeds.npz"))
    assert result.output is None and "Scan at f would get an empty operand" in result.verdict.reason
