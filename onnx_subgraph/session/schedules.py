"""The schedules of one session: which signatures have one, wait for one, or had theirs evicted.

Above the limit in number or bytes, the least recently used one is evicted. One background thread prepares the most recently
requested signature, and times it against the general model before it is used. The thread holds no reference to the session, and
ends with it.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from onnx_subgraph.errors import OnnxSubgraphWarning
from onnx_subgraph.forks import renew_in_forks
from onnx_subgraph.session.paying import NONE, Account, Trials
from onnx_subgraph.session.record import Limits, Record, Story
from onnx_subgraph.session.schedule import EVERY, Feeds, Schedule, Signature, pattern_of, signature_of, spelled

MOST_REMEMBERED = 1024
"""The most signatures without a schedule whose state is kept."""
RETRY, LONGEST = 300.0, 3600.0
"""Seconds after which a failed schedule may be requested again, doubled after each failure; and the longest wait."""


class Maker(Protocol):
    """Makes schedules."""

    @property
    def every(self) -> int | None:
        """The number of signatures at which to make one schedule for all sizes; None if that is impossible."""

    def __call__(self, signature: Signature, feeds: Feeds, stop: threading.Event, *, urgent: bool) -> Schedule:
        """The schedule of a signature, or of EVERY for all sizes of such feeds; stops early when the event is set.

        urgent: somebody waits for it. Raises any exception if it can't be made.
        """
        ...


class Schedules:
    """The schedules of one session. Every method may be called by any thread.

    make: called in the background, by one thread at a time. trials: of schedules against the general model.
    """

    def __init__(
        self,
        make: Maker,
        limits: Limits,
        trials: Trials = NONE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self._make, self._trials, self._clock = make, trials, clock
        self._account = Account(limits.schedules)
        self._records: OrderedDict[Signature, Record] = OrderedDict()
        self._ready: OrderedDict[Signature, Schedule] = OrderedDict()
        self._pattern: Signature | None = None
        self._wanted: list[Signature] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._stopped = self._stopping = False  # stopping: tell the thread
        renew_in_forks(self)

    def find(self, signature: Signature) -> Schedule | None:
        """The schedule for a signature: its own, or the one for all sizes; counted as a hit. None for the general model."""
        with self._changed:
            found = self._ready.get(signature)
            if found is None and EVERY in self._ready and pattern_of(signature) == self._pattern:
                found = self._ready[EVERY]
            if found is not None:
                self._ready.move_to_end(found.signature)
                self._record(signature).hits += 1
            return found

    def ran(self, signature: Signature, feeds: Feeds, seconds: float, by: Schedule | None) -> None:
        """Record a run of so many seconds: by the schedule of the signature or of all sizes, or by the general model (None)."""
        if by is not None and by.signature == signature:
            return
        with self._changed:
            record = self._record(signature)
            record.rent += seconds
            record.misses += by is None
            if self._is_time_for_every():
                self._want(EVERY, self._record(EVERY), feeds)
                self._account.free = 0
            if not record.is_open(self._clock()) or record.misses + record.hits < self.limits.after or not self.limits.schedules:
                return
            if self._account.pays(record.rent):
                self._want(signature, record, feeds)
            elif not self._stopped and not self._serves_every:
                self._stopped = self._stopping = True
                self._start()

    def want(self, signature: Signature, feeds: Feeds) -> None:
        """Request the schedule of a signature, seen or not."""
        with self._changed:
            record = self._record(signature)
            if record.schedule is None:
                record.urgent = True
                self._want(signature, record, feeds)

    def get(self, signature: Signature) -> Schedule | None:
        """The schedule of a signature; counts nothing, requests nothing."""
        with self._changed:
            return self._ready.get(signature)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is being prepared; False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed.is_set() or not self._is_busy(), timeout)

    def refuse(self, schedule: Schedule, reason: str, *, tell: bool) -> None:
        """Drop a schedule that failed, for a while; a run in progress ends normally. tell: warn about it."""
        if tell:
            _warn(f"no schedule for {spelled(schedule.signature)}: {reason}")
        with self._changed:
            if self._ready.get(schedule.signature) is schedule:
                self._let_go(schedule.signature, "refused", reason)
                self._failed(self._record(schedule.signature), reason)

    def stories(self) -> tuple[Story, ...]:
        """The state of each signature: first those without a schedule, then the others, the most recently used last."""
        with self._changed:
            order = (*(signature for signature in self._records if signature not in self._ready), *self._ready)
            return tuple(self._records[signature].story(signature) for signature in order)

    def close(self) -> None:
        """Stop preparing, and drop all schedules."""
        self._closed.set()
        with self._changed:
            self._wanted.clear()
            for signature in tuple(self._ready):
                self._let_go(signature, "evicted", "the session is closed")
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)

    def renew(self) -> None:
        """In a forked process: what is being prepared is left to its parent, and may be requested again."""
        self._changed, self._thread, self._wanted, self._stopping = threading.Condition(), None, [], False
        for record in self._records.values():
            if record.state in ("waiting", "preparing"):
                record.state, record.feeds, record.urgent = "seen", None, False

    # Within the lock

    def _record(self, signature: Signature) -> Record:
        record = self._records.get(signature)
        if record is not None:
            return record
        if len(self._records) >= MOST_REMEMBERED:
            idle = (old for old, other in self._records.items() if other.state not in ("ready", "waiting", "preparing"))
            if (oldest := next(idle, None)) is not None:
                del self._records[oldest]
        record = self._records[signature] = Record()
        return record

    @property
    def _serves_every(self) -> bool:
        """Whether there is a schedule for all sizes, or will be."""
        record = self._records.get(EVERY)
        return record is not None and record.state in ("ready", "waiting", "preparing")

    def _is_time_for_every(self) -> bool:
        least = self._make.every
        if least is None or not self._record(EVERY).is_open(self._clock()):
            return False
        return sum(1 for signature, other in self._records.items() if signature != EVERY and other.misses) >= least

    def _want(self, signature: Signature, record: Record, feeds: Feeds) -> None:
        if self._closed.is_set() or record.state in ("waiting", "preparing") or self.limits.schedules < 1:
            return
        runs = f"{record.misses} run{'' if record.misses == 1 else 's'} by the general model"
        record.reason = runs if record.state == "seen" else f"{runs}, {record.state} before: {record.reason}"
        record.state = "waiting"
        record.feeds = {name: array.copy() for name, array in feeds.items()}  # the caller may overwrite its arrays meanwhile
        self._wanted.append(signature)
        while len(self._wanted) > self.limits.schedules:  # the oldest request will not be wanted any more when its turn comes
            passed = self._records[self._wanted.pop(0)]
            passed.state, passed.reason, passed.feeds = "seen", "others were wanted after it", None
        self._start()

    def _start(self) -> None:
        """Make sure that a thread works on the requests."""
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._work, name="onnx-subgraph schedules", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _is_busy(self) -> bool:
        return self._stopping or bool(self._wanted) or any(record.state == "preparing" for record in self._records.values())

    def _keep(self, signature: Signature, record: Record, schedule: Schedule) -> None:
        if schedule.nbytes > self.limits.nbytes:
            record.state = "refused"
            record.reason = f"it needs {schedule.nbytes} bytes, and all together may have {self.limits.nbytes}"
            return
        record.state, record.schedule = "ready", schedule
        self._ready[signature] = schedule
        while len(self._ready) > self.limits.schedules or sum(s.nbytes for s in self._ready.values()) > self.limits.nbytes:
            few, most = len(self._ready) > self.limits.schedules, self.limits
            bound = f"{most.schedules} schedules" if few else f"{most.nbytes} bytes"
            self._let_go(next(iter(self._ready)), "evicted", f"it was the least recently used, over {bound}")

    def _failed(self, record: Record, reason: str) -> None:
        record.failures += 1
        record.state, record.reason = "refused", reason
        record.again = self._clock() + min(RETRY * 2 ** (record.failures - 1), LONGEST)

    def _let_go(self, signature: Signature, state: str, reason: str) -> None:
        if self._ready.pop(signature, None) is not None and signature == EVERY:
            self._account.instead = 1.0
        record = self._record(signature)
        record.state, record.reason, record.schedule, record.rent = state, reason, None, 0.0

    # In the background

    def _work(self) -> None:
        try:
            while self._worked():
                pass
        finally:  # a warning that is an error here ends this thread
            with self._changed:
                self._thread = None
                if self._wanted or self._stopping:
                    self._start()

    def _worked(self) -> bool:
        """Work on the next request; whether there may be more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed.is_set() or bool(self._wanted) or self._stopping)
            if self._closed.is_set():
                return False
            telling = self._stopping
            if not telling:
                signature = self._wanted.pop()
                record = self._records[signature]
                record.state = "preparing"
        if telling:
            self._tell_of_stopping()
        else:
            self._prepare(signature, record)
        return True

    def _tell_of_stopping(self) -> None:
        try:
            _warn(
                f"from now on schedules are prepared only where they pay: preparing one takes about {self._account.price:.2g} s, "
                f"and a run with it takes {1 - self._account.gain:.2f} of the time without"
            )
        finally:
            with self._changed:
                self._stopping = False
                self._changed.notify_all()

    def _prepare(self, signature: Signature, record: Record) -> None:
        begun = time.perf_counter()
        feeds, record.feeds = record.feeds or {}, None
        schedule, failure, slow = None, "", self._trials.known(signature, feeds, record)
        try:
            if not slow:
                schedule = self._make(signature, feeds, self._closed, urgent=record.urgent)
                record.seconds = time.perf_counter() - begun
                slow = "" if self._closed.is_set() else self._trials.tried(schedule, feeds, record)
        except Exception as error:  # whatever it is, the general model still runs
            record.seconds, failure = time.perf_counter() - begun, str(error) or type(error).__name__
        try:
            if failure and not self._closed.is_set():
                _warn(f"no schedule for {spelled(signature)}: {failure}")
        finally:
            with self._changed:
                self._settle(signature, record, schedule, failure, slow)
                if signature == EVERY and record.schedule is not None:
                    self._pattern, self._account.instead = pattern_of(signature_of(feeds) or ()), record.ratio or 1.0
                self._changed.notify_all()

    def _settle(self, signature: Signature, record: Record, schedule: Schedule | None, failure: str, slow: str) -> None:
        """Store a schedule, or why there is none. Within the lock."""
        record.urgent = False
        if signature != EVERY:
            self._account.prepared(record.seconds, record.ratio or None)
        elif failure or slow:
            self._account.free = self.limits.schedules
        if failure:
            self._failed(record, failure)
        elif slow:
            record.state, record.reason = "refused", slow
        elif schedule is not None and not self._closed.is_set():
            self._keep(signature, record, schedule)


def _warn(message: str) -> None:
    warnings.warn(message, OnnxSubgraphWarning, stacklevel=2)
