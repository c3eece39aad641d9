"""The cache: no value is made twice at once, the least recently used value is dropped, and failures are not cached."""

from __future__ import annotations

import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph.engine.cache import Cache
from tests.children import child_of, succeeds


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=20, max_size=60), st.integers(1, 3))
def test_it_keeps_the_most_recently_used_and_counts_its_work(requests: list[tuple[int, bool]], bound: int) -> None:
    """Compared with a simple model: a list in the order of use. Some requests only look whether a value is there."""
    cache: Cache[int, str] = Cache(bound)
    recent: list[int] = []
    made, hits = 0, 0
    for key, peeks in requests:
        known = key in recent
        hits, made = hits + known, made + (not known and not peeks)
        if known or not peeks:
            recent = [*(k for k in recent if k != key), key][-bound:]
        found = cache.peek(key) if peeks else cache.get(key, lambda key=key: f"thing {key}").result()
        assert found == (f"thing {key}" if known or not peeks else None)
    assert (cache.usage.hits, cache.usage.misses, cache.usage.size) == (hits, made, len(recent))
    assert cache.usage.evictions == made - len(recent)


def test_many_threads_make_each_value_once_while_it_is_cached() -> None:
    cache: Cache[int, int] = Cache(8)
    made: Counter[int] = Counter()
    lock = threading.Lock()

    def make(key: int) -> int:
        with lock:
            made[key] += 1
        return key * key

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda n: cache.get(n % 8, lambda: make(n % 8)).result(), range(400)))
    assert results == [(n % 8) ** 2 for n in range(400)]
    assert made == Counter(dict.fromkeys(range(8), 1))


def test_a_request_for_another_key_does_not_wait() -> None:
    cache: Cache[str, str] = Cache(8)
    go = threading.Event()
    slow = cache.get("slow", lambda: str(go.wait(30)), aside=True)
    assert cache.get("quick", lambda: "made").result() == "made"
    assert not slow.done()
    go.set()
    assert slow.result(30) == "True"


def test_all_waiting_threads_get_the_error_and_the_next_request_tries_again() -> None:
    cache: Cache[str, str] = Cache(8)
    go = threading.Event()

    def fail() -> str:
        go.wait(30)
        raise ValueError("no")

    first = cache.get("thing", fail, aside=True)
    second = cache.get("thing", fail)
    go.set()
    for future in (first, second):
        with pytest.raises(ValueError, match="no"):
            future.result(30)
    assert cache.get("thing", lambda: "made").result() == "made"


def test_a_failure_removes_no_value_that_was_made_in_its_place() -> None:
    cache: Cache[str, str] = Cache(1)
    go = threading.Event()

    def fail() -> str:
        go.wait(30)
        raise ValueError("no")

    first = cache.get("thing", fail, aside=True)
    cache.get("other", lambda: "evicts it")
    cache.get("thing", lambda: "made")
    go.set()
    assert isinstance(first.exception(30), ValueError)
    assert cache.peek("thing") == "made"


def test_only_the_value_that_is_meant_is_dropped() -> None:
    cache: Cache[str, list[int]] = Cache(1)
    made = cache.get("thing", lambda: [1]).result()
    cache.drop("thing", [1])
    assert cache.peek("thing") is made
    cache.drop("thing", made)
    assert cache.peek("thing") is None


def test_a_capacity_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="one thing at least"):
        Cache(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_makes_what_its_parent_was_making() -> None:
    """It has no thread that would complete it, and may be forked while another thread holds the lock."""
    cache: Cache[str, str] = Cache(8)
    go = threading.Event()
    slow = cache.get("slow", lambda: str(go.wait(60)), aside=True)
    cache.get("ready", lambda: "parent's")
    with cache._lock:
        child = child_of(lambda: (cache.peek("ready"), cache.get("slow", lambda: "own").result(0)) == ("parent's", "own"))
    assert succeeds(child, 20)
    go.set()
    assert slow.result(30) == "True"
