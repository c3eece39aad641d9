"""Python's garbage collector, kept out of work that makes many objects and no garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 50_000
"""Objects made since the last search for cyclic garbage at which a program searches anew; Python's own number is 700."""


@contextmanager
def seldom() -> Iterator[None]:
    """Within the block cyclic garbage is looked for less often: starting makes a million objects that all stay."""
    before = gc.get_threshold()
    gc.set_threshold(SELDOM, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def uncollected() -> Iterator[None]:
    """Within the block no cyclic garbage is looked for: a model is one large cycle, and walked whole every time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():
                gc.freeze()  # what was made counts as old, so that the collector does not walk it all at once now
                gc.unfreeze()
            gc.enable()
