"""A backend in a process of its own may end that process, or hang in it: the session goes on, and says which region and why."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnx_subgraph.backends.onnxruntime import OnnxRuntime
from onnx_subgraph.engine import isolated
from onnx_subgraph.engine.engine import Engine, EngineSettings
from onnx_subgraph.engine.isolated import Isolated
from onnx_subgraph.engine.session import EngineSession
from onnx_subgraph.errors import EngineError, OnnxSubgraphWarning, UsageError
from onnx_subgraph.partitioning.partition import PartitionOptions, partition
from onnx_subgraph.partitioning.worth import RegionLimits
from tests.engine.backends import fails, feed, region
from tests.partitioning.models import SAMPLES

BACKEND = """
import os, signal, sys, time
from onnx_subgraph.backends.reference import Reference

class Mortal(Reference):
    \"\"\"It ends its process when it meets a batch of thirteen, hangs at fourteen, raises at fifteen, and always prints.\"\"\"

    specializes = True

    def compile(self, subgraph, signature):
        print("compiling", file=sys.stdout)
        if signature[0][1][0] == 12:
            sys.exit(7)
        return super().compile(subgraph, signature)

    def run(self, compiled, inputs):
        match len(inputs[0]):
            case 13:
                os.kill(os.getpid(), signal.SIGSEGV)
            case 14:
                time.sleep(60)
            case 15:
                raise ValueError("fifteen is too many")
        return super().run(compiled, inputs)

class Stillborn(Reference):
    def __init__(self):
        os._exit(3)
"""


@pytest.fixture(autouse=True)
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that registers two backends, for this process and those that it starts."""
    (tmp_path / "mortal_backend.py").write_text(BACKEND)
    information = tmp_path / "mortal-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: mortal\nVersion: 1\n")
    points = "[onnx_subgraph.backends]\nmortal = mortal_backend:Mortal\nstillborn = mortal_backend:Stillborn\n"
    (information / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))


def engine(settings: EngineSettings | None = None, deadline: float | None = None) -> Engine:
    return Engine(region(), Isolated("mortal", deadline), OnnxRuntime(), settings or EngineSettings())


def right(outputs: Any, batch: int) -> bool:
    y = np.maximum(feed(batch)[0] * np.array([1, 2, 3, 4], np.float32), 0)
    return np.array_equal(outputs[0], y) and np.allclose(outputs[1], y.sum(-1))


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (12, "did not compile it: RuntimeError: its process ended with exit code 7"),
        (13, "did not run it: RuntimeError: its process ended by SIGSEGV"),
        (15, "did not run it: RuntimeError: ValueError: fifteen is too many"),
    ],
    ids=["exits in compile", "dies in run", "raises"],
)
def test_a_backend_that_dies_costs_one_signature_and_not_the_process(batch: int, why: str) -> None:
    made = engine()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert right(made.run(feed(2)), 2)
    with pytest.warns(OnnxSubgraphWarning, match=rf"region /layer.3/Engine, with x float32\[{batch}, 4\]: backend mortal {why}"):
        assert right(made.run(feed(batch)), batch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert right(made.run(feed(batch)), batch)
        assert right(made.run(feed(2)), 2) and right(made.run(feed(3)), 3)  # what was compiled before, and what is new
    assert made.fallbacks == 2
    with pytest.raises(EngineError, match="RuntimeError"):
        engine(EngineSettings(strict=True)).run(feed(batch))


def test_a_run_that_hangs_is_ended_with_its_process() -> None:
    backend = Isolated("mortal", deadline=0.5)
    compiled = backend.compile(region(), (("float32", (14, 4)),))
    with pytest.raises(RuntimeError, match=r"it took more than 0.5 s and was ended"):
        backend.run(compiled, feed(14))
    assert right(backend.run(compiled, feed(2)), 2)  # in the next process


def test_an_interrupted_run_leaves_no_answer_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Isolated("mortal")
    compiled = backend.compile(region(), (("float32", (2, 4)),))
    with monkeypatch.context() as interrupted, pytest.raises(KeyboardInterrupt):
        interrupted.setattr(isolated, "receive", fails(KeyboardInterrupt()))
        backend.run(compiled, feed(3))
    assert right(backend.run(compiled, feed(2)), 2)


def test_threads_share_the_process() -> None:
    made = engine()
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda n: right(made.run(feed(1 + n % 4)), 1 + n % 4), range(80)))
    assert made.fallbacks == 0 and made.usage.size == 4


def test_a_session_of_a_real_model(tmp_path: Path) -> None:
    source = SAMPLES / "gpt2_dynamo.onnx"
    options = PartitionOptions("mortal", RegionLimits(deny=("Softmax",)), verify=False)
    assert len(partition(source, tmp_path / "out.onnx", options).engines) > 1
    session = EngineSession(tmp_path / "out.onnx", settings=EngineSettings(isolated=True, strict=True))
    plain = EngineSession(tmp_path / "out.onnx")
    feeds = {a.name: np.ones((2, 7), np.int64) for a in session.get_inputs()}
    for mine, theirs in zip(session.run(None, feeds), plain.run(None, feeds), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nobody", "there is no backend nobody"),
        ("stillborn", "does not start in a process of its own: its process ended with exit code 3"),
    ],
)
def test_one_that_does_not_start_is_a_usage_error(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Isolated(name)
