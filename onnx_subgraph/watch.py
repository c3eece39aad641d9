"""Calls that come after a time, unless the work ends before; all in one thread.

Most work ends long before its time, and a `threading.Timer` would start a thread for each run of a model.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from onnx_subgraph.deadline import start
from onnx_subgraph.forks import renew_in_forks


@dataclass(eq=False, slots=True)
class Alarm:
    """A call at a time, in terms of `time.monotonic`. rang: whether the time has come."""

    time: float
    call: Callable[[], object]
    rang: bool = False


class _Watch:
    """The alarms of a process, and the thread that waits for the first of them."""

    def __init__(self) -> None:
        self.renew()
        renew_in_forks(self)

    def renew(self) -> None:
        """Begin without alarms, as in a forked process."""
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


@contextmanager
def after(seconds: float, call: Callable[[], object]) -> Iterator[Alarm]:
    """Call `call` in another thread if the block takes more than so many seconds. It must be short, and must not raise."""
    alarm = Alarm(time.monotonic() + seconds, call)
    try:
        _watch.add(alarm)
        yield alarm
    finally:
        _watch.remove(alarm)
