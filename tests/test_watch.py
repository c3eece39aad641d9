"""Laws of calls that come after a time."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue

import pytest

from onnx_subgraph import watch
from onnx_subgraph.watch import after
from tests.children import child_of, succeeds

LONG = 600.0
"""Seconds that no test waits for."""
SOON = 20.0
"""Seconds in which a call comes even on a slow machine."""


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "onnx-subgraph watch"]


def test_a_call_comes_where_the_work_takes_longer() -> None:
    came = threading.Event()
    with after(0.01, came.set) as alarm:
        assert came.wait(SOON)
    assert alarm.rang


def test_no_call_comes_where_the_work_ends_before() -> None:
    calls: list[int] = []
    for number in range(100):
        with after(0.001, lambda number=number: calls.append(number)) as alarm:  # type: ignore[misc]
            pass
        rang, count = alarm.rang, len(calls)
        assert rang is (number in calls)
    came = threading.Event()
    with after(0.01, came.set):
        assert came.wait(SOON)
    assert len(calls) == count, "calls of work that is over come no more"


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_each_call_comes_at_its_own_time(order: tuple[int, ...]) -> None:
    """Also one that is due before those that the thread waits for."""
    came: list[int] = []
    last = threading.Event()

    def call(number: int) -> None:
        came.append(number)
        if number == max(order):
            last.set()

    with after(LONG, partial(call, -1)), ExitStack() as waiting:
        for number in order:
            waiting.enter_context(after(0.05 + 0.05 * number, partial(call, number)))
        assert last.wait(SOON)
    assert came == [0, 1, 2]


def test_one_thread_waits_for_all() -> None:
    with after(LONG, list):
        before = threads()
        with after(LONG / 2, list), after(2 * LONG, list):
            assert threads() == before
    with after(LONG, list):
        assert threads() == before


def test_without_alarms_the_thread_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not look again and again."""
    waits = threading.Event()

    class Queue(SimpleQueue[None]):
        def get(self, block: bool = True, timeout: float | None = None) -> None:
            if timeout is None:
                waits.set()
            super().get(block, timeout)

    watching = watch._Watch()
    watching._earlier = Queue()
    monkeypatch.setattr(watch, "_watch", watching)
    with after(0.001, list):
        assert waits.wait(SOON)


def test_a_thread_whose_start_was_interrupted_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    watching = watch._Watch()
    watching._thread = threading.Thread()
    monkeypatch.setattr(watch, "_watch", watching)
    came = threading.Event()
    with after(0.01, came.set):
        assert came.wait(SOON)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_has_its_own_thread() -> None:
    """Also if it was forked while another thread held the lock."""

    def work() -> bool:
        came = threading.Event()
        with after(0.01, came.set):
            return came.wait(SOON)

    with after(LONG, list), watch._watch._lock:
        child = child_of(work)
    assert succeeds(child, 2 * SOON)
