"""A bound on how long a command may take: what runs over it is broken off where it stands, and says at which stage.

The work is done by a thread of its own, and the one that waits for it looks at the clock. When the time is up, an exception ends
the work at its next step in Python. Native code (a product inside onnxruntime, the reading of a file) knows no exceptions: it is
left to itself after a short grace, its temporary files are removed, and `abandoned` says that the process is to be ended when all
else is done.

Who starts a run that may be long asks how long it may take (`remaining`), and looks at the time afterwards (`check`).
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
"""Seconds that work has to clean up after itself when it is broken off."""
_SLICE = 0.1
"""Seconds after which a wait looks for signals: not every system wakes it when one comes."""
_STACK = 64 << 20
"""Bytes of stack for the work, which some systems give to no thread but the first."""
_ENDS: ContextVar[float] = ContextVar("ends", default=math.inf)
"""When the time is up, by `time.monotonic`."""
_abandoned: list[threading.Event] = []
_births = threading.Lock()
"""Held while a thread starts: until it runs, Python knows it by the identity of the one that started it."""


class TimeIsUp(BaseException):
    """Passes, like ^C, through all that answers an `Exception`; `within` makes a TimeLimitError of it."""


def remaining() -> float:
    """The seconds that are left; infinite where there is no limit, not below 0."""
    return max(0.0, _ENDS.get() - time.monotonic())


def check() -> None:
    """Raises TimeIsUp where no time is left."""
    if not remaining():
        raise TimeIsUp


def abandoned() -> bool:
    """Whether native code that was given up still runs: the process has to be ended without waiting for it."""
    return not all(done.is_set() for done in _abandoned)


def start(thread: threading.Thread) -> None:
    """Starts a thread from work that may be broken off, so that what breaks it off does not reach the new one instead."""
    with _births:
        thread.start()


def within(seconds: float, work: Callable[[Progress], T], progress: Progress, hint: str = "") -> T:
    """What `work` gives, where that takes so many seconds at most, or 0 for any. It is called with what it tells its stages to.

    progress: told of the stages. hint: what would take less time. Raises what `work` raises, and TimeLimitError where it takes
    longer. An exception that comes meanwhile, as ^C, breaks the work off as well.
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
    """A call in a thread of its own, in a copy of the context of the one that made it. error: what it raised.

    done: set when it is over. A thread's own `is_alive` is wrong once a signal has broken off a `join` (bpo-45274's remedy).
    """

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__(name="onnx-subgraph", daemon=True)
        self._call = call
        self._context = copy_context()
        self._result: list[T] = []
        self.error: BaseException | None = None
        self.done = threading.Event()
        self._ending = threading.RLock()

    def begin(self) -> None:
        """Starts it, with a stack as large as that of a main thread."""
        before = threading.stack_size(_STACK)
        try:
            self.start()
        finally:
            threading.stack_size(before)

    def run(self) -> None:
        try:
            self._result.append(self._context.run(self._call))
        except BaseException as error:  # whoever waits for the result gets it
            self.error = error
        while not self.done.is_set():
            # nothing may keep the one who waits from hearing that this is over
            with contextlib.suppress(BaseException), self._ending:
                _raise_in(self, None)  # what was sent, and has not come yet
                self.done.set()

    def wait(self, ends: float) -> None:
        """Waits until it is done, or the time is up."""
        while not self.done.is_set() and (left := ends - time.monotonic()) > 0:
            if not self.done.wait(min(left, _SLICE)) and self.ident not in sys._current_frames():
                self.error = self.error or RuntimeError("the thread that did the work is gone")
                self.done.set()

    def end(self) -> None:
        """Has it broken off where it still runs; where it does not stop, it is abandoned, and what it holds is removed."""
        with self._ending:
            if self.done.is_set():
                return
            _abandoned.append(self.done)
            with _births:
                _raise_in(self, TimeIsUp)
        try:
            self.wait(time.monotonic() + GRACE)
        finally:
            if not self.done.is_set():
                temporary.remove_mine()

    def result(self) -> T:
        """What the call gave. Raises what it raised, TimeIsUp where it was broken off or is not done."""
        if self._result:
            return self._result[0]
        if self.error is None or isinstance(self.error, TimeIsUp):
            raise TimeIsUp
        raise self.error


def _raise_in(thread: threading.Thread, error: type[BaseException] | None) -> None:
    """Has an exception raised in another thread, at its next step in Python; None takes back one that has not come yet."""
    sent = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), sent)
