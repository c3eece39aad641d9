"""Schedules of a model share weights on disk and in memory, only if the packed model computes the same."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from onnx_subgraph import SessionSettings, StaticSession
from onnx_subgraph.files.models import load, save
from onnx_subgraph.model.specialize import specialize
from onnx_subgraph.session import commands, packing, prepare
from onnx_subgraph.session.cache import MODEL, PACKED, WEIGHTS, Cache
from onnx_subgraph.session.options import is_optimised

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
    """A session with a schedule for each length, whose answers equal plain onnxruntime's."""
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
    assert mine.name in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    assert all(story.nbytes < 4 * SIZE for story in session.schedules())  # the plain model, without shared weights


def packed(text: str, seq: int, folder: Path) -> Path:
    """The folder of the model for one length, packed with others into one store."""
    folder.mkdir(parents=True, exist_ok=True)
    model = load(saved(text, folder / f"{seq}.onnx"))
    specialize(model, {"x": (seq, 160)})
    entry = folder / str(seq)
    entry.mkdir(exist_ok=True)
    save(model, entry / MODEL, None)
    packing.pack(entry / MODEL, entry / PACKED, folder / "store")
    return entry


def names(entry: Path) -> set[str]:
    return {path.name for path in entry.glob(f"*{WEIGHTS}")}


def test_weights_that_a_second_signature_adds_are_stored_separately(tmp_path: Path) -> None:
    """The table's rows are a constant for each length, so half of the weights belong to one model only."""
    first, second = (names(packed(SLICED, seq, tmp_path)) for seq in (120, 140))
    assert len(first & second) == 1
    assert len(first ^ second) == 1


def test_a_model_that_computes_differently_when_packed_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = saved(LAYERS, tmp_path / "layers.onnx"), packing._session

    class Off:
        def __init__(self, session: Any) -> None:
            self.session = session

        def run(self, names: None, given: dict[str, np.ndarray]) -> list[np.ndarray]:
            return [np.nextafter(output, np.inf) for output in self.session.run(names, given)]

    monkeypatch.setattr(packing, "_session", lambda model, *written: real(model, *written) if written else Off(real(model)))
    with pytest.raises(packing.UnpackedError, match="something else"):
        packing.pack(path, tmp_path / "packed.onnx", tmp_path / "store")


