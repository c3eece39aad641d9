"""Makes threads and locks new in a forked process. It has no thread of its parent, and a lock that one held would stay locked."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """Something with threads or locks."""

    def renew(self) -> None:
        """Make them new. Called in a forked process, before anything else runs there."""


_known: WeakSet[Renewable] = WeakSet()


def renew_in_forks(one: Renewable) -> None:
    """Have `one.renew` called in each forked process from now on, as long as `one` exists."""
    _known.add(one)


def _renew() -> None:
    for one in tuple(_known):
        one.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
