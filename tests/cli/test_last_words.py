"""A command whose process is ended in the middle says where; others say nothing of the kind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onnx_subgraph.cli.last_words import CAUSES
from onnx_subgraph.cli.workers import Lost
from tests.verification.models import write

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")

FATAL = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, n, 4] x, float[1, 16, 4] w, bool[1] go) => (float[?] t)
  <int64[1] end = {10000}, int64[1] one = {1}> {
    t = If (go) <
      then_branch = a () => (float[?] u) {
        c = Slice (x, end, end, one)  y = LSTM <hidden_size = 4> (c, w, w)  e = Sigmoid (y)  u = Mul (y, e) },
      else_branch = o () => (float[?] v) { v = Neg (x) }> }"""
"""onnxruntime ends the process for a batch of 0. Verification does not look into branches."""


START = "from onnx_subgraph.cli.last_words import listen, now; listen()"


def program(*lines: str) -> subprocess.CompletedProcess[str]:
    text = "\n".join(["import os, signal", START, *lines])
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGTERM"])
def test_an_ended_process_says_its_stage(name: str) -> None:
    done = program("now('a.onnx: load')", "now('ä\\n.onnx: find')", f"os.kill(os.getpid(), signal.{name})")
    assert done.returncode == -getattr(signal, name)
    assert done.stderr == f"Error: the process was ended at the stage 'ä .onnx: find'; {CAUSES}\n"


@pytest.mark.parametrize(
    "lines",
    [
        ("now('find')", "now('')", "os.kill(os.getpid(), signal.SIGKILL)"),
        ("now('find')", "now('')"),
        ("os.execv('/bin/true', ['true'])",),
    ],
    ids=["killed after the last stage", "ended by itself", "replaced by another program"],
)
def test_a_process_at_no_stage_says_nothing(lines: tuple[str, ...]) -> None:
    assert program(*lines).stderr == ""


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-"])
def test_a_closed_stream_is_no_pipe(closed: str) -> None:
    command = f"'{sys.executable}' -c 'import os; {START}; now(\"find\"); os._exit(3)' {closed}"
    assert subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False).returncode == 3


def test_a_crash_of_onnxruntime_is_told(tmp_path: Path) -> None:
    model, other = write(tmp_path / "m.onnx", FATAL), write(tmp_path / "n.onnx", FATAL)
    command = [sys.executable, "-m", "onnx_subgraph", "fuse"]
    done = subprocess.run([*command, model], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == -signal.SIGABRT and not (tmp_path / "m.fused.onnx").exists()
    assert f"Error: the process was ended at the stage '{model}: reference on CPUExecutionProvider'; {CAUSES}\n" in done.stderr
    done = subprocess.run([*command, "--jobs", "2", model, other], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    assert f"{model}: the process that worked on it was ended by SIGABRT at the stage 'reference on" in done.stderr


def test_an_interrupt_of_the_terminal_is_for_the_command() -> None:
    """A terminal sends ^C to the fork as well."""
    lines = ("signal.signal(signal.SIGINT, signal.SIG_IGN)", "now('find')", "os.killpg(0, signal.SIGINT)")
    text = "\n".join(["import os, signal", START, *lines, "os.kill(os.getpid(), signal.SIGKILL)"])
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False, start_new_session=True
    )
    assert "at the stage 'find'" in done.stderr


def test_the_stages_end_with_the_progress() -> None:
    lines = ("from onnx_subgraph.cli.terminal import progress", "with progress() as say: say('find \\udcff')")
    assert program(*lines, "os.kill(os.getpid(), signal.SIGKILL)").stderr == ""


def test_the_fork_is_gone_when_the_command_ends() -> None:
    done = program("from onnx_subgraph.cli.last_words import end", "end()", "print(os.waitpid(-1, os.WNOHANG))")
    assert "ChildProcessError" in done.stderr, "there is no child left"


def test_an_ended_worker_has_a_code_or_a_signal() -> None:
    assert str(Lost(3)) == f"the process that worked on it was ended with code 3; {CAUSES}"
    assert str(Lost(-1000, "find")) == f"the process that worked on it was ended with code -1000 at the stage 'find'; {CAUSES}"
