"""The policy for schedules: new shapes run at once, repeated ones are prepared, and only schedules that pay are used."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph.errors import OnnxSubgraphWarning, UsageError
from onnx_subgraph.session import paying
from onnx_subgraph.session.digest import Memory
from onnx_subgraph.session.paying import Account, Trials, timed
from onnx_subgraph.session.record import Limits
from onnx_subgraph.session.schedule import EVERY, Feeds, Schedule, Signature, signature_of
from onnx_subgraph.session.schedules import Schedules
from onnx_subgraph.session.special import WORKERS
from tests.children import child_of, succeeds


class Answers:
    """A session without results."""

    def run(self, *_: object) -> list[object]:
        return []


@dataclass
class Maker:
    """Makes empty schedules. price: seconds to prepare one. fails: exceptions to raise, one for each element.

    nbytes: of each schedule. given: the feeds of each request.
    """

    every: int | None = None
    price: float = 0.0
    fails: list[Exception] = field(default_factory=list)
    made: list[Signature] = field(default_factory=list)
    nbytes: int = 0
    given: list[Feeds] = field(default_factory=list)

    def __call__(self, signature: Signature, feeds: Feeds, stop: threading.Event, *, urgent: bool) -> Schedule:
        self.made.append(signature)
        self.given.append(feeds)
        if self.fails:
            raise self.fails.pop()
        time.sleep(self.price)
        return Schedule(signature, Answers(), None, self.nbytes)


@pytest.fixture(autouse=True)
def ratios(monkeypatch: pytest.MonkeyPatch) -> dict[bool, float]:
    """Time of a schedule divided by that of the dynamic model: of one for all sizes (True), and of the others."""
    given = {False: 0.5, True: 0.75}

    def timed(*_: object) -> float:
        return given[kinds[0]]

    kinds = [False]
    real = Trials.tried

    def tried(self: Trials, schedule: Schedule, *others: Any) -> str:
        kinds[0] = schedule.signature == EVERY
        return real(self, schedule, *others)

    monkeypatch.setattr(paying, "timed", timed)
    monkeypatch.setattr(Trials, "tried", tried)
    return given


def feeds(length: int) -> Feeds:
    return {"x": np.zeros((1, length), np.float32)}


def run(mine: Schedules, length: int, seconds: float) -> Schedule | None:
    """One run of a session that took this time."""
    signature = signature_of(feeds(length))
    assert signature is not None
    found = mine.find(signature)
    mine.ran(signature, feeds(length), seconds, found)
    assert mine.wait(10)
    return found


@pytest.fixture
def opened() -> Iterator[Callable[..., Schedules]]:
    made: list[Schedules] = []

    def opening(
        maker: Maker, clock: Callable[[], float] = time.monotonic, memory: Memory | None = None, **limits: int
    ) -> Schedules:
        made.append(Schedules(maker, Limits(**limits), Trials(lambda feeds: None, memory, "a model"), clock))
        return made[-1]

    yield opening
    for one in made:
        one.close()


def states(mine: Schedules) -> dict[object, str]:
    return {EVERY if s.signature == EVERY else s.signature[0][2][1]: s.state for s in mine.stories()}


def test_random_lengths_prepare_only_up_to_the_limit_with_one_warning(opened: Callable[..., Schedules]) -> None:
    maker = Maker(price=0.02)
    mine = opened(maker, schedules=3)
    with pytest.warns(OnnxSubgraphWarning, match=r"preparing one takes about 0\.\d+ s, and a run with it takes 0.50") as told:
        for length in range(1, 200):
            assert run(mine, length, 0.001) is None
    assert len(maker.made) == 3 and len(told) == 1


def test_schedules_that_need_too_much_memory_together_are_evicted(opened: Callable[..., Schedules]) -> None:
    mine = opened(Maker(nbytes=100), nbytes=250)
    for length in (1, 2, 3):
        run(mine, length, 0.01)
    assert states(mine) == {1: "evicted", 2: "ready", 3: "ready"}
    assert "over 250 bytes" in mine.stories()[0].reason


def test_the_feeds_of_a_request_are_a_copy(opened: Callable[..., Schedules]) -> None:
    """The program may write the next feeds into its arrays while the schedule is prepared."""
    maker, given_feeds = Maker(), feeds(1)
    mine = opened(maker)
    signature = signature_of(given_feeds)
    assert signature is not None
    mine.want(signature, given_feeds)
    assert mine.wait(10) and not np.may_share_memory(maker.given[0]["x"], given_feeds["x"])


def test_a_schedule_that_fails_after_its_eviction_leaves_the_next_one(opened: Callable[..., Schedules]) -> None:
    mine = opened(Maker(), schedules=1)
    first, second = (signature_of(feeds(length)) for length in (1, 2))
    assert first is not None and second is not None
    held = []
    for signature, length in ((first, 1), (second, 2), (first, 1)):
        mine.want(signature, feeds(length))
        assert mine.wait(10)
        held.append(mine.get(signature))
    old, _, new = held
    assert old is not None and new is not None and old is not new
    mine.refuse(old, "it failed", tell=False)
    assert mine.get(first) is new
    mine.refuse(new, "it failed", tell=False)
    assert mine.get(first) is None


def test_a_repeated_length_is_prepared_when_its_runs_have_lost_as_much(opened: Callable[..., Schedules]) -> None:
    """Each run of 10 ms loses 5 ms, and preparing takes at least 20 ms."""
    maker = Maker(price=0.02)
    mine = opened(maker, schedules=2)
    run(mine, 1, 0.01), run(mine, 2, 0.01)
    with pytest.warns(OnnxSubgraphWarning, match="only where they pay"):
        runs = next(n for n in range(1, 100) if run(mine, 3, 0.01) is not None)
    assert 5 <= runs <= 12
    assert states(mine) == {1: "evicted", 2: "ready", 3: "ready"}


@given(price=st.floats(0.1, 10), ratio=st.floats(0.05, 0.95), runs=st.lists(st.floats(0.001, 1), min_size=1, max_size=60))
def test_the_loss_is_at_most_twice_that_of_the_best_decision(price: float, ratio: float, runs: list[float]) -> None:
    """The ski-rental bound, up to the one run during which the decision is made."""
    account = Account(free=1)
    account.prepared(price, ratio)
    rent = lost = 0.0
    for seconds in runs:
        if account.pays(rent):
            lost += price
            break
        rent += seconds
        lost += seconds * (1 - ratio)
    best = min(price, sum(runs) * (1 - ratio))
    assert lost <= 2 * best + max(runs)


def test_a_schedule_with_a_negligible_gain_is_not_used(ratios: dict[bool, float], opened: Callable[..., Schedules]) -> None:
    """So its gain is no reason to prepare more schedules."""
    ratios[False] = 0.97
    maker = Maker(price=0.001)
    mine = opened(maker, schedules=8)
    with pytest.warns(OnnxSubgraphWarning, match="only where they pay"):
        for length in range(1, 30):
            assert run(mine, length, 5.0) is None
    assert len(maker.made) == 2


def test_a_slower_schedule_is_not_used_and_no_more_are_prepared(
    ratios: dict[bool, float], opened: Callable[..., Schedules]
) -> None:
    ratios[False] = 1.2
    maker = Maker()
    mine = opened(maker, schedules=8)
    with pytest.warns(OnnxSubgraphWarning, match="only where they pay"):
        for length in (1, 2, 3, 3, 3, 1):
            assert run(mine, length, 5.0) is None
    assert [story.reason for story in mine.stories()][:1] == ["it takes 1.20 of the general model's time"]
    assert states(mine) == {1: "refused", 2: "refused", 3: "seen"}
    signature = signature_of(feeds(5))
    assert signature is not None
    mine.want(signature, feeds(5))
    assert mine.wait(10) and states(mine)[5] == "ready", "whoever asks for one gets it"


def test_a_backend_with_dynamic_shapes_compiles_once_at_the_third_length(opened: Callable[..., Schedules]) -> None:
    maker = Maker(every=3, price=0.01)
    mine = opened(maker)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        served = [run(mine, length, 0.001) for length in range(1, 60)]
    assert len(maker.made) == 3 and maker.made[2] == EVERY
    assert all(schedule is not None and schedule.signature == EVERY for schedule in served[3:])
    other = signature_of({"x": np.zeros((1, 1, 7), np.float32)})
    assert other is not None and mine.find(other) is None, "another rank is another pattern"
    runs = next(n for n in range(1, 100) if (found := run(mine, 9, 0.01)) is not None and found.signature != EVERY)
    assert runs > 3, "its own saves a third of what the one for all sizes takes"


def test_where_nothing_depends_on_sizes_the_first_compilation_serves_all(opened: Callable[..., Schedules]) -> None:
    maker = Maker(every=1)
    mine = opened(maker)
    assert run(mine, 1, 0.001) is None and run(mine, 2, 0.001) is not None
    assert maker.made == [EVERY]


def test_a_failure_is_tried_again_after_a_growing_time(opened: Callable[..., Schedules]) -> None:
    now = [0.0]
    maker = Maker(fails=[RuntimeError("down"), RuntimeError("down")])
    mine = opened(maker, lambda: now[0])
    with pytest.warns(OnnxSubgraphWarning, match=r"no schedule for x=float32\[1, 4\]: down"):
        run(mine, 4, 0.001)
    for seconds, tries in ((299, 1), (301, 2), (900, 2), (902, 3)):
        now[0] = seconds
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(mine, 4, 0.001)
        assert len(maker.made) == tries, seconds
    assert states(mine) == {4: "ready"}
    schedule = run(mine, 4, 0.001)
    assert schedule is not None
    mine.refuse(schedule, "the backend did not run it", tell=False)
    assert run(mine, 4, 0.001) is None and states(mine) == {4: "refused"}


def test_a_warning_that_is_an_error_ends_no_preparing(opened: Callable[..., Schedules], monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the thread that raises it, and another thread continues."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    maker = Maker(price=0.02, fails=[RuntimeError("one"), RuntimeError("two")])
    mine = opened(maker, schedules=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for length in range(1, 9):
            run(mine, length, 0.001)
        assert states(mine)[1] == "refused" and states(mine)[3] == "ready" and len(maker.made) == 4
        mine.close()
        for thread in threading.enumerate():
            if thread.name == "onnx-subgraph schedules":
                thread.join(10)


def test_measurements_are_kept_after_a_restart(
    opened: Callable[..., Schedules], ratios: dict[bool, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule that did not pay is not prepared for a day, and one that did is not timed again.

    A caller who waits for a schedule gets it.
    """
    memory, maker = Memory(tmp_path), Maker()
    ratios[False] = 1.2
    run(opened(maker, memory=memory), 1, 0.001)
    ratios[False] = 0.5
    run(opened(maker, memory=memory), 2, 0.001)
    assert len(maker.made) == 2
    ratios[False] = 0.9  # for everything timed from here on
    again = opened(maker, memory=memory)
    for length in (1, 2):
        run(again, length, 0.001)
    assert states(again) == {1: "refused", 2: "ready"}
    assert {s.signature[0][2][1]: s.ratio for s in again.stories()} == {1: 1.2, 2: 0.5}
    assert next(s.reason for s in again.stories()) == "it took 1.20 of the general model's time when it was last timed"
    assert len(maker.made) == 3
    signature = signature_of(feeds(1))
    assert signature is not None
    again.want(signature, feeds(1))
    assert again.wait(10) and again.get(signature) is not None
    now = time.time()
    monkeypatch.setattr(paying.time, "time", lambda: now + paying.REMEMBERED + 1)
    later = opened(maker, memory=memory)
    run(later, 2, 0.001)
    assert [s.ratio for s in later.stories()] == [0.9]


