"""The costs and gains of schedules, and whether one more pays: the ski rental problem.

Running the general model is rent; preparing a schedule is the price. A signature gets its schedule when the excess cost of its
runs equals the cost of preparing. The total is then at most twice the optimum, whatever comes after. (Karlin, Manasse, Rudolph,
Sleator: Competitive snoopy caching, Algorithmica 3, 1988.)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from random import Random
from statistics import median

from onnx_subgraph.session.digest import Memory, digest_of
from onnx_subgraph.session.ingredients import machine
from onnx_subgraph.session.record import Record
from onnx_subgraph.session.schedule import EVERY, Feeds, Schedule, Signature, pattern_of, signature_of

ENOUGH = 2
"""Schedules that are not faster, after which one is prepared only if it pays."""
WORTH = 0.95
"""The most that a schedule may take of the general model's time: a trial can't distinguish a smaller gain from none."""
PAIRS, SECONDS = (3, 20), 0.25
"""The least and most runs of each in a trial, and its seconds: the program needs the processor."""
CLEAR = (0.8, 1.15)
"""A ratio outside this range is clear after one pair that took more than `SECONDS`."""
REMEMBERED = 24 * 3600.0
"""Seconds for which the ratio of a signature is valid, across restarts of the program."""


def timed(special: Callable[[], object], general: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """The schedule's time over the general model's, run in turn: the median of the pairs. Both have run before."""
    ratios: list[float] = []
    order, draws, begun = [special, general], Random(0), clock()
    while not ratios or _goes_on(ratios, clock() - begun):
        draws.shuffle(order)
        seconds = {}
        for run in order:
            started = clock()
            run()
            seconds[run] = clock() - started
        ratios.append(seconds[special] / max(seconds[general], 1e-9))
    return median(ratios)


def _goes_on(ratios: list[float], seconds: float) -> bool:
    if seconds < SECONDS:
        return len(ratios) < PAIRS[1]
    return len(ratios) < PAIRS[0] and CLEAR[0] < median(ratios) < CLEAR[1]


class Trials:
    """Trials of schedules against the general model. The results are stored on disk, so that the next start need not repeat them.

    general: runs feeds with the general model; None: nothing is timed. key: of the inputs of both models.
    """

    def __init__(self, general: Callable[[Feeds], object] | None, memory: Memory | None = None, key: str = "") -> None:
        self._general, self._memory, self._key = general, memory or Memory(None), key

    def known(self, signature: Signature, feeds: Feeds, record: Record) -> str:
        """Why a schedule need not be made, from an earlier start; "" if unknown, or if somebody waits."""
        if self._general is None or record.urgent:
            return ""
        found = self._memory.recall("ratio", self._name(signature, feeds))
        try:
            ratio, seconds, until = (float(str(found[name])) for name in ("ratio", "seconds", "until"))
        except (KeyError, ValueError):
            return ""
        if time.time() > until:
            return ""
        record.ratio, record.seconds = ratio, seconds
        return f"it took {ratio:.2f} of the general model's time when it was last timed" if ratio > WORTH else ""

    def tried(self, schedule: Schedule, feeds: Feeds, record: Record) -> str:
        """Time a schedule, unless that was done; why it is not used, "" if it is, or if somebody waits for it."""
        if (general := self._general) is None or record.ratio:
            return ""
        schedule.answer(feeds)
        record.ratio = timed(lambda: schedule.answer(feeds), lambda: general(feeds))
        note: dict[str, object] = {"ratio": record.ratio, "seconds": record.seconds, "until": time.time() + REMEMBERED}
        self._memory.remember("ratio", self._name(schedule.signature, feeds), note)
        return f"it takes {record.ratio:.2f} of the general model's time" if record.ratio > WORTH and not record.urgent else ""

    def _name(self, signature: Signature, feeds: Feeds) -> str:
        """The key of a ratio: the models, the sizes, the processor and its cores."""
        of = pattern_of(signature_of(feeds) or ()) if signature == EVERY else signature
        return digest_of([self._key, str(signature == EVERY), repr(of), *machine(), str(_cores())])


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


NONE = Trials(None)
"""No trials: every schedule is used."""


class Account:
    """The costs and gains of the schedules of one session. free: how many are prepared without asking whether they pay."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.instead = 1.0
        """The time of a signature without its own schedule, over the general model's."""
        self._seconds: list[float] = []
        self._ratios: list[float] = []

    def prepared(self, seconds: float, ratio: float | None) -> None:
        """Record a preparation of so many seconds. ratio: of its time to the general model's; None if it does not run."""
        self._seconds.append(seconds)
        if ratio is not None:
            self._ratios.append(ratio if ratio <= WORTH else max(ratio, 1.0))

    @property
    def price(self) -> float:
        """The expected seconds of a preparation."""
        return median(self._seconds) if self._seconds else 0.0

    @property
    def gain(self) -> float:
        """The share of a run's time that a schedule saves; negative if it costs time."""
        return 1.0 - median(self._ratios) / self.instead if self._ratios else 0.0

    def pays(self, rent: float) -> bool:
        """Whether a signature that ran for `rent` seconds without its own schedule should get one."""
        if len(self._seconds) < self.free and not (len(self._ratios) >= ENOUGH and self.gain <= 0.0):
            return True
        return rent * self.gain >= self.price > 0.0
