"""`--time-limit`: a model that takes too long is given up at any stage and leaves no files behind."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any, NoReturn

import pytest

from onnx_subgraph import deadline, pipeline, temporary
from onnx_subgraph.clock import Progress
from onnx_subgraph.deadline import TimeIsUp, abandoned, check, remaining, within
from onnx_subgraph.errors import TimeLimitError
from onnx_subgraph.files.atomic import written_whole
from tests.cli.conftest import Run, save

ENDLESS = """
<ir_version: 8, opset_import: ["" : 17]>
endless (float[2, 8] x) => (float[2, 8] y)
<float half = {0.5}, float one = {1.0}, float root = {1.4142135}, int64 most = {4611686018427387904}, bool true = {1}>
{
  scaled = Div (x, root)
  erf = Erf (scaled)
  sum = Add (erf, one)
  product = Mul (x, sum)
  gelu = Mul (product, half)
  y = Loop (most, true, gelu) <body = b (int64 i, bool go, float[2, 8] v) => (bool on, float[2, 8] w) {
    on = Identity (go) w = Neg (v)
  }>
}
"""
LARGE = """
<ir_version: 8, opset_import: ["" : 17]>
large (float[2, 8] x) => (float[2, 8] y)
<float half = {0.5}, float one = {1.0}, float root = {1.4142135}, float zero = {0.0}, float many = {2000000.0},
 int64[1] first = {0}, int64[1] second = {1}, int64[1] most = {2000000}, int64[3] shape = {1, 1, 2000000}>
{
  numbers = Range (zero, many, one)
  low = Unsqueeze (numbers, second)
  high = Add (low, half)
  corners = Concat <axis = 1> (low, low, high, high)
  boxes = Unsqueeze (corners, first)
  scores = ConstantOfShape <value = float[1] {0.5}> (shape)
  kept = NonMaxSuppression (boxes, scores, most, half)
  count = Shape <start = 0, end = 1> (kept)
  added = Cast <to = 1> (count)
  z = Add (x, added)
  scaled = Div (z, root)
  erf = Erf (scaled)
  sum = Add (erf, one)
  product = Mul (z, sum)
  y = Mul (product, half)
}
"""
"""One operator that takes an hour, and that onnxruntime does not interrupt: it compares two million boxes with each other."""


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that runs for ever, alone in its folder; temporary files are written beside it."""
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return save(ENDLESS, folder / "endless.onnx")


def _left(model: Path) -> list[Path]:
    """The files that a command left beside the model or among its temporary files."""
    # files of onnxruntime, and of multiprocessing, which are removed when this process ends
    others = (".ses", "pymp-")
    temporary = [path for path in (model.parents[1] / "temporary").iterdir() if not path.name.startswith(others)]
    return [*(path for path in model.parent.iterdir() if path != model), *temporary]


@pytest.mark.parametrize(
    "command",
    [
        ("fuse", "{}"),
        ("verify", "{}", "{}"),
        ("specialize", "{}", "--shape", "x=2x8"),
        ("partition", "{}", "--backend", "onnxruntime", "--gain", "inf"),
    ],
    ids=lambda command: command[0],
)
def test_an_endless_run_inside_onnxruntime_is_given_up(command: tuple[str, ...], run: Run, endless: Path) -> None:
    result = run(*(part.format(endless) for part in command), "--time-limit", 1)
    assert result.code == 2
    assert "the time limit of 1 seconds is over, at the stage '" in result.err and "--time-limit gives more time" in result.err
    assert not result.out
    assert not _left(endless)


def test_each_of_several_models_has_the_full_time(run: Run, endless: Path) -> None:
    other = save(ENDLESS, endless.with_name("other.onnx"))
    result = run("fuse", endless, other, "-j", 2, "--time-limit", 1, "--output-dir", endless.parent / "out")
    assert result.code == 2
    for model in (endless, other):
        assert f"Error: {model}: the time limit of 1 seconds is over" in result.err
    assert _left(endless) == [other]


_over = threading.Event()
"""Set after each test, to end its native code."""


@pytest.fixture(autouse=True)
def _native_code_ends() -> Iterator[None]:
    """In Python 3.11, while a thread has not yet got an exception that was sent to it, code that is traced may run for ever."""
    _over.clear()
    yield
    _over.set()
    for thread in threading.enumerate():
        if thread.name == "onnx-subgraph":
            thread.join(60)