def test_a_model_that_is_not_packed_is_unchanged_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command fails here, because the module does not exist."""
    saved(LAYERS, tmp_path / MODEL)
    (tmp_path / "staging").mkdir()
    monkeypatch.setitem(commands.OWN, "pack", "onnx_subgraph.session.nothing")
    assert "nothing" in prepare._pack(tmp_path, tmp_path / "staging", tmp_path / "store", commands.Patience(60, None))
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [MODEL]


def test_a_small_model_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(onnx.parser.parse_model(LAYERS), tmp_path / MODEL)
    monkeypatch.setattr(commands, "run", lambda *_: pytest.fail("it was packed"))
    assert "too small" in prepare._pack(tmp_path, tmp_path / "staging", tmp_path / "store", commands.Patience(60, None))


@pytest.mark.parametrize(
    ("change", "packs"),
    [
        (lambda options: None, True),
        (lambda options: setattr(options, "intra_op_num_threads", 1), True),
        (lambda options: setattr(options, "graph_optimization_level", onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL), False),
        (lambda options: options.add_session_config_entry("session.disable_prepacking", "1"), False),
        (lambda options: options.add_session_config_entry("session.model_external_initializers_file_folder_path", "."), False),
    ],
    ids=["none", "threads", "level", "prepacking", "folder"],
)
def test_session_options_that_change_the_optimised_model_prevent_sharing(
    change: Callable[[onnxruntime.SessionOptions], None], packs: bool
) -> None:
    options = onnxruntime.SessionOptions()
    change(options)
    assert is_optimised(options, {}) is packs


@pytest.mark.parametrize(
    ("changed", "providers", "packs"),
    [
        ({}, ("CPUExecutionProvider",), True),
        ({"backend": "reference"}, ("CPUExecutionProvider",), False),
        ({"libraries": "mine.so"}, ("CPUExecutionProvider",), False),
        ({}, ("CUDAExecutionProvider", "CPUExecutionProvider"), False),
    ],
    ids=["plain", "backend", "library", "provider"],
)
def test_who_runs_a_model_otherwise_keeps_its_weights_its_own(
    settings: SessionSettings, changed: dict[str, Any], providers: tuple[str, ...], packs: bool
) -> None:
    assert prepare.specializing(replace(settings, **changed), providers, {"x": (3, 160)}, packs=True).packs is packs


@pytest.mark.parametrize("at", [0, -SIZE // 2], ids=["a weight", "what onnxruntime made of one"])
def test_damaged_weights_are_not_shared(tmp_path: Path, at: int) -> None:
    (weights,) = packed(LAYERS, 3, tmp_path).glob(f"*{WEIGHTS}")
    with weights.open("r+b") as file:
        file.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
        file.write(bytes(SIZE // 2))
    again = packed(LAYERS, 40, tmp_path)
    expected = onnxruntime.InferenceSession(tmp_path / "40.onnx").run(None, feeds(40))[0]
    found = onnxruntime.InferenceSession(again / PACKED).run(None, feeds(40))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    assert len(names(again)) == 2, "what is whole is shared, what is damaged is written again"


def test_a_file_that_programs_have_mapped_is_not_written_to(tmp_path: Path) -> None:
    """A program that reads a file while it is cut off and written again is ended by the system."""
    first = packed(LAYERS, 3, tmp_path)
    (weights,) = first.glob(f"*{WEIGHTS}")
    whole = weights.read_bytes()
    weights.write_bytes(bytes(len(whole)))
    weights.rename(first / "mapped")
    assert packing.pack(first / MODEL, first / "again.onnx", tmp_path / "store") == len(whole)
    assert weights.read_bytes() == whole and not any((first / "mapped").read_bytes())


def test_a_model_without_large_weights_is_not_packed(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Abs (x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / MODEL)
    with pytest.raises(packing.UnpackedError, match="no large weights"):
        packing.pack(tmp_path / MODEL, tmp_path / PACKED, tmp_path / "store")


def test_weights_without_an_entry_are_removed_from_the_cache(tmp_path: Path) -> None:
    cache = Cache(tmp_path, most_bytes=1)

    def fill(folder: Path, key: str) -> dict[str, Any]:
        store = cache.weights("source")
        store.mkdir(parents=True, exist_ok=True)
        for path in (store / f"{key}{WEIGHTS}", store / f"{key}.index"):
            path.write_text(key)
        (folder / f"{key}{WEIGHTS}").hardlink_to(store / f"{key}{WEIGHTS}")
        return {}

    for key in ("first", "second"):
        made = Cache(tmp_path, most_bytes=1).get(key, lambda folder, key=key: fill(folder, key))  # type: ignore[misc]
        os.utime(made.folder / "entry.json", (1, 1))
    assert {path.name for path in cache.weights("source").iterdir()} == {f"second{WEIGHTS}", "second.index"}


@pytest.mark.parametrize("step", ["_mapped", "_publish"])
def test_weights_stay_while_a_model_with_them_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Whenever another process trims the cache: the entry that they were made for is gone, and the next is not there yet."""
    for weights in packed(LAYERS, 3, tmp_path / "cache" / "weights").glob(f"*{WEIGHTS}"):
        weights.unlink()
    if step == "_publish":
        shutil.rmtree(tmp_path / "cache" / "weights" / "store")
    real, keys = getattr(packing, step), iter("abcdefgh")

    def trimmed_meanwhile(*arguments: Any) -> Any:
        done = real(*arguments)
        Cache(tmp_path / "cache", most_bytes=1).get(next(keys), lambda folder: {})
        return done

    monkeypatch.setattr(packing, step, trimmed_meanwhile)
    again = packed(LAYERS, 40, tmp_path / "cache" / "weights")
    expected = onnxruntime.InferenceSession(again.with_suffix(".onnx")).run(None, feeds(40))[0]
    found = onnxruntime.InferenceSession(again / PACKED).run(None, feeds(40))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
