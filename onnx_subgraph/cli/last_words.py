"""Say what a command was doing if its process is ended: native code crashed, or the system killed it to get its memory back.

Such a process can't say anything itself. So a fork of it, made at the start, reads the current stage from a pipe. If the pipe is
closed in the middle of a stage, the fork prints an error. It is the child and not the parent, so signals, the exit code and the
terminal are those of the command. Where a process can't fork, nothing is said.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

CAUSES = "onnxruntime may have crashed, the memory may have run out, or it was killed"
_forks: dict[int, int] = {}
"""The process number of the fork → the pipe to it, if there is one."""


def listen() -> None:
    """Makes the fork. Only for a program, at its start, before it has threads."""
    if not hasattr(os, "fork") or _forks or None in (sys.stdin, sys.stdout, sys.stderr):
        return  # the pipe would take the place of a closed stream
    with suppress(OSError):  # no more processes or files are allowed
        ours, theirs = os.pipe()
        fork = os.fork()
        if not fork:
            os.close(theirs)
            _speak(ours)
        os.close(ours)
        _forks[fork] = theirs


def now(stage: str) -> None:
    """Says that the command is at this stage; "" if it is at none, and may end."""
    for pipe in _forks.values():
        with suppress(OSError):  # the fork was ended
            os.write(pipe, " ".join(stage.splitlines()).encode(errors="backslashreplace") + b"\n")


def end() -> None:
    """Lets the fork end, and waits for it: otherwise it would stay in the table of processes until this one is gone."""
    while _forks:
        fork, pipe = _forks.popitem()
        with suppress(OSError):
            os.close(pipe)
            os.waitpid(fork, 0)


def _speak(pipe: int) -> NoReturn:
    """The fork: waits until the command has ended."""
    try:
        for name in ("SIGINT", "SIGQUIT"):  # of a terminal, for the command
            signal.signal(getattr(signal, name), signal.SIG_IGN)
        for stream in (0, 1):  # a reader of the output waits until all that can write have closed it
            os.close(stream)
        rest = stage = b""
        while chunk := os.read(pipe, 1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            stage = lines[-1] if lines else stage
        if stage:
            os.write(2, b"\n" * os.isatty(2) + b"Error: the process was ended at the stage '%s'; %s\n" % (stage, CAUSES.encode()))
    finally:
        os._exit(0)
