"""Idle threads of numpy's OpenBLAS sleep soon in our processes, and as the user wants in the programs that we run."""

from __future__ import annotations

import os
from collections.abc import Mapping

IDLE = "OPENBLAS_THREAD_TIMEOUT"
"""The power of two of the processor cycles after which an idle thread sleeps. Until then it spins."""
SOON = "20"
"""A third of a millisecond. OpenBLAS's 26 lets each of its threads spin for some 20 ms after the import of numpy."""
_ours: set[str] = set()
"""The variables that this module has set."""


def sleep_soon() -> None:
    """From now on idle threads sleep soon, unless the user has set when. Call it before numpy is imported."""
    if IDLE not in os.environ:
        os.environ[IDLE] = SOON
        _ours.add(IDLE)


def of_user(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what `sleep_soon` has set."""
    return {name: value for name, value in environment.items() if name not in _ours}
