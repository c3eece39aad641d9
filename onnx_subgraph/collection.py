"""Python's garbage collector, kept out of work that makes many objects and no garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
