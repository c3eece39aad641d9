"""Runs our own commands in child processes: their JSON, and their errors."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx_subgraph.errors import SessionError
from onnx_subgraph.inherited import environment
from onnx_subgraph.session.digest import PACKAGE
from onnx_subgraph.session.ingredients import ISA, KERNELS
from onnx_subgraph.session.settings import PREFIX

OWN = {"pack": "onnx_subgraph.cli.pack"}
"""Modules that run like commands, but are not for users."""
LOOK_SECONDS = 0.05
"""Seconds between two checks whether a preparation is still wanted."""
LOWEST = 19
"""The priority of a background process, as a `nice` value, if the system has no policy for idle time."""


class FailedError(SessionError):
    """A command ended without an answer, or with an error that may not occur again."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a command may run: at most so many seconds, and until `stop` is set.

    retry: seconds for which a failure is remembered. aside: run at the lowest priority.
    """

    seconds: float
    stop: threading.Event | None
    retry: float = 0.0
    aside: bool = False


def run(command: tuple[str, ...], model: Path, output: Path, patience: Patience) -> dict[str, Any]:
    """The JSON of the command. Raises FailedError with its message if it fails, SessionError if it can't be run."""
    name = [OWN[command[0]]] if command[0] in OWN else ["onnx_subgraph", "--no-settings", command[0]]
    call = [_python(), "-P", "-m", *name, str(model), "-o", str(output), "--json", *command[1:]]
    try:
        with subprocess.Popen(
            call,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=_environment(),
        ) as child:
            if patience.aside:
                _step_back(child)
            out, err = _communicate(child, command[0], patience)
    except OSError as error:
        raise SessionError(f"{call[0]} can't be run: {error.strerror or error}", hint=_PYTHON_HINT) from error
    try:
        told = json.loads(out)
    except ValueError:
        told = None
    if not isinstance(told, dict) or child.returncode not in (0, 1, 2):
        raise FailedError(_last_words(child.returncode, err, command[0]))
    if "error" in told:
        raise FailedError(str(told["error"]))
    return told


def _step_back(child: subprocess.Popen[str]) -> None:
    """Lower the priority as far as the system can; threads that the child starts inherit it."""
    with contextlib.suppress(OSError):  # it may have ended already
        if hasattr(os, "SCHED_IDLE"):
            os.sched_setscheduler(child.pid, os.SCHED_IDLE, os.sched_param(0))
        elif hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, child.pid, LOWEST)


def _communicate(child: subprocess.Popen[str], command: str, patience: Patience) -> tuple[str, str]:
    """The child's two output streams. The child ends with this call, even if an exception ends it."""
    begun = time.monotonic()
    try:
        while True:
            try:
                return child.communicate(timeout=LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                if patience.stop is not None and patience.stop.is_set():
                    raise SessionError("it was not waited for") from None
                if time.monotonic() - begun > patience.seconds:
                    raise FailedError(
                        f"`onnx-subgraph {command}` took longer than {patience.seconds:g} s",
                        hint=f"give it more with {PREFIX}TIMEOUT, or run `onnx-subgraph {command}` ahead of time",
                    ) from None
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


_PYTHON_HINT = "in a program that embeds Python, say with multiprocessing.set_executable which Python to run"


def _python() -> str:
    """The Python for commands: that of this process, or the one that an embedding program set in multiprocessing."""
    from multiprocessing import spawn

    executable = spawn.get_executable()
    if not executable or getattr(sys, "frozen", False):
        raise SessionError("this program has no Python of its own to prepare models with", hint=_PYTHON_HINT)
    return os.fsdecode(executable)


def _environment() -> dict[str, str]:
    """The environment for our commands: the same import path as this process, without the hook."""
    places = [place for place in sys.path if place and Path(place) != PACKAGE / "session" / "site"]
    if str(PACKAGE.parent) not in places:
        places.append(str(PACKAGE.parent))
    kept = {name: value for name, value in environment().items() if not name.startswith(PREFIX) or name in (ISA, KERNELS)}
    return {**kept, "PYTHONPATH": os.pathsep.join(places), f"{PREFIX}SESSION": "0"}


def _last_words(code: int, said: str, command: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    message = " ".join(lines[-3:]).removeprefix("Error: ")
    return f"`onnx-subgraph {command}` ended with {how}{': ' + message if message else ''}"