def _sleep(*_: Any, **__: Any) -> None:
    """Stands for native code, which can't be interrupted."""
    _over.wait(600)


def _spin(*_: Any, **__: Any) -> NoReturn:
    """Stands for a loop in Python."""
    while True:
        time.sleep(0.01)


@pytest.mark.parametrize("stuck", [_spin, _sleep], ids=["in Python", "in native code"])
@pytest.mark.parametrize("command", ["fuse", "explain"])
def test_the_stage_that_took_too_long_is_named(
    command: str, run: Run, gelu: Path, monkeypatch: pytest.MonkeyPatch, stuck: Callable[..., None]
) -> None:
    monkeypatch.setattr(pipeline, "infer_shapes", stuck)
    result = run(command, gelu, "--time-limit", 0.5)
    assert (result.code, result.out) == (2, "")
    assert "the time limit of 0.5 seconds is over, at the stage 'load'; nothing was written\nhint: " in result.err
    assert list(gelu.parent.iterdir()) == [gelu]


def test_native_code_is_not_waited_for(run_process: Run, endless: Path, tmp_path: Path) -> None:
    """The process ends, although the operator that it runs takes far longer than this test may."""
    model, stage = save(LARGE, endless), "at the stage 'reference on CPUExecutionProvider'"
    for seconds in (1, 4, 16, 64):  # a slow machine needs longer to reach the run
        result = run_process("fuse", model, "--time-limit", seconds, "--json", TMPDIR=str(tmp_path / "temporary"))
        assert result.code == 2
        if stage in result.err:
            break
    assert f"the time limit of {seconds} seconds is over, {stage}" in result.err
    assert "the time limit" in result.json["error"]
    assert _left(model) == []


def test_models_after_one_that_is_given_up_are_processed(run_process: Run, endless: Path, gelu: Path, tmp_path: Path) -> None:
    model, out = save(LARGE, endless), tmp_path / "out"
    for seconds in (2, 8, 32):  # a slow machine needs longer for the second model
        result = run_process("fuse", model, gelu, "--time-limit", seconds, "--output-dir", out, "--junit", tmp_path / "j.xml")
        assert result.code == 2
        if f"Error: {gelu}: the time limit" not in result.err:
            break
    assert f"Error: {model}: the time limit of {seconds} seconds is over" in result.err
    assert [path.name for path in out.iterdir()] == ["gelu.onnx"]
    assert f"the time limit of {seconds} seconds is over" in (tmp_path / "j.xml").read_text(encoding="utf-8")


def test_code_that_catches_every_exception_does_not_catch_this_one() -> None:
    def work(tell: Progress) -> None:
        tell("find")
        try:
            _spin()
        except Exception:
            pytest.fail("it was taken for a failure of what ran")

    with pytest.raises(TimeLimitError, match="'find'"):
        within(0.3, work, lambda stage: None)


def test_work_cleans_up_when_its_time_is_over(tmp_path: Path) -> None:
    def work(tell: Progress) -> None:
        with written_whole(tmp_path / "out"):
            _spin()

    with pytest.raises(TimeLimitError, match="at the stage 'start'"):
        within(0.3, work, lambda stage: None)
    assert list(tmp_path.iterdir()) == []


def test_temporary_files_are_removed_while_native_code_still_runs(tmp_path: Path) -> None:
    def work(tell: Progress) -> None:
        with written_whole(tmp_path / "out"):
            _sleep()

    with pytest.raises(TimeLimitError):
        within(0.3, work, lambda stage: None)
    assert list(tmp_path.iterdir()) == []
    assert abandoned()


def test_a_removal_that_was_interrupted_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    remove, calls = shutil.rmtree, itertools.count()

    def interrupted(path: Path, **options: bool) -> None:
        if next(calls) == 0:
            raise TimeIsUp
        remove(path, **options)

    def work(tell: Progress) -> None:
        with temporary.folder():
            _spin()

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with temporary.folder() as other:
        with pytest.raises(TimeLimitError):
            within(0.1, work, lambda stage: None)
        assert list(tmp_path.iterdir()) == [other]


