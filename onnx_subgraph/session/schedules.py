"""The schedules of one session: which signatures have one, which wait for one, and which had to go.

Over the bound in number or in bytes, the least recently used one goes. One thread prepares, in the background, the signature that
was asked for last; it holds no reference to the session, and ends with it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from onnx_subgraph.session.schedule import Schedule, Signature

MOST_REMEMBERED = 1024
"""Signatures without a schedule whose story is kept."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is spent on speed: at most so many schedules, of so many bytes together, and none before `after` runs.

    nbytes counts what each schedule is taken to need, its weights and its buffers.
    """

    schedules: int = 8
    nbytes: int = 2 << 30
    after: int = 1


@dataclass(frozen=True, slots=True)
class Story:
    """What a session knows of one signature.

    state: "ready", "waiting", "preparing", "seen" (not often enough), "evicted" or "refused". reason: why; of a ready one, why it
    was made. hits: runs by its schedule; misses: runs by the general model. nbytes: of its schedule. seconds: of preparing it.
    """

    signature: Signature
    state: str
    reason: str
    hits: int
    misses: int
    nbytes: int = 0
    seconds: float = 0.0


Make = Callable[[Signature, threading.Event], Schedule]
"""Makes the schedule of a signature, and ends early when the event is set. Raises any exception where it can't."""


@dataclass(slots=True)
class _Record:
    """What is kept of a signature."""

    state: str = "seen"
    reason: str = ""
    hits: int = 0
    misses: int = 0
    seconds: float = 0.0
    schedule: Schedule | None = None


class Schedules:
    """The schedules of one session. Every method may be called by any thread.

    make: called in the background, by one thread at a time. failed: told of what `make` raised.
    """

    def __init__(self, make: Make, limits: Limits, failed: Callable[[Signature, Exception], None]) -> None:
        self.limits = limits
        self._make, self._failed = make, failed
        self._records: OrderedDict[Signature, _Record] = OrderedDict()
        self._ready: OrderedDict[Signature, Schedule] = OrderedDict()
        self._wanted: list[Signature] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def find(self, signature: Signature) -> Schedule | None:
        """The schedule of a signature, counted as a hit; where there is none, a miss is counted and one is asked for."""
        with self._changed:
            record = self._record(signature)
            if record.schedule is not None:
                self._ready.move_to_end(signature)
                record.hits += 1
                return record.schedule
            record.misses += 1
            if record.state in ("seen", "evicted") and record.misses >= self.limits.after:
                self._want(signature, record)
            return None

    def want(self, signature: Signature) -> None:
        """Ask for the schedule of a signature, whether it was seen or not."""
        with self._changed:
            record = self._record(signature)
            if record.schedule is None:
                self._want(signature, record)

    def get(self, signature: Signature) -> Schedule | None:
        """The schedule of a signature; nothing is counted, and nothing asked for."""
        with self._changed:
            return self._ready.get(signature)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is being prepared; whether that was so before `timeout` seconds were over."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed.is_set() or not self._is_busy(), timeout)

    def refuse(self, signature: Signature, reason: str) -> None:
        """Let go of the schedule of a signature and make none again; a run that is using it ends undisturbed."""
        with self._changed:
            self._let_go(signature, "refused", reason)

    def stories(self) -> tuple[Story, ...]:
        """What is known of each signature: those without a schedule first, then the others, the most recently used last."""
        with self._changed:
            order = [*(sig for sig in self._records if sig not in self._ready), *self._ready]
            return tuple(_story(signature, self._records[signature]) for signature in order)

    def close(self) -> None:
        """Prepare no more, and let go of all schedules."""
        self._closed.set()
        with self._changed:
            self._wanted.clear()
            for signature in tuple(self._ready):
                self._let_go(signature, "evicted", "the session is closed")
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)

    # Within the lock

    def _record(self, signature: Signature) -> _Record:
        record = self._records.get(signature)
        if record is not None:
            return record
        if len(self._records) >= MOST_REMEMBERED:
            idle = (old for old, other in self._records.items() if other.state not in ("ready", "waiting", "preparing"))
            if (oldest := next(idle, None)) is not None:
                del self._records[oldest]
        record = self._records[signature] = _Record()
        return record

    def _want(self, signature: Signature, record: _Record) -> None:
        if self._closed.is_set() or record.state in ("waiting", "preparing") or self.limits.schedules < 1:
            return
        runs = f"{record.misses} run{'' if record.misses == 1 else 's'} by the general model"
        record.reason = runs if record.state == "seen" else f"{runs}, {record.state} before: {record.reason}"
        record.state = "waiting"
        self._wanted.append(signature)
        while len(self._wanted) > self.limits.schedules:  # by the time of its turn, what waits longest is not wanted any more
            passed = self._records[self._wanted.pop(0)]
            passed.state, passed.reason = "seen", "others were wanted after it"
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="onnx-subgraph schedules", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _is_busy(self) -> bool:
        return bool(self._wanted) or any(record.state == "preparing" for record in self._records.values())

    def _keep(self, signature: Signature, record: _Record, schedule: Schedule) -> None:
        if schedule.nbytes > self.limits.nbytes:
            what = f"it needs {schedule.nbytes} bytes, and all together may have {self.limits.nbytes}"
            record.state, record.reason = "refused", what
            return
        record.state, record.schedule = "ready", schedule
        self._ready[signature] = schedule
        while len(self._ready) > self.limits.schedules or sum(s.nbytes for s in self._ready.values()) > self.limits.nbytes:
            few = len(self._ready) > self.limits.schedules
            bound = f"{self.limits.schedules} schedules" if few else f"{self.limits.nbytes} bytes"
            self._let_go(next(iter(self._ready)), "evicted", f"it was the least recently used, over {bound}")

    def _let_go(self, signature: Signature, state: str, reason: str) -> None:
        self._ready.pop(signature, None)
        record = self._record(signature)
        record.state, record.reason, record.schedule = state, reason, None

    # In the background

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed.is_set() or bool(self._wanted))
                if self._closed.is_set():
                    return
                signature = self._wanted.pop()
                record = self._records[signature]
                record.state = "preparing"
            self._prepare(signature, record)

    def _prepare(self, signature: Signature, record: _Record) -> None:
        begun = time.perf_counter()
        schedule, failure = None, None
        try:
            schedule = self._make(signature, self._closed)
        except Exception as error:  # whatever it is, the general model goes on
            failure = error
        if failure is not None and not self._closed.is_set():
            self._failed(signature, failure)
        with self._changed:
            record.seconds = time.perf_counter() - begun
            if failure is not None:
                record.state, record.reason = "refused", str(failure) or type(failure).__name__
            elif schedule is not None and not self._closed.is_set():
                self._keep(signature, record, schedule)
            self._changed.notify_all()


def _story(signature: Signature, record: _Record) -> Story:
    nbytes = 0 if record.schedule is None else record.schedule.nbytes
    return Story(signature, record.state, record.reason, record.hits, record.misses, nbytes, record.seconds)
