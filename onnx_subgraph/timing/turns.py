"""Time several functions in turn, so that a disturbance of the machine affects all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from onnx_subgraph.deadline import check

BLOCKS = 5
"""The runs are divided into this many parts; the ratios of the parts give the spread."""
LONG = 1.0
"""A run of more seconds than this is long: what the caches hold before it does not matter."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of times.

    The runs are divided into five parts, each with a ratio of medians: the median, the lowest and the highest.
    """

    ratio: float
    least: float
    most: float


def take_turns(
    ways: Mapping[str, Callable[[], object]], budget: float, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Time each of `ways` in turn until the budget is spent. Returns the seconds of each run.

    budget: seconds of wall time; each way is timed at least ten times in any case, or five times if a run is `LONG`.
    clock: measures the seconds of a run. A way runs twice in its turn, and only the second run counts, because during the first
    the caches hold the data of another way. A long run counts at once. One run does not fill a large cache: a way that runs last
    in a round and first in the next one has an advantage. So the order of every round is random, with a fixed seed.
    Raises TimeIsUp when the deadline has passed.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    ends, order, draws = time.perf_counter() + budget, list(ways), Random(0)

    def seconds(name: str) -> float:
        begun = clock()
        ways[name]()
        return clock() - begun

    while time.perf_counter() < ends or min(map(len, times.values())) < _least(times):
        draws.shuffle(order)
        for name in order:
            check()
            first = seconds(name)
            times[name].append(first if first > LONG else seconds(name))
    return times


def _least(times: Mapping[str, Sequence[float]]) -> int:
    """How often each way is timed at least."""
    return BLOCKS if any(taken > LONG for seconds in times.values() for taken in seconds) else 2 * BLOCKS


def ratio(some: Sequence[float], others: Sequence[float]) -> Ratio:
    """The ratio of the times `some` to the times `others`."""
    pairs = zip(np.array_split(some, BLOCKS), np.array_split(others, BLOCKS), strict=True)
    blocks = [float(np.median(a) / np.median(b)) for a, b in pairs]
    return Ratio(float(np.median(blocks)), min(blocks), max(blocks))
