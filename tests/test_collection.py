"""Python's garbage collector is as it was after the work that it was kept out of, however that ended."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from onnx_subgraph.collection import SELDOM, seldom, uncollected


@pytest.mark.parametrize("kept_out", [seldom, uncollected])
def test_the_collector_is_as_it_was(kept_out: Callable[[], AbstractContextManager[None]]) -> None:
    before = gc.isenabled(), gc.get_threshold()
    with pytest.raises(ValueError, match="work"), kept_out():
        assert (gc.isenabled(), gc.get_threshold()) != before
        raise ValueError("work")
    assert (gc.isenabled(), gc.get_threshold()) == before


def test_it_looks_seldom_and_still_finds_garbage() -> None:
    """Cycles of a program that runs long are freed: there are just more of them at a time."""
    with seldom():
        before = gc.get_stats()[0]["collections"]
        kept = [[] for _ in range(2 * SELDOM + 2)]
        assert gc.get_stats()[0]["collections"] - before in (2, 3)
    assert kept
