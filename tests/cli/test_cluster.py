"""Models on a dask cluster: the results equal those of this process, even if workers die."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onnx_subgraph.cli.batch import Task, run
from onnx_subgraph.cli.job import Failure
from onnx_subgraph.language.library import Library, load_patterns
from onnx_subgraph.options import Options
from onnx_subgraph.result import FuseResult
from tests.cli.conftest import GELU, Run, save

Tell = Callable[[str], None]

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX")


def kill_once(model: Path, library: Library, options: Options, tell: Tell) -> Options:
    """Kill the first worker that gets this model."""
    mark = model.with_suffix(".mark")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return options


def kill(model: Path, library: Library, options: Options, tell: Tell) -> Options:
    """Kill every worker that gets this model."""
    with model.with_suffix(".deaths").open("a", encoding="utf-8") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)
    return options


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two worker processes, which restart when they end."""
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
    ) as made:
        yield made


@POSIX
def test_the_model_of_a_lost_worker_runs_again_and_a_model_that_kills_workers_is_reported(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files equal those of this process bit for bit, and so do the results."""
    library = load_patterns()
    for number in range(6):
        save(GELU.replace("8]", f"{number + 4}]"), tmp_path / f"{number}.onnx")
    monkeypatch.chdir(tmp_path)

    def tasks(folder: str) -> list[Task]:
        Path(folder).mkdir()
        return [Task(Path(f"{number}.onnx"), Path(folder, f"{number}.onnx"), (), Options()) for number in range(6)]

    here, there = tasks("here"), tasks("there")
    there[1] = replace(there[1], tune=kill_once)
    there[3] = replace(there[3], tune=kill)
    expected = list(run(here, library, 1, lambda stage: None))
    settled: dict[int, object] = {}
    found = list(run(there, library, 1, lambda stage: None, settled.__setitem__, cluster.scheduler_address))
    assert Path("1.mark").exists() and Path("3.deaths").read_text(encoding="utf-8") == "xxx"
    lost = found[3]
    assert isinstance(lost, Failure) and lost.message.startswith("3 dask workers, one after another, ended")
    assert [settled[number] for number in range(6)] == found
    for number, (outcome, wanted) in enumerate(zip(found, expected, strict=True)):
        if number == 3:
            assert not there[number].output.exists()
            continue
        assert isinstance(outcome, FuseResult) and isinstance(wanted, FuseResult)
        assert replace(outcome, output=wanted.output, seconds={}) == replace(wanted, seconds={})
        assert outcome.output == there[number].output
        assert there[number].output.read_bytes() == here[number].output.read_bytes()


def test_a_model_no_worker_can_read_is_reported(cluster: Any, run: Run, gelu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This simulates a worker without the shared file system: the model exists, but the worker can't read it."""
    address = cluster.scheduler_address.replace("tcp://", "dask://")
    monkeypatch.setattr(Path, "exists", lambda path, **_: True)
    result = run("explain", gelu.with_name("elsewhere.onnx"), "--executor", address)
    assert result.code == 2
    assert "elsewhere.onnx: the dask worker on " in result.err and "can't read it" in result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--executor", "ray://here:1"], "'ray://here:1' is no dask://HOST:PORT"),
        (["--executor", "dask://here"], "'dask://here' is no dask://HOST:PORT"),
        (["--executor", "dask://here:1", "-j", "2"], "-j counts processes on this machine"),
    ],
)
def test_a_mistake_is_one_message(run: Run, gelu: Path, arguments: list[str], words: str) -> None:
    result = run("fuse", gelu, *arguments)
    assert result.code == 2 and words in result.err


def test_without_the_extra_one_message_names_it(run: Run, gelu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = run("fuse", gelu, "--executor", "dask://localhost:8786")
    assert (result.code, result.out) == (2, "")
    assert "hint: pip install 'onnx-subgraph[dask]'" in result.err
    assert run("fuse", gelu).code == 0


def test_a_scheduler_that_does_not_answer_is_one_message(run: Run, gelu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    monkeypatch.setattr("onnx_subgraph.cli.cluster.ANSWER_SECONDS", 0.2)
    result = run("fuse", gelu, "--executor", "dask://127.0.0.1:9")
    assert result.code == 2
    assert "no dask scheduler answers at tcp://127.0.0.1:9" in result.err
