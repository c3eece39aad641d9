"""A circuit breaker: decides which engines use their backend after failures.

An engine is given up after several failures, and a backend after several of its engines are. After a while one run tries again:
success closes the circuit, failure doubles the next wait.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from onnx_subgraph.forks import renew_in_forks

FAILURES = 3
"""Consecutive failures after which an engine is given up."""
ENGINES = 3
"""Engines given up after which their backend is."""
LONGEST = 3600.0
"""The longest wait, in seconds."""


@dataclass(slots=True)
class _Circuit:
    """failures: consecutive ones. wait: seconds between trial runs, 0 while closed. since: when it was opened or tried."""

    failures: int = 0
    wait: float = 0.0
    since: float = 0.0
    trying: bool = False

    def lets(self, now: float) -> bool:
        """Whether a run may use the backend."""
        return not self.wait or now - self.since >= self.wait

    def ask(self, now: float) -> None:
        """A run uses the backend. If the circuit is open, it is the only one until the wait is over again."""
        if self.wait:
            self.trying, self.since = True, now

    def open(self, now: float, retry: float) -> None:
        """Block all runs for a while: for `retry` seconds, and twice as long after each trial run."""
        self.wait = min(2 * self.wait, LONGEST) if self.trying else retry
        self.since, self.trying = now, False


class Breaker:
    """One backend in one session. retry: seconds until a trial run. All methods are thread-safe."""

    def __init__(self, retry: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.retry = retry
        self.clock = clock
        self._engines: dict[str, _Circuit] = defaultdict(_Circuit)
        self._whole = _Circuit()
        self.renew()
        renew_in_forks(self)

    def renew(self) -> None:
        """In a forked process no run has the lock."""
        self._lock = threading.Lock()

    def asks(self, engine: str) -> bool:
        """Whether a run of this engine uses the backend. If so, the caller must call `worked` or `failed` afterwards."""
        with self._lock:
            now, both = self.clock(), (self._engines[engine], self._whole)
            if not all(circuit.lets(now) for circuit in both):
                return False
            for circuit in both:
                circuit.ask(now)
            return True

    def worked(self, engine: str) -> None:
        """A run of the backend computed the region."""
        circuit = self._engines.get(engine)
        if circuit is None or (not circuit.failures and not self._whole.wait):
            return  # the common case, without the lock
        with self._lock:
            if circuit.trying or not circuit.wait:
                self._engines[engine] = _Circuit()
            if self._whole.trying:
                self._whole = _Circuit()

    def failed(self, engine: str, *, grave: str = "") -> str:
        """A compilation or run failed; the new consequence in words, "" if there is none.

        grave: "engine" gives the engine up at the first failure, "backend" the whole backend.
        """
        with self._lock:
            circuit, whole, now = self._engines[engine], self._whole, self.clock()
            circuit.failures += 1
            if circuit.trying or (not circuit.wait and (grave or circuit.failures >= FAILURES)):
                circuit.open(now, self.retry)
                follows = f"it is not asked here again for {circuit.wait:g} s"
            else:
                follows = ""
            given_up = sum(1 for other in self._engines.values() if other.wait)
            if whole.trying or (not whole.wait and (grave == "backend" or given_up >= ENGINES)):
                whole.open(now, self.retry)
                follows = f"no engine asks it again for {whole.wait:g} s"
            return follows
