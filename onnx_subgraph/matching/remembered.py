"""remembered(): a function that is asked once for each argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class _Remembered(dict[K, V]):
    """What a function gave for each argument; a dictionary, whose look-up is quicker than a call of `functools.cache`."""

    def __init__(self, function: Callable[[K], V]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: K) -> V:
        value = self[key] = self._function(key)
        return value


def remembered(function: Callable[[K], V]) -> Callable[[K], V]:
    """`function`, which must always give the same for the same, asked once for each argument."""
    return _Remembered(function).__getitem__
