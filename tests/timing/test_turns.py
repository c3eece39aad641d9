"""Timing several candidates in turns: the second run of a turn counts, all get equally many, and a ratio is one of medians."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph.timing.turns import BLOCKS, ratio, take_turns

SECONDS = st.lists(st.floats(1e-6, 10), min_size=BLOCKS, max_size=40)


class Bench:
    """A clock that only the candidates move. The first run of a turn takes a hundred times as long, as with cold caches."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ran: list[str] = []

    def way(self, name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            warm = bool(self.ran) and self.ran[-1] == name
            self.now += seconds if warm else 100 * seconds
            self.ran.append(name)

        return run


def test_the_second_run_of_a_turn_counts() -> None:
    bench = Bench()
    ways = {name: bench.way(name, seconds) for name, seconds in (("a", 1 / 1024), ("b", 2 / 1024), ("c", 4 / 1024))}
    times = take_turns(ways, 0.0, lambda: bench.now)
    assert bench.ran[::2] == bench.ran[1::2], "a way does not run twice in its turn"
    turns = [bench.ran[i : i + 6 : 2] for i in range(0, len(bench.ran), 6)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert {name: len(found) for name, found in times.items()} == dict.fromkeys("abc", 2 * BLOCKS)
    assert set(times["a"]) == {1 / 1024} and set(times["c"]) == {4 / 1024}, "a cold run was counted"
    assert ratio(times["c"], times["b"]).ratio == 2.0


def test_long_runs_are_neither_repeated_nor_many() -> None:
    """A model that takes minutes a run is timed five times, not twenty."""
    bench = Bench()
    times = take_turns({name: bench.way(name, 60.0) for name in "ab"}, 0.0, lambda: bench.now)
    assert {name: len(found) for name, found in times.items()} == dict.fromkeys("ab", BLOCKS)
    assert len(bench.ran) == 2 * BLOCKS


def test_no_position_in_the_order_is_an_advantage() -> None:
    """Over 2,000 turns each candidate follows itself about equally often, because then it finds a warm cache."""
    bench, names = Bench(), ["first", "second", "third", "last"]

    def way(name: str) -> Callable[[], None]:
        def run() -> None:
            bench.ran.append(name)
            if len(bench.ran) > 4 * 2 * 2000:
                raise TimeoutError

        return run

    found = dict.fromkeys(names, 0)
    with pytest.raises(TimeoutError):
        take_turns({name: way(name) for name in names}, float("inf"), lambda: bench.now)
    for before, name in zip(bench.ran[1::2], bench.ran[2::2], strict=False):
        found[name] += before == name
    assert 0 < max(found.values()) < 1.25 * min(found.values()), found


@given(SECONDS, st.floats(0.01, 100))
def test_a_ratio_does_not_depend_on_the_unit_of_time(times: list[float], factor: float) -> None:
    found = ratio([time * factor for time in times], times)
    assert found.ratio == pytest.approx(factor) and found.least == pytest.approx(factor) == pytest.approx(found.most)


def test_one_slow_run_changes_the_spread_and_not_the_ratio() -> None:
    steady = [1.0] * 3 * BLOCKS
    found = ratio([1000.0, *steady[1:]], steady)
    assert (found.ratio, found.least, found.most) == (1.0, 1.0, 1.0)
    found = ratio([1000.0] * 3 + steady[3:], steady)
    assert (found.ratio, found.least, found.most) == (1.0, 1.0, 1000.0)


@given(SECONDS, SECONDS)
def test_a_ratio_lies_within_its_spread(some: list[float], others: list[float]) -> None:
    found = ratio(some, others)
    assert found.least <= found.ratio <= found.most
