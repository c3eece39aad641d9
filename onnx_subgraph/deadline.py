"""A time limit for a command: work that exceeds it is interrupted, and the error names the stage.

The work runs in its own thread, and the waiting thread watches the clock. At the limit, an exception ends the work at its next
step in Python. Native code (a product inside onnxruntime, the reading of a file) can't be interrupted: after a short grace period
it is abandoned, its temporary files are removed, and `abandoned` says that the process must be ended when all else is done.

Code that starts a long native call first asks how long it may take (`remaining`), and checks the time afterwards (`check`).
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Generic, TypeVar

from onnx_subgraph import temporary
from onnx_subgraph.clock import Progress
from onnx_subgraph.errors import TimeLimitError

T = TypeVar("T")

GRACE = 0.5
"""Seconds that interrupted work has for its cleanup."""
_SLICE = 0.1
"""Seconds between checks for signals during a wait: not every system wakes it when one comes."""
_STACK = 64 << 20
"""Stack size of the work's thread in bytes; some systems give as much only to the main thread."""
_STEPS = 100
"""Steps of a loop during which an exception arrives; the first one suffices."""
_ENDS: ContextVar[float] = ContextVar("ends", default=math.inf)
"""The time limit, in terms of `time.monotonic`."""
_abandoned: list[threading.Event] = []
_births = threading.Lock()
"""Held while a thread starts: until it runs, Python knows it by the identity of its parent."""


class TimeIsUp(BaseException):
    """Interrupts work. `except Exception` does not catch it, as ^C; `within` turns it into a TimeLimitError."""


def remaining() -> float:
    """The seconds that are left; infinite without a limit, never negative."""
    return max(0.0, _ENDS.get() - time.monotonic())


def check() -> None:
    """Raises TimeIsUp if no time is left."""
    if not remaining():
        raise TimeIsUp


def abandoned() -> bool:
    """Whether abandoned native code still runs: the process must then be ended without waiting for it."""
    return not all(done.is_set() for done in _abandoned)


def start(thread: threading.Thread) -> None:
    """Starts a thread from work with a time limit, so that the interruption of the work does not hit the new thread instead."""
    with _births:
        thread.start()


def within(seconds: float, work: Callable[[Progress], T], progress: Progress, hint: str = "") -> T:
    """The result of `work`, which may take so many seconds, 0 for any. It is called with a function to report its stages.

    progress: called with the stages. hint: what would take less time. Raises what `work` raises, and TimeLimitError at the limit.
    An exception in the waiting thread, such as ^C, also interrupts the work.
    """
    if not seconds:
        return work(progress)
    stage = "start"

    def tell(now: str) -> None:
        nonlocal stage
        check()
        stage = now
        progress(now)

    def timed() -> T:
        _ENDS.set(ends)
        return work(tell)

    ends = time.monotonic() + seconds
    running = _Work(timed)
    try:
        running.begin()
        running.wait(ends)
    finally:
        running.end()
    try:
        return running.result()
    except TimeIsUp:
        message = f"the time limit of {seconds:g} seconds is over, at the stage {stage!r}; nothing was written"
        raise TimeLimitError(message, hint=hint or None) from None


class _Work(threading.Thread, Generic[T]):
    """A call in its own thread, in a copy of the caller's context. error: the exception it raised.

    done: set when it is over. A thread's `is_alive` is wrong after a signal has interrupted a `join` (bpo-45274's remedy).
    """

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__(name="onnx-subgraph", daemon=True)
        self._call = call
        self._context = copy_context()
        self._files = self._context.run(temporary.separate)
        self._result: list[T] = []
        self.error: BaseException | None = None
        self.done = threading.Event()
        self._ending = threading.RLock()
        self._sent = False  # whether an exception was sent

    def begin(self) -> None:
        """Starts it, with a stack as large as that of a main thread."""
        before = threading.stack_size(_STACK)
        try:
            self.start()
        finally:
            threading.stack_size(before)

    def run(self) -> None:
        try:
            self._work()
        except BaseException:  # sent when the work was over already, between two of its last lines
            self.done.set()

    def _work(self) -> None:
        try:
            self._result.append(self._context.run(self._call))
        except BaseException as error:  # `result` raises it in the waiting thread
            self.error = error
        while not self.done.is_set():
            # no exception may prevent this notification
            with contextlib.suppress(BaseException), self._ending:
                if self._sent:
                    _let_arrive()
                self.done.set()

    def wait(self, ends: float) -> None:
        """Waits until it is done, or the time is up."""
        while not self.done.is_set() and (left := ends - time.monotonic()) > 0:
            if not self.done.wait(min(left, _SLICE)) and self.ident not in sys._current_frames():
                self.error = self.error or RuntimeError("the thread that did the work is gone")
                self.done.set()

    def end(self) -> None:
        """Interrupts it if it still runs, and abandons it if it does not stop. The temporary files that it leaves are removed."""
        with self._ending:
            if self.done.is_set():
                return
            _abandoned.append(self.done)
            self._sent = True
            with _births:
                _raise_in(self, TimeIsUp)
        try:
            self.wait(time.monotonic() + GRACE)
        finally:
            temporary.clean_up(self._files)

    def result(self) -> T:
        """The result of the call. Raises what it raised, or TimeIsUp if it was interrupted or is not done."""
        if self._result:
            return self._result[0]
        raise self.error or TimeIsUp


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    """Raises an exception in another thread, at its next step in Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(error))


def _let_arrive() -> None:
    """Raises an exception that was sent to this thread and has not arrived.

    To cancel it instead, if it has arrived, leaves a mark in Python 3.11 of which each function that is traced waits for the end.
    """
    for _ in range(_STEPS):  # it arrives at the end of a step
        pass