def test_slow_runs_are_timed_a_few_times_and_fast_ones_more_often() -> None:
    now = [0.0]

    def taking(seconds: float) -> Callable[[], None]:
        def run() -> None:
            now[0] += seconds
            runs.append(seconds)

        return run

    for slow, quick, many in ((2.0, 1.0, 1), (2.0, 1.9, 3), (0.002, 0.001, 20)):
        runs: list[float] = []
        assert timed(taking(slow), taking(quick), lambda: now[0]) == pytest.approx(slow / quick)
        assert runs.count(slow) == runs.count(quick) == many
        assert many == 1 or runs != [slow, quick] * many, "neither is always first"


@pytest.mark.parametrize("name", ["schedules", "nbytes", "after", "every"])
def test_a_negative_limit_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"the limit {name} is -1"):
        Limits(**{name: -1})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("price", [0.0, 0.5], ids=["idle", "preparing"])
def test_a_forked_process_prepares_schedules_of_its_own(price: float, opened: Callable[..., Schedules]) -> None:
    """It has no thread of its parent's, and may be forked while that one prepares, holds a lock and has its turn."""
    mine = opened(Maker(price=price))
    signatures = {length: signature_of(feeds(length)) or () for length in (1, 2)}
    mine.ran(signatures[1], feeds(1), 0.01, None)
    if not price:
        assert mine.wait(10)

    def work() -> bool:
        for length, signature in signatures.items():
            mine.want(signature, feeds(length))
        done = mine.wait(10) and WORKERS.free.acquire(blocking=False)
        return done and states(mine) == {1: "ready", 2: "ready"}

    with mine._changed, WORKERS.free:
        child = child_of(work)
    assert succeeds(child, 20)
    assert mine.wait(10) and states(mine) == {1: "ready"}
