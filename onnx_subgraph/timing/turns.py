"""Ways to do something, timed against each other: all of them in turn, so that what disturbs one disturbs all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from onnx_subgraph.deadline import check

BLOCKS = 5
"""The runs are cut into so many parts, so that a ratio has a least and a most."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of times: of the medians in each of five parts of the runs, the middle one, the least and the most."""

    ratio: float
    least: float
    most: float


def take_turns(
    ways: Mapping[str, Callable[[], object]], budget: float, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each run, all ways in turn, until the budget is spent.

    budget: seconds, of the wall clock; each way runs ten times in any case. clock: what a run's seconds are read off.
    A way runs twice in its turn, and only the second run counts: the first finds the caches full of what another one left.
    One run does not fill a large cache: a way that ends one turn and begins the next finds it fuller. So the order is drawn for
    each turn, with a fixed seed, and that happens to all ways as often.
    Raises TimeIsUp where there is no more time.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    ends, order, draws = time.perf_counter() + budget, list(ways), Random(0)
    while time.perf_counter() < ends or min(map(len, times.values())) < 2 * BLOCKS:
        draws.shuffle(order)
        for name in order:
            check()
            ways[name]()
            begun = clock()
            ways[name]()
            times[name].append(clock() - begun)
    return times


def ratio(some: Sequence[float], others: Sequence[float]) -> Ratio:
    """The times `some` over the times `others`."""
    pairs = zip(np.array_split(some, BLOCKS), np.array_split(others, BLOCKS), strict=True)
    blocks = [float(np.median(a) / np.median(b)) for a, b in pairs]
    return Ratio(float(np.median(blocks)), min(blocks), max(blocks))
