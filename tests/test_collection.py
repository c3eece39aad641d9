"""Python's garbage collector is restored after work that changes its settings, however that work ends."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from onnx_subgraph.collection import SELDOM, seldom, uncollected


@pytest.fixture(autouse=True)
def collecting() -> None:
    """A thread that another test abandoned at its time limit may have left the collector off."""
    gc.enable()


@pytest.mark.parametrize("kept_out", [seldom, uncollected])
def test_the_settings_of_the_collector_are_restored(kept_out: Callable[[], AbstractContextManager[None]]) -> None:
    before = gc.isenabled(), gc.get_threshold()
    with pytest.raises(ValueError, match="work"), kept_out():
        assert (gc.isenabled(), gc.get_threshold()) != before
        raise ValueError("work")
    assert (gc.isenabled(), gc.get_threshold()) == before


def test_garbage_is_collected_seldom_but_still_collected() -> None:
    """Cycles in a long-running program are freed, in fewer and larger collections."""
    with seldom():
        before = gc.get_stats()[0]["collections"]
        kept = [[] for _ in range(2 * SELDOM + 2)]
        assert gc.get_stats()[0]["collections"] - before in (2, 3)
    assert kept
