"""Python's garbage collector is restored after work that changes its settings, however that work ends."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path

import pytest

from onnx_subgraph import collection
from onnx_subgraph.collection import SELDOM, collect_if_due, seldom, uncollected
from onnx_subgraph.files.models import load

SAMPLE = Path(__file__).parents[1] / "sample_models" / "bert_torchscript.onnx"


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

    def collections() -> int:
        return sum(generation["collections"] for generation in gc.get_stats())

    with seldom():
        before = collections()
        kept = [[] for _ in range(2 * SELDOM + 2)]
        assert collections() - before in (2, 3)
    assert kept


class Cycle:
    """What reference counting alone does not free, as a model."""

    def __init__(self) -> None:
        self.itself, self.held = self, [[] for _ in range(1000)]


@pytest.fixture
def growing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory seems to grow whenever somebody asks."""
    used = count(1)
    monkeypatch.setattr(collection.sys, "getallocatedblocks", lambda: next(used) * collection.ROOM)
    monkeypatch.setattr(collection, "_kept", 0)
    monkeypatch.setattr(collection, "PAUSE", 0.0)


@pytest.mark.usefixtures("growing")
def test_models_that_are_no_longer_used_are_freed() -> None:
    """A process that worked on hundreds of models kept all of them."""
    seen = list[weakref.ref[Cycle]]()
    for _ in range(100):
        collect_if_due()
        with uncollected():
            seen.append(weakref.ref(Cycle()))
    assert sum(model() is not None for model in seen) < 50, "after half as much memory again they are freed"


def test_memory_is_measured_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python counts its blocks one by one."""
    asked: list[int] = []
    monkeypatch.setattr(collection.sys, "getallocatedblocks", lambda: asked.append(1) or 1)
    monkeypatch.setattr(collection, "PAUSE", 600.0)
    monkeypatch.setattr(collection, "_counted", -math.inf)
    for _ in range(100):
        collect_if_due()
    assert len(asked) == 1


def test_frozen_objects_of_the_program_are_counted_once_and_stay_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python counts them one by one, at each call."""
    asked = []
    monkeypatch.setattr(collection, "_is_frozen", False)
    monkeypatch.setattr(collection.gc, "get_freeze_count", lambda: asked.append(1) or 7)
    monkeypatch.setattr(collection.gc, "unfreeze", lambda: pytest.fail("the program's own objects are no longer frozen"))
    for _ in range(3):
        with uncollected():
            pass
    assert len(asked) == 1


@pytest.mark.usefixtures("growing")
def test_loading_a_model_is_the_moment_for_it() -> None:
    before = gc.get_stats()[2]["collections"]
    for _ in range(5):
        load(SAMPLE)
    assert gc.get_stats()[2]["collections"] > before
