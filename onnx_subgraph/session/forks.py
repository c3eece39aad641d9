"""What a forked process must make new: it has none of the threads, and a lock that one of them held would stay locked."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """Has threads or locks."""

    def renew(self) -> None:
        """Make them new, in a forked process."""


_known: WeakSet[Renewable] = WeakSet()


def renew_in_forks(one: Renewable) -> None:
    """From now on `one` is renewed in each forked process, as long as it exists."""
    _known.add(one)


def _renew() -> None:
    for one in tuple(_known):
        one.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
