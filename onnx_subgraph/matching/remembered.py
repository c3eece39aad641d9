"""remembered(): cache a function of one argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class _Remembered(dict[K, V]):
    """A cache for the results of a function: a dictionary, because its look-up is faster than a call of `functools.cache`."""

    def __init__(self, function: Callable[[K], V]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: K) -> V:
        value = self[key] = self._function(key)
        return value


def remembered(function: Callable[[K], V]) -> Callable[[K], V]:
    """A cached version of `function`, which must be deterministic."""
    return _Remembered(function).__getitem__