PROFILED = """
import sys
from onnx_subgraph.deadline import within
sys.setprofile(lambda frame, event, argument: None)
print(within(60, lambda tell: sum(map(abs, range(1000))), lambda stage: None))
print(sum(map(abs, range(1000))))
"""


def test_work_ends_in_a_program_with_a_profiler() -> None:
    # In Python 3.11 this runs for ever if an exception is cancelled in a thread that was sent none.
    done = subprocess.run([sys.executable, "-c", PROFILED], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split() == ["499500", "499500"]


def test_only_work_with_a_limit_knows_the_remaining_time() -> None:
    assert 0 < within(60, lambda tell: remaining(), lambda stage: None) <= 60
    assert remaining() == float("inf")


def test_work_has_the_context_of_its_caller_and_a_deep_stack() -> None:
    context: ContextVar[str] = ContextVar("context")
    context.set("here")

    def deep(left: int) -> str:
        return deep(left - 1) if left else context.get()

    size = threading.stack_size()
    assert within(60, lambda tell: deep(500), lambda stage: None) == "here"
    assert threading.stack_size() == size, "for other threads"


@pytest.mark.parametrize("error", [ValueError("wrong"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_exceptions_of_the_work_are_raised(error: BaseException) -> None:
    def work(tell: Progress) -> None:
        raise error

    with pytest.raises(type(error)):
        within(60, work, lambda stage: None)


@pytest.mark.skipif(os.name != "posix", reason="signals as on POSIX")
def test_an_interruption_ends_the_work(tmp_path: Path) -> None:
    def work(tell: Progress) -> None:
        with written_whole(tmp_path / "out"):
            os.kill(os.getpid(), signal.SIGINT)
            _spin()

    with pytest.raises(KeyboardInterrupt):
        within(60, work, lambda stage: None)
    assert list(tmp_path.iterdir()) == []


def test_zero_is_no_limit(run: Run, gelu: Path) -> None:
    within(0, lambda tell: check(), lambda stage: None)
    assert within(0, lambda tell: remaining(), lambda stage: None) == float("inf")
    assert run("fuse", gelu, "--time-limit", 0).code == 0


def test_a_negative_limit_is_an_error(run: Run, gelu: Path) -> None:
    result = run("fuse", gelu, "--time-limit", -1)
    assert result.code == 2
    assert "--time-limit" in result.err


def test_time_that_is_over_is_reported_at_once() -> None:
    def work(tell: Progress) -> None:
        raise TimeIsUp

    with pytest.raises(TimeLimitError):
        within(60, work, lambda stage: None)


def test_work_whose_thread_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline._Work, "run", lambda work: None)
    with pytest.raises(RuntimeError, match="is gone"):
        within(20, lambda tell: None, lambda stage: None)


def test_after_the_limit_no_time_is_left_and_work_ends_at_the_next_check() -> None:
    def late() -> float:
        deadline._ENDS.set(time.monotonic() - 1)
        with pytest.raises(TimeIsUp):
            check()
        return remaining()

    assert copy_context().run(late) == 0


def test_the_time_limit_of_proofs_keeps_those_that_were_made(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx_subgraph import proving

    def slow(pattern: Any, tell: Any) -> proving.Proof:
        if pattern.id == "silu":
            tell("7 models")
            raise TimeIsUp
        return proving.Proof(pattern.id, 3, (), {"function": 3})

    monkeypatch.setattr(proving, "prove", slow)
    result = run("test-patterns", "gelu", "silu", "--time-limit", 60)
    assert result.code == 2
    assert "1 pattern, 3 models: all hold" in result.out
    assert (
        "the time limit of 60 seconds is over, at the stage '2 of 2: silu, 7 models'; 1 of 2 patterns were not proved"
        in result.err
    )
    assert "--time-limit" in result.err


def test_a_program_can_be_traced_after_its_work_was_interrupted() -> None:
    """In Python 3.11 an exception that is taken back when it has arrived already makes every traced function wait for ever."""
    program = """
import sys, time
from onnx_subgraph.deadline import within
from onnx_subgraph.errors import TimeLimitError

def sleep(tell):
    while True:
        time.sleep(0.001)

try:
    within(0.1, sleep, print)
except TimeLimitError as error:
    sys.settrace(lambda *_: None)
    print((lambda: error)())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("the time limit of 0.1 seconds is over"), done.stderr
