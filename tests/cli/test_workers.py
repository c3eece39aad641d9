"""Worker processes: results are in the order of the tasks, processes are reused, and a process that dies fails one task."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from onnx_subgraph.cli import workers
from onnx_subgraph.cli.batch import Task, run
from onnx_subgraph.cli.job import Failure
from onnx_subgraph.cli.workers import Lost, outcomes
from onnx_subgraph.language.library import Library, load_patterns
from onnx_subgraph.options import Options
from tests.cli.conftest import Run

Tell = Callable[[str], None]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX")


def process(task: float, tell: Tell) -> int:
    """The id of the process that runs it."""
    tell("sleep")
    time.sleep(task)
    return os.getpid()


def process_of_no_life(task: float, tell: Tell) -> int:
    workers.LIFE = 0.0  # in this process, which runs no other test
    return process(task, tell)


def dies_with_others(task: Path, tell: Tell) -> int:
    """Task `big` dies in a process that ran another task before, `broken` in every process. Each writes a mark first."""
    others = [path for path in task.parent.iterdir() if path.suffix == f".{os.getpid()}"]
    task.with_suffix(f".{os.getpid()}").touch()
    if task.name == "broken" or (task.name == "big" and others):
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def silent(done: int, stages: dict[int, str]) -> None: ...


def test_many_tasks_are_done_by_few_processes_in_order() -> None:
    said: list[tuple[int, dict[int, str]]] = []
    times = [0.2, *[0.0] * 20]
    found = list(outcomes(process, times, 2, lambda done, stages: said.append((done, dict(stages)))))
    assert len(found) == len(times)
    assert len(set(found)) == 2 and os.getpid() not in found
    assert found.count(found[0]) < found.count(found[1])  # the others did not wait for the slow one
    assert {0: "sleep"} in [stages for _, stages in said] and said[-1][0] == len(times)


def test_a_temporary_folder_with_a_long_path_is_no_hindrance(tmp_path: Path, gelus: list[Path], run_process: Run) -> None:
    """A socket's path has 107 bytes at most on Linux, so there is no fork server then."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    result = run_process("fuse", *gelus, "-j", 2, "--no-verify", "--output-dir", tmp_path / "out", TMPDIR=str(folder))
    assert (result.code, len(list((tmp_path / "out").iterdir()))) == (0, len(gelus)), result.err


def test_a_process_is_replaced_after_a_time() -> None:
    assert len(set(outcomes(process_of_no_life, [0.0] * 4, 2, silent))) == 4


def test_a_process_that_dies_fails_one_task(tmp_path: Path) -> None:
    tasks = [tmp_path / name for name in ("a", "b", "broken", "c", "d")]
    found = list(outcomes(dies_with_others, tasks, 1, silent))
    assert found[2] == Lost(-signal.SIGKILL)
    assert all(isinstance(outcome, int) for number, outcome in enumerate(found) if number != 2)
    assert len(list(tmp_path.glob("broken.*"))) == 2  # it is tried once more in a process of its own, then given up


def test_memory_that_others_left_in_a_process_kills_no_task(tmp_path: Path) -> None:
    """A large model after many others gets as much memory as it would have alone."""
    tasks = [tmp_path / name for name in ("a", "big", "b")]
    first, big, _ = outcomes(dies_with_others, tasks, 1, silent)
    assert isinstance(big, int) and big != first


def test_an_interrupted_run_leaves_no_process() -> None:
    with closing(outcomes(process, [0.0, 60.0, 60.0], 2, silent)) as results:
        first = next(results)
    assert isinstance(first, int)
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def kill(model: Path, library: Library, options: Options, tell: Tell) -> Options:
    os.kill(os.getpid(), signal.SIGKILL)
    return options


def test_a_model_that_kills_its_process_is_reported_and_the_others_succeed(tmp_path: Path, gelus: list[Path]) -> None:
    library = load_patterns()

    def tasks(folder: str) -> list[Task]:
        (tmp_path / folder).mkdir()
        return [Task(model, tmp_path / folder / model.name, (), Options()) for model in gelus]

    alone, several = tasks("alone"), tasks("several")
    several[1] = Task(gelus[1], tmp_path / "several" / gelus[1].name, (), Options(), tune=kill)
    list(run(alone, library, 1, lambda stage: None))
    found = list(run(several, library, 2, lambda stage: None))
    assert isinstance(found[1], Failure) and "was ended by SIGKILL" in found[1].message
    written = {task.output.name: task.output.read_bytes() for task in several if task.output.exists()}
    assert written == {task.output.name: task.output.read_bytes() for number, task in enumerate(alone) if number != 1}


@pytest.fixture
def gelus(tmp_path: Path) -> list[Path]:
    """Four GELU models of different widths."""
    import onnx
    import onnx.parser

    paths = [tmp_path / f"gelu{width}.onnx" for width in (4, 5, 6, 7)]
    for width, path in enumerate(paths, 4):
        text = f"""<ir_version: 10, opset_import: ["" : 20]> gelu (float[n, {width}] x) => (float[n, {width}] y)
        <float two = {{1.4142135}}, float one = {{1}}, float half = {{0.5}}>
        {{ a = Div(x, two)  b = Erf(a)  c = Add(b, one)  d = Mul(x, c)  y = Mul(d, half) }}"""
        onnx.save(onnx.parser.parse_model(text), path)
    return paths
