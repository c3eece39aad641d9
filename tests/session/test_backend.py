"""Sessions with a backend: engines run its regions, and the program continues whatever fails."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from onnx_subgraph import (
    InferenceSession,
    OnnxSubgraphWarning,
    PartitionOptions,
    SessionError,
    SessionSettings,
    StaticSession,
    partition,
)
from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.engine.session import EngineSession
from onnx_subgraph.session import cache, commands, general, hook, inference, paying
from onnx_subgraph.session.engines import COMPILED, engines_of

ROOT = Path(__file__).parents[2]

# More nodes than an engine needs at least.
CHAIN = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 8] x) => (float[batch, 8] y) { a = Abs (x) b = Sqrt (a) c = Exp (b) d = Neg (c) y = Sigmoid (d) }
"""


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    from tests.session.conftest import save

    return save(CHAIN, tmp_path / "chain.onnx")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use engines regardless of speed: none is faster on models this small."""
    monkeypatch.setattr(paying, "timed", lambda *_: 0.5)


def test_an_unknown_backend_is_reported_before_anything_is_fused(
    chain: Path, settings: SessionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(general, "prepare", lambda *_, **__: pytest.fail("it was fused first"))
    with pytest.raises(SessionError, match="there is no backend nobody"):
        InferenceSession(chain, settings=replace(settings, backend="nobody", strict=True))


@pytest.fixture
def nested(settings: SessionSettings) -> SessionSettings:
    return replace(settings, backend="onnxruntime")


def test_engines_run_the_regions(chain: Path, nested: SessionSettings, x: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    session = InferenceSession(chain, settings=nested)
    assert session.prepared.engines == 1
    ran: list[int] = []
    real = OnnxRuntime.run
    monkeypatch.setattr(OnnxRuntime, "run", lambda *arguments: ran.append(1) or real(*arguments))
    plain = onnxruntime.InferenceSession(chain)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], plain.run(None, {"x": x})[0], rtol=1e-6)
    assert session.wait(60)
    ran.clear()
    np.testing.assert_allclose(session.run(None, {"x": x})[0], plain.run(None, {"x": x})[0], rtol=1e-6)
    assert ran
    binding = session.io_binding()  # other methods than `run` are onnxruntime's, which inlines the engine
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], plain.run(None, {"x": x})[0], rtol=1e-6)


@pytest.mark.parametrize("seconds", [cache.IN_USE_SECONDS, 0.0], ids=["in use", "long ago"])
def test_a_small_cache_keeps_both_models_of_a_session(
    seconds: float, chain: Path, nested: SessionSettings, tmp_path: Path, x: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The general one and the one with engines, also if one of them was ready long before the other."""
    monkeypatch.setattr(cache, "IN_USE_SECONDS", seconds)
    small = replace(nested, cache=tmp_path / "cache", cache_bytes=10)
    assert not InferenceSession(chain, settings=small).prepared.from_cache
    monkeypatch.setattr(commands, "run", lambda *_: pytest.fail("it was prepared again"))
    session = InferenceSession(chain, settings=small)
    assert session.prepared.from_cache and session.prepared.engines == 1
    assert session.warm({"x": x}, 60)


def test_engines_in_the_file_run(
    chain: Path, settings: SessionSettings, x: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = tmp_path / "written.onnx"
    partition(chain, written, PartitionOptions("onnxruntime"))
    ran: list[int] = []
    real = OnnxRuntime.run
    monkeypatch.setattr(OnnxRuntime, "run", lambda *arguments: ran.append(1) or real(*arguments))
    plain = onnxruntime.InferenceSession(chain).run(None, {"x": x})[0]
    session = InferenceSession(written, settings=settings)
    assert session.warm({"x": x}, 60)
    ran.clear()
    np.testing.assert_allclose(session.run(None, {"x": x})[0], plain, rtol=1e-6)
    assert ran == [1]
    InferenceSession(written, settings=replace(settings, enabled=False)).run(None, {"x": x})
    assert ran == [1], "settings that leave the model alone leave its engines to onnxruntime"


def test_onnxruntime_runs_engines_of_a_missing_backend(
    chain: Path, settings: SessionSettings, x: np.ndarray, tmp_path: Path
) -> None:
    written = tmp_path / "written.onnx"
    partition(chain, written, PartitionOptions("onnxruntime"))
    model = onnx.load(written)
    for node in model.graph.node:
        (backend,) = (attribute for attribute in node.attribute if attribute.name == "backend")
        backend.s = b"nobody"
    onnx.save(model, written)
    with pytest.warns(OnnxSubgraphWarning, match="the nodes of its engines run in onnxruntime: there is no backend nobody"):
        session = InferenceSession(written, settings=replace(settings, strict=False))
    plain = onnxruntime.InferenceSession(chain).run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], plain, rtol=1e-6)
    with pytest.raises(SessionError, match="there is no backend nobody"):
        InferenceSession(written, settings=settings)


