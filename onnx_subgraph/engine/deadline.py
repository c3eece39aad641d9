"""Calls with a deadline, each in a thread that serves one after the other.

Python can't end a thread. One that is late is left alone: it ends itself when its call returns, and serves nobody again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")

IDLE = 4
"""Threads that wait for the next call. More are made while more calls run at a time."""


class _Thread:
    """A thread that makes the calls it is given. It ends with the first call that nobody waits for any more."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        threading.Thread(target=self._serve, name="onnx-subgraph deadline", daemon=True).start()

    def give(self, call: Callable[[], Result]) -> Future[Result]:
        future: Future[Result] = Future()
        self._calls.put((call, future))
        return future

    def end(self) -> None:
        """End after the call that it is at."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (given := self._calls.get()) is not None:
            call, future = given
            try:
                future.set_result(call())
            except BaseException as error:  # it belongs to who waits
                future.set_exception(error)
            del given, call, future  # what they hold is not held until the next call


_idle: deque[_Thread] = deque()


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """What `call` returns. Raises what it raises, and TimeoutError after `seconds`."""
    try:
        thread = _idle.pop()
    except IndexError:
        thread = _Thread()
    future = thread.give(call)
    try:
        result = future.result(seconds)
    except BaseException as error:  # what `call` raised, the deadline, an interrupt
        thread.end()
        if isinstance(error, TimeoutError) and not future.done():
            raise TimeoutError(f"it takes more than {seconds:g} s") from None
        raise
    if len(_idle) < IDLE:
        _idle.append(thread)
    else:
        thread.end()
    return result
