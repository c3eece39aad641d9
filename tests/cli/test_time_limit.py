"""`--time-limit`: a model that takes too long is given up, wherever it stands, and leaves nothing behind."""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

import pytest

from onnx_subgraph import pipeline
from onnx_subgraph.deadline import TimeIsUp, check, remaining, time_limit
from onnx_subgraph.errors import TimeLimitError
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
needs_timers = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="timers as on POSIX")


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that runs for ever, in a folder where nothing else is; temporary files go beside it."""
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return save(ENDLESS, folder / "endless.onnx")


def _left(model: Path) -> list[Path]:
    """What a command left behind: beside the model, or of its temporary files."""
    return [*(p for p in model.parent.iterdir() if p != model), *(model.parents[1] / "temporary").iterdir()]


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
def test_a_run_without_end_inside_onnxruntime_is_given_up(command: tuple[str, ...], run: Run, endless: Path) -> None:
    result = run(*(part.format(endless) for part in command), "--time-limit", 1)
    assert result.code == 2
    assert "the time limit of 1 seconds is over, at the stage '" in result.err and "--time-limit gives more time" in result.err
    assert not result.out
    assert not _left(endless)


def test_each_of_several_models_has_the_time_for_itself(run: Run, endless: Path) -> None:
    other = save(ENDLESS, endless.with_name("other.onnx"))
    result = run("fuse", endless, other, "-j", 2, "--time-limit", 1, "--output-dir", endless.parent / "out")
    assert result.code == 2
    for model in (endless, other):
        assert f"Error: {model}: the time limit of 1 seconds is over" in result.err
    assert _left(endless) == [other]


def _sleep(*_: Any, **__: Any) -> NoReturn:
    time.sleep(600)
    raise AssertionError("nobody woke it")


@needs_timers
@pytest.mark.parametrize("command", ["fuse", "explain"])
def test_the_stage_that_took_too_long_is_named(command: str, run: Run, gelu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "infer_shapes", _sleep)
    result = run(command, gelu, "--time-limit", 0.5)
    assert (result.code, result.out) == (2, "")
    assert "the time limit of 0.5 seconds is over, at the stage 'load'; nothing was written\nhint: " in result.err
    assert list(gelu.parent.iterdir()) == [gelu]


def test_where_no_signal_comes_the_next_stage_ends_it(run: Run, gelu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "setitimer", raising=False)
    monkeypatch.setattr(pipeline, "infer_shapes", lambda model: time.sleep(0.6))
    result = run("fuse", gelu, "--time-limit", 0.5)
    assert result.code == 2
    assert "at the stage 'load'" in result.err


@needs_timers
def test_what_answers_every_exception_does_not_answer_this_one() -> None:
    with pytest.raises(TimeLimitError, match="'find'"), time_limit(0.3, lambda stage: None) as tell:
        tell("find")
        try:
            _sleep()
        except Exception:
            pytest.fail("it was taken for a failure of what ran")


@needs_timers
def test_a_limit_leaves_no_timer_behind() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(60, lambda stage: None):
        assert 0 < remaining() <= 60
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == before
    assert remaining() == float("inf")


@needs_timers
def test_an_interruption_stays_one() -> None:
    with pytest.raises(KeyboardInterrupt), time_limit(60, lambda stage: None):
        raise KeyboardInterrupt


def test_zero_is_no_limit(run: Run, gelu: Path) -> None:
    with time_limit(0, lambda stage: None):
        check()
        assert remaining() == float("inf")
    assert run("fuse", gelu, "--time-limit", 0).code == 0


def test_a_limit_is_no_negative_number(run: Run, gelu: Path) -> None:
    result = run("fuse", gelu, "--time-limit", -1)
    assert result.code == 2
    assert "--time-limit" in result.err


def test_no_time_left_is_said_at_once() -> None:
    with pytest.raises(TimeLimitError), time_limit(60, lambda stage: None):
        raise TimeIsUp
