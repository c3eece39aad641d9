"""A bound on how long a command may take: what runs over it is broken off where it stands, and says at which stage.

On POSIX a timer's signal ends what the main thread does; elsewhere the next stage does. A run inside onnxruntime hears no
signals: who starts one asks how long it may take (`remaining`), and looks at the time afterwards (`check`).
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NoReturn

from onnx_subgraph.clock import Progress
from onnx_subgraph.errors import TimeLimitError

_ENDS: ContextVar[float] = ContextVar("ends", default=math.inf)
"""When the time is up, by `time.monotonic`."""


class TimeIsUp(BaseException):
    """Passes, like ^C, through all that answers an `Exception`; `time_limit` makes a TimeLimitError of it."""


def remaining() -> float:
    """The seconds that are left; infinite where there is no limit, not below 0."""
    return max(0.0, _ENDS.get() - time.monotonic())


def check() -> None:
    """Raises TimeIsUp where no time is left."""
    if not remaining():
        raise TimeIsUp


@contextmanager
def time_limit(seconds: float, progress: Progress, hint: str = "") -> Iterator[Progress]:
    """Within the block there are so many seconds, 0 for no end. Gives the `progress` to tell of stages, which looks at the time.

    hint: what would take less time. Raises TimeLimitError where the block took longer.
    """
    if not seconds:
        yield progress
        return
    stage = "start"

    def tell(now: str) -> None:
        nonlocal stage
        check()
        stage = now
        progress(now)

    token = _ENDS.set(time.monotonic() + seconds)
    try:
        with _alarm(seconds):
            yield tell
    except TimeIsUp:
        message = f"the time limit of {seconds:g} seconds is over, at the stage {stage!r}; nothing was written"
        raise TimeLimitError(message, hint=hint or None) from None
    finally:
        _ENDS.reset(token)


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """TimeIsUp is raised in the block after so many seconds, where a signal can do that."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _raise)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _raise(number: int, frame: object) -> NoReturn:
    raise TimeIsUp