def test_the_settings_reach_the_engines(chain: Path, nested: SessionSettings) -> None:
    """A program never waits for compilation. Deadline, checked fraction and isolation are passed on."""
    settings = replace(nested, deadline=7.0, check=0.5)
    prepared = InferenceSession(chain, settings=settings).prepared
    engines = engines_of(prepared, settings)
    assert engines is not None and prepared.path is not None
    (engine,) = engines.engines
    given = engine.settings
    assert (given.patience, given.deadline, given.check, given.isolated) == (0.0, 7.0, 0.5, False)
    assert given.folder == prepared.path.parent / COMPILED


def test_wrong_feeds_are_refused_with_onnxruntimes_message(chain: Path, nested: SessionSettings) -> None:
    session, plain = InferenceSession(chain, settings=nested), onnxruntime.InferenceSession(chain)
    for feeds in ({}, {"x": np.zeros((2, 7), np.float32)}, {"x": np.zeros((2, 8), np.int64)}):
        with pytest.raises(Exception) as theirs:
            plain.run(None, feeds)
        with pytest.raises(type(theirs.value)) as ours:
            session.run(None, feeds)
        assert type(ours.value) is type(theirs.value)


def test_a_missing_backend_leaves_the_model_unchanged(chain: Path, settings: SessionSettings, x: np.ndarray) -> None:
    wrong = replace(settings, backend="no-such-backend")
    with pytest.warns(OnnxSubgraphWarning, match="no-such-backend"):
        session = InferenceSession(chain, settings=replace(wrong, strict=False))
    assert session.prepared.path is None and session.run(None, {"x": x})[0].shape == (3, 8)
    with pytest.raises(SessionError, match="no-such-backend"):
        InferenceSession(chain, settings=wrong)


def test_a_backend_that_is_missing_when_the_model_is_loaded(
    chain: Path, nested: SessionSettings, x: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise SessionError("the backend is gone")

    monkeypatch.setattr(inference, "engines_of", fail)
    with pytest.warns(OnnxSubgraphWarning, match="the backend is gone"):
        session = InferenceSession(chain, settings=replace(nested, strict=False))
    assert session.run(None, {"x": x})[0].shape == (3, 8)


def test_schedules_have_engines_too(chain: Path, nested: SessionSettings, x: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are compiled before the schedule serves."""
    warmed: list[EngineSession] = []
    real = EngineSession.warm
    monkeypatch.setattr(EngineSession, "warm", lambda own, feeds, **how: warmed.append(own) or real(own, feeds, **how))
    session = StaticSession(chain, settings=nested, reuse_buffers=True)
    assert session.warm({"x": x}, 120), session.schedules()
    assert len(warmed) == 1
    np.testing.assert_allclose(
        session.run(None, {"x": x})[0], onnxruntime.InferenceSession(chain).run(None, {"x": x})[0], rtol=1e-6
    )
    assert session.schedules()[0].hits == 1


def test_nested_sessions_of_engines_are_not_prepared_again(
    chain: Path, nested: SessionSettings, x: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the hook, an engine's own session must not give its region to a backend again, endlessly."""
    prepared: list[object] = []
    real = general.prepare
    monkeypatch.setattr(general, "prepare", lambda source, *a, **k: prepared.append(source) or real(source, *a, **k))
    hook.install()
    try:
        session = onnxruntime.InferenceSession(chain, settings=nested)
        session.run(None, {"x": x})
    finally:
        hook.uninstall()
    assert isinstance(session, InferenceSession) and prepared == [
        chain,
        chain,
    ]  # the session of the dynamic model, and those of the engines
    assert onnxruntime.InferenceSession is not InferenceSession


COUNTING = """
import os
from onnx_subgraph.backends.reference import Reference

class Counting(Reference):
    name = "counting"
    version = "1"
    specializes = True

    def compile(self, subgraph, signature):
        with open(os.environ["COUNT"], "a") as file:
            file.write("compiled\\n")
        return super().compile(subgraph, signature)

    def save(self, compiled):
        return compiled.proto_.SerializeToString()

    def restore(self, content, subgraph, signature):
        from onnx.reference import ReferenceEvaluator
        return ReferenceEvaluator(content)
"""


def test_the_second_start_compiles_nothing(chain: Path, tmp_path: Path) -> None:
    """The compiled regions are stored beside the model in the cache."""
    (tmp_path / "counting_backend.py").write_text(COUNTING)
    information = tmp_path / "counting-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[onnx_subgraph.backends]\ncounting = counting_backend:Counting\n")
    program = """
import sys
import numpy as np
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
assert session.warm({"x": np.ones((3, 8), np.float32)}) or "general" in session.schedules()[0].reason, session.schedules()
"""
    counts = []
    for start in range(2):
        count = tmp_path / f"count{start}"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ONNX_SUBGRAPH_")}
        environment |= {"ONNX_SUBGRAPH_BACKEND": "counting", "ONNX_SUBGRAPH_CACHE": str(tmp_path / "cache"), "COUNT": str(count)}
        environment |= {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "ONNX_SUBGRAPH_STRICT": "1"}
        (tmp_path / "program.py").write_text(program)
        command = [sys.executable, "-m", "onnx_subgraph", "run", str(tmp_path / "program.py"), str(chain)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        assert done.returncode == 0, done.stderr
        counts.append(count.read_text().count("compiled") if count.exists() else 0)
    assert counts[0] > 0 and counts[1] == 0
