"""Calls with a deadline, in threads that serve one call after the other.

Python can't end a thread. A thread that misses its deadline is abandoned: it ends when its call returns, and serves no other
call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from onnx_subgraph.forks import renew_in_forks

Result = TypeVar("Result")

IDLE = 4
"""Idle threads to keep. More are made while more calls run at a time."""


class _Thread:
    """A thread that runs the calls it is given. It ends after the first call that missed its deadline."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        threading.Thread(target=self._serve, name="onnx-subgraph deadline", daemon=True).start()

    def give(self, call: Callable[[], Result]) -> Future[Result]:
        future: Future[Result] = Future()
        self._calls.put((call, future))
        return future

    def end(self) -> None:
        """End after the current call."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (given := self._calls.get()) is not None:
            call, future = given
            try:
                future.set_result(call())
            except BaseException as error:  # it belongs to the caller
                future.set_exception(error)
            del given, call, future  # releases what they hold before the next call


class _Threads:
    """The threads of this process that wait for a call."""

    def __init__(self) -> None:
        self.renew()
        renew_in_forks(self)

    def renew(self) -> None:
        """A forked process has none."""
        self.idle: deque[_Thread] = deque()


_threads = _Threads()


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """The result of `call`. Raises what it raises, and TimeoutError after `seconds`."""
    try:
        thread = _threads.idle.pop()
    except IndexError:
        thread = _Thread()
    future = thread.give(call)
    try:
        result = future.result(seconds)
    except BaseException as error:  # an exception of `call`, the deadline, or an interrupt
        thread.end()
        if isinstance(error, TimeoutError) and not future.done():
            raise TimeoutError(f"it takes more than {seconds:g} s") from None
        raise
    if len(_threads.idle) < IDLE:
        _threads.idle.append(thread)
    else:
        thread.end()
    return result
