"""Ways in turn: what counts is the second run of a turn, all get as many, and a ratio is one of medians."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph.timing.turns import BLOCKS, ratio, take_turns

SECONDS = st.lists(st.floats(1e-6, 10), min_size=BLOCKS, max_size=40)


class Bench:
    """A clock that only the ways move: the first run of a turn takes a hundred times as long, as one with cold caches."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ran: list[str] = []

    def way(self, name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            warm = bool(self.ran) and self.ran[-1] == name
            self.now += seconds if warm else 100 * seconds
            self.ran.append(name)

        return run


def test_the_second_run_of_a_turn_counts_and_the_order_is_turned_round() -> None:
    bench = Bench()
    ways = {name: bench.way(name, seconds) for name, seconds in (("a", 1.0), ("b", 2.0), ("c", 4.0))}
    times = take_turns(ways, 0.0, lambda: bench.now)
    assert bench.ran[:12] == ["a", "a", "b", "b", "c", "c", "c", "c", "b", "b", "a", "a"]
    assert {name: len(found) for name, found in times.items()} == dict.fromkeys("abc", 2 * BLOCKS)
    assert set(times["a"]) == {1.0} and set(times["c"]) == {4.0}, "a cold run was counted"
    assert ratio(times["c"], times["b"]).ratio == 2.0


@given(SECONDS, st.floats(0.01, 100))
def test_a_ratio_is_as_many_times_as_the_times_are(times: list[float], factor: float) -> None:
    found = ratio([time * factor for time in times], times)
    assert found.ratio == pytest.approx(factor) and found.least == pytest.approx(factor) == pytest.approx(found.most)


def test_one_slow_run_moves_the_spread_and_not_the_ratio() -> None:
    steady = [1.0] * 3 * BLOCKS
    found = ratio([1000.0, *steady[1:]], steady)
    assert (found.ratio, found.least, found.most) == (1.0, 1.0, 1.0)
    found = ratio([1000.0] * 3 + steady[3:], steady)
    assert (found.ratio, found.least, found.most) == (1.0, 1.0, 1000.0)


@given(SECONDS, SECONDS)
def test_a_ratio_lies_within_its_spread(some: list[float], others: list[float]) -> None:
    found = ratio(some, others)
    assert found.least <= found.ratio <= found.most
