"""A cache of what is expensive to make: bounded, the least recently used goes, and nothing is made twice at the same time.

Several threads that want the same thing wait for the one that makes it; those that want different things don't wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a cache has done: how often it had what was wanted, made it, and let something go; and what it holds."""

    hits: int
    misses: int
    evictions: int
    size: int


class Cache(Generic[Key, Made]):
    """At most `bound` things by key. What fails to be made is not kept, and all that wait get the error."""

    def __init__(self, bound: int) -> None:
        if bound < 1:
            raise ValueError(f"a cache holds one thing at least, not {bound}")
        self._bound = bound
        self._lock = Lock()
        self._held: OrderedDict[Key, Future[Made]] = OrderedDict()
        self._hits = self._misses = self._evictions = 0

    def get(self, key: Key, make: Callable[[], Made], *, aside: bool = False) -> Future[Made]:
        """The thing under `key`, as it will be: made by this thread before it returns, by another one that is at it, or `aside`.

        aside: make it in a thread of its own, and return at once.
        """
        with self._lock:
            future = self._held.get(key)
            if future is not None:
                self._hits += 1
                self._held.move_to_end(key)
                return future
            self._misses += 1
            future = self._held[key] = Future()
            while len(self._held) > self._bound:
                self._held.popitem(last=False)
                self._evictions += 1
        if aside:
            Thread(target=self._make, args=(key, make, future), name="onnx-subgraph", daemon=True).start()
        else:
            self._make(key, make, future)
        return future

    def peek(self, key: Key) -> Made | None:
        """The thing under `key` where it is made already, counted as a hit; None else, which counts as nothing."""
        with self._lock:
            future = self._held.get(key)
            if future is None or not future.done() or future.exception() is not None:
                return None
            self._hits += 1
            self._held.move_to_end(key)
            return future.result()

    def drop(self, key: Key, made: Made) -> None:
        """Let go of what is under `key` if that is still `made`."""
        with self._lock:
            future = self._held.get(key)
            if future is not None and future.done() and future.exception() is None and future.result() is made:
                del self._held[key]

    def _make(self, key: Key, make: Callable[[], Made], future: Future[Made]) -> None:
        try:
            future.set_result(make())
        except BaseException as error:
            with self._lock:
                if self._held.get(key) is future:
                    del self._held[key]
            future.set_exception(error)

    @property
    def usage(self) -> Usage:
        """What was done so far."""
        with self._lock:
            return Usage(self._hits, self._misses, self._evictions, len(self._held))
