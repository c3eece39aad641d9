"""The schedules of a model share its weights: on disk, in memory, and only where what was packed computes the same."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from onnx_subgraph import SessionSettings, StaticSession
from onnx_subgraph.session import commands, packing
from onnx_subgraph.session.cache import PACKED, WEIGHTS

LAYERS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[seq, 160] x) => (float[seq, 160] y)
{
  first = MatMul (x, v)
  gate = Relu (first)
  table = Gather (u, one)
  second = MatMul (gate, w)
  y = Add (second, table)
}
"""
SLICED = LAYERS.replace("(float[seq, 160] y)", "(float[seq, 160] y)\n<int64[1] zero = {0}>").replace(
    "table = Gather (u, one)", "shape = Shape <start: int = 0, end: int = 1> (x)\n  table = Slice (u, zero, shape, zero)"
)
SIZE = 160 * 160 * 4
"""Bytes of a weight: more than packing leaves inside a model."""


def saved(text: str, path: Path) -> Path:
    proto = onnx.parser.parse_model(text)
    draws = np.random.default_rng(0)
    for name in "uvw":
        weights = draws.standard_normal((160, 160)).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "one"))
    onnx.save(proto, path)
    return path


def feeds(seq: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seq).standard_normal((seq, 160)).astype(np.float32)}


def entries(cache: Path) -> list[Path]:
    return sorted(path.parent for path in (cache / "entries").glob(f"*/{PACKED}"))


def warmed(path: Path, settings: SessionSettings, *lengths: int) -> StaticSession:
    """A session with a schedule for each length, which answers as plain onnxruntime does."""
    plain, session = onnxruntime.InferenceSession(path), StaticSession(path, settings=settings)
    for seq in lengths:
        assert session.warm(feeds(seq))
        np.testing.assert_allclose(session.run(None, feeds(seq))[0], plain.run(None, feeds(seq))[0], rtol=1e-5, atol=1e-4)
    return session


@pytest.fixture
def settings(tmp_path: Path) -> SessionSettings:
    return SessionSettings(cache=tmp_path / "cache", strict=True)


def test_schedules_of_one_model_map_one_file_of_weights(tmp_path: Path, settings: SessionSettings) -> None:
    session = warmed(saved(LAYERS, tmp_path / "layers.onnx"), settings, 3, 40)
    first, second = entries(tmp_path / "cache")
    (mine,), (theirs,) = (list(entry.glob(f"*{WEIGHTS}")) for entry in (first, second))
    assert mine.samefile(theirs)
    assert mine.stat().st_size >= 2 * SIZE
    assert all((entry / PACKED).stat().st_size < SIZE for entry in (first, second))
    assert mine.name in Path("/proc/self/maps").read_text(encoding="utf-8")
    assert all(story.nbytes < 4 * SIZE for story in session.schedules())  # the ordinary model, not what it shares


def test_what_a_second_signature_needs_beside_is_added(tmp_path: Path, settings: SessionSettings) -> None:
    """The table's rows are a constant for each length, so that half of the weights are each model's own."""
    warmed(saved(SLICED, tmp_path / "slices.onnx"), settings, 120, 140)
    first, second = ({path.name for path in entry.glob(f"*{WEIGHTS}")} for entry in entries(tmp_path / "cache"))
    assert len(first & second) == 1
    assert len(first ^ second) == 1


def test_a_model_that_does_not_compute_the_same_again_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = saved(LAYERS, tmp_path / "layers.onnx"), packing._session

    class Off:
        def __init__(self, session: Any) -> None:
            self.session = session

        def run(self, names: None, given: dict[str, np.ndarray]) -> list[np.ndarray]:
            return [np.nextafter(output, np.inf) for output in self.session.run(names, given)]

    monkeypatch.setattr(packing, "_session", lambda model, *written: real(model, *written) if written else Off(real(model)))
    with pytest.raises(packing.UnpackedError, match="something else"):
        packing.pack(path, tmp_path / "packed.onnx", tmp_path / "store")


def test_what_is_not_packed_serves_as_it_is(tmp_path: Path, settings: SessionSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command fails here because there is no such module."""
    monkeypatch.setitem(commands.OWN, "pack", "onnx_subgraph.session.nothing")
    path = saved(LAYERS, tmp_path / "layers.onnx")
    session = StaticSession(path, settings=settings)
    assert session.warm(feeds(3))
    assert not entries(tmp_path / "cache")
    expected = onnxruntime.InferenceSession(path).run(None, feeds(3))[0]
    np.testing.assert_allclose(session.run(None, feeds(3))[0], expected, rtol=1e-5, atol=1e-4)
    notes = [json.loads(path.read_text())["note"] for path in (tmp_path / "cache").glob("entries/*/entry.json")]
    assert any("nothing" in note.get("unpacked", "") for note in notes)


def test_options_that_change_what_onnxruntime_runs_keep_it_from_packed_weights(tmp_path: Path, settings: SessionSettings) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = StaticSession(saved(LAYERS, tmp_path / "layers.onnx"), options, settings=settings)
    assert session.warm(feeds(3))
    assert not entries(tmp_path / "cache")


def test_damaged_weights_are_made_again(tmp_path: Path, settings: SessionSettings) -> None:
    path = saved(LAYERS, tmp_path / "layers.onnx")
    expected = onnxruntime.InferenceSession(path).run(None, feeds(3))[0]
    StaticSession(path, settings=settings).warm(feeds(3))
    (weights,) = entries(tmp_path / "cache")[0].glob(f"*{WEIGHTS}")
    with weights.open("r+b") as file:
        file.write(bytes(SIZE))
    session = StaticSession(path, settings=settings)
    assert session.warm(feeds(3))
    np.testing.assert_allclose(session.run(None, feeds(3))[0], expected, rtol=1e-5, atol=1e-4)


def test_weights_that_no_entry_has_any_more_leave_the_cache(tmp_path: Path) -> None:
    settings = SessionSettings(cache=tmp_path / "cache", strict=True, cache_bytes=1)
    session = StaticSession(saved(LAYERS, tmp_path / "layers.onnx"), settings=settings)
    for seq in (3, 40):
        assert session.warm(feeds(seq))
    names = itertools.chain(*(entry.glob(f"*{WEIGHTS}") for entry in entries(tmp_path / "cache")))
    kept = {path.name for path in names}
    assert {path.name for path in (tmp_path / "cache" / "weights").glob(f"*/*{WEIGHTS}")} == kept
