"""Work in a forked process, which must end by itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable


def child_of(work: Callable[[], bool]) -> int:
    """A forked process that does `work` and ends: with status 0 if the work returns True."""
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if work() else 1
        finally:  # whatever happens, it runs no more tests
            os._exit(code)
    return child


def succeeds(child: int, seconds: float) -> bool:
    """Whether a child ends with status 0 within so many seconds; it is killed after that."""
    ended = status = 0
    begun = time.monotonic()
    while not ended and time.monotonic() < begun + seconds:
        time.sleep(0.01)
        ended, status = os.waitpid(child, os.WNOHANG)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return bool(ended) and status == 0
