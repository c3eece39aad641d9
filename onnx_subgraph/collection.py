"""Fewer runs of Python's garbage collector during work that makes many objects and no garbage."""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 200_000
"""New objects between two garbage collections; Python's default is 700."""
ROOM = 1_000_000
"""New blocks of memory, some 100 MB, between two collections of everything."""
PAUSE = 2.0
"""Seconds between two counts of the blocks in use, which take ten milliseconds where there are many."""
_counted = -math.inf  # when they were last counted
_kept = 0  # blocks that were in use after the last collection of everything
_is_frozen = False  # the program has called gc.freeze


@contextmanager
def seldom() -> Iterator[None]:
    """Within the block garbage collections are rarer: starting makes a million objects that all stay."""
    before = gc.get_threshold()
    gc.set_threshold(SELDOM, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def uncollected() -> Iterator[None]:
    """Within the block the garbage collector is off: a model is one large cycle, and each collection would traverse all of it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not _has_frozen():
                gc.freeze()  # the new objects count as old, so that the collector does not traverse them all now
                gc.unfreeze()
            gc.enable()


def _has_frozen() -> bool:
    """Whether the program keeps frozen objects. Python counts them one by one, so it is asked no more after the first of them."""
    global _is_frozen  # noqa: PLW0603
    _is_frozen = _is_frozen or gc.get_freeze_count() > 0
    return _is_frozen


def collect_if_due() -> None:
    """Collect everything if memory has grown much since this was last done: by `ROOM`, and by half.

    For the moment before a model is loaded, when earlier ones may be unused. Python itself would collect them almost never: it
    waits until enough young objects have grown old, and after `uncollected` all are old at once.
    """
    global _counted, _kept  # noqa: PLW0603
    now = time.monotonic()
    if now - _counted < PAUSE:
        return
    _counted = now
    used = sys.getallocatedblocks()
    if not _kept:
        _kept = used
    elif used - _kept > max(ROOM, _kept // 2):
        gc.collect()
        _kept = sys.getallocatedblocks()
