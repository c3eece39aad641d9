"""Programs of tests in forks of a process that has imported the command line.

To import it takes four times as long as to fuse a small model. A fork stands in for a `subprocess.Popen`.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any

from onnx_subgraph.cli.workers import PRELOADED


def popen(call: Sequence[str], **options: Any) -> Forked | subprocess.Popen[str]:
    """A process that runs `call`: a fork where it is `python -P -m MODULE WORD…` with this Python."""
    if list(call[:3]) != [sys.executable, "-P", "-m"]:
        return subprocess.Popen(call, **options)
    return Forked(call[3:], options["env"])


SUBPROCESS = SimpleNamespace(**{**vars(subprocess), "Popen": popen})
"""The module subprocess with this Popen."""


class Forked:
    """A process that runs a module or a program with words, as much of a `Popen` as the tests use.

    words: the module's name or the program's path (`….py`), and its arguments.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([PRELOADED])
        self._folder = tempfile.TemporaryDirectory()
        self._words = words
        self._streams = [Path(self._folder.name, name) for name in ("out", "err")]
        self._process = context.Process(target=_execute, args=(list(words), self._streams, dict(environment)), daemon=True)
        self._process.start()

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.wait()
        self._folder.cleanup()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def communicate(self, timeout: float) -> tuple[str, str]:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(list(self._words), timeout)
        out, err = (stream.read_text(encoding="utf-8", errors="replace") for stream in self._streams)
        return out, err


def _execute(words: list[str], streams: list[Path], environment: dict[str, str]) -> None:
    """Run in the fork. Its import path begins with PYTHONPATH, as that of a new Python does."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(streams, 1):
        with path.open("w", encoding="utf-8") as stream:
            os.dup2(stream.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # look it up again, in the new environment
    own = [place for place in sys.path if place.startswith((sys.prefix, sys.base_prefix))]
    sys.path[:] = [*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *own]
    sys.argv = words
    if words[0].endswith(".py"):
        runpy.run_path(words[0], run_name="__main__")
    else:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
