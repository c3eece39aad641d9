"""A cache of expensive objects: bounded, least recently used, and nothing is made twice at the same time.

Threads that want the same object wait for the one that makes it; threads that want different objects don't wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Generic, TypeVar

from onnx_subgraph.forks import renew_in_forks

Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Usage:
    """Counters of a cache: hits, misses and evictions, and its current size."""

    hits: int
    misses: int
    evictions: int
    size: int


class Cache(Generic[Key, Made]):
    """At most `bound` objects by key. A failed object is not kept; all that wait for it get the error."""

    def __init__(self, bound: int) -> None:
        if bound < 1:
            raise ValueError(f"a cache holds one thing at least, not {bound}")
        self._bound = bound
        self._held: OrderedDict[Key, Future[Made]] = OrderedDict()
        self._hits = self._misses = self._evictions = 0
        self.renew()
        renew_in_forks(self)

    def renew(self) -> None:
        """In a forked process: what is being made is left to its parent, and made again when it is asked for."""
        self._lock = Lock()
        for key in [key for key, future in self._held.items() if not future.done()]:
            del self._held[key]

    def get(self, key: Key, make: Callable[[], Made], *, aside: bool = False) -> Future[Made]:
        """The future of the object under `key`: made now by this thread, by another thread that has started, or `aside`.

        aside: make it in a new thread, and return at once.
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
        """The object under `key` if it is ready, counted as a hit; else None, which counts as nothing."""
        with self._lock:
            future = self._held.get(key)
            if future is None or not future.done():  # a failed one is removed before it is done
                return None
            self._hits += 1
            self._held.move_to_end(key)
            return future.result()

    def drop(self, key: Key, made: Made) -> None:
        """Remove the object under `key` if it is still `made`."""
        with self._lock:
            future = self._held.get(key)
            if future is not None and future.done() and future.result() is made:
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
        """The counters so far."""
        with self._lock:
            return Usage(self._hits, self._misses, self._evictions, len(self._held))
