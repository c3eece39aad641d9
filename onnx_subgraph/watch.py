"""Calls that come after a time, unless the work ends before; all in one thread.

Most work ends long before its time, and a `threading.Timer` would start a thread for each run of a model.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from onnx_subgraph.deadline import start


@dataclass(eq=False, slots=True)
class Alarm:
    """A call at a time, in terms of `time.monotonic`. rang: whether the time has come."""

    time: float
    call: Callable[[], object]
    rang: bool = False


class _Watch:
    """The alarms of a process, and the thread that waits for the first of them."""

    def __init__(self) -> None:
        self._alarms: set[Alarm] = set()
        # No condition: an exception that interrupts work could leave it locked.
        self._lock = threading.Lock()
        self._earlier: SimpleQueue[None] = SimpleQueue()
        self._wakes = math.inf
        self._thread: threading.Thread | None = None

    def add(self, alarm: Alarm) -> None:
        with self._lock:
            self._alarms.add(alarm)
            is_first = alarm.time < self._wakes
            self._wakes = min(self._wakes, alarm.time)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._serve, name="onnx-subgraph watch", daemon=True)
                start(self._thread)
        if is_first:
            self._earlier.put(None)

    def remove(self, alarm: Alarm) -> None:
        """Remove an alarm. After this its call does not come, and does not run any more."""
        with self._lock:
            self._alarms.discard(alarm)

    def _serve(self) -> None:
        while True:
            left = self._wakes - time.monotonic()
            with suppress(Empty):
                self._earlier.get(timeout=None if math.isinf(left) else min(max(left, 0.0), threading.TIMEOUT_MAX))
            with self._lock:
                now = time.monotonic()
                for alarm in [a for a in self._alarms if a.time <= now]:
                    self._alarms.remove(alarm)
                    alarm.rang = True
                    alarm.call()
                self._wakes = min((a.time for a in self._alarms), default=math.inf)


_watch = _Watch()


def _renew() -> None:
    """A forked process has none of the threads, and a lock that one of them held would stay locked."""
    global _watch  # noqa: PLW0603
    _watch = _Watch()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def after(seconds: float, call: Callable[[], object]) -> Iterator[Alarm]:
    """Call `call` in another thread if the block takes more than so many seconds. It must be short, and must not raise."""
    alarm = Alarm(time.monotonic() + seconds, call)
    watch = _watch
    try:
        watch.add(alarm)
        yield alarm
    finally:
        watch.remove(alarm)
