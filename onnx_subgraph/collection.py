"""Fewer runs of Python's garbage collector during work that makes many objects and no garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 200_000
"""New objects between two garbage collections; Python's default is 700."""


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
            if not gc.get_freeze_count():
                gc.freeze()  # the new objects count as old, so that the collector does not traverse them all now
                gc.unfreeze()
            gc.enable()
