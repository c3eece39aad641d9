"""What special schedules cost and gain, and whether one more pays: rent or buy.

Running the general model is rent, preparing a schedule is the price. A signature is worth its schedule when what it has cost more
than it would have with one is as much as preparing takes: whatever comes after, no more than twice the best possible is spent.
(Karlin, Manasse, Rudolph, Sleator: Competitive snoopy caching, Algorithmica 3, 1988.)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from statistics import median

ENOUGH = 2
"""Schedules that are not faster, after which no more are prepared for nothing."""
WORTH = 0.95
"""A schedule has to take less than this of the general model's time: a gain that a trial can't tell from none is none."""
PAIRS, SECONDS = (3, 20), 0.25
"""Runs of each in a trial, at least and at most: as many as fit into so many seconds. The program wants its processor back."""


def timed(special: Callable[[], object], general: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """The time of a schedule over that of the general model, run in turn: the median of the pairs. Both have run before."""
    ratios: list[float] = []
    order, draws, begun = [special, general], Random(0), clock()
    while len(ratios) < PAIRS[0] or (len(ratios) < PAIRS[1] and clock() - begun < SECONDS):
        draws.shuffle(order)
        seconds = {}
        for run in order:
            started = clock()
            run()
            seconds[run] = clock() - started
        ratios.append(seconds[special] / max(seconds[general], 1e-9))
    return median(ratios)


class Account:
    """The costs and gains of the schedules of one session. free: so many are prepared without asking whether they pay."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.instead = 1.0
        """The time of what runs a signature without a schedule of its own, over the general model's."""
        self._seconds: list[float] = []
        self._ratios: list[float] = []

    def prepared(self, seconds: float, ratio: float | None) -> None:
        """A schedule was prepared, in so many seconds. ratio: of its time to the general model's; None for none that runs."""
        self._seconds.append(seconds)
        if ratio is not None:
            self._ratios.append(ratio if ratio <= WORTH else max(ratio, 1.0))

    @property
    def price(self) -> float:
        """The seconds that preparing takes."""
        return median(self._seconds) if self._seconds else 0.0

    @property
    def gain(self) -> float:
        """The share of the time of a run that a schedule saves; below zero where it costs time."""
        return 1.0 - median(self._ratios) / self.instead if self._ratios else 0.0

    def pays(self, rent: float) -> bool:
        """Whether a signature that ran for `rent` seconds without its own schedule is worth one."""
        if len(self._seconds) < self.free and not (len(self._ratios) >= ENOUGH and self.gain <= 0.0):
            return True
        return rent * self.gain >= self.price > 0.0
