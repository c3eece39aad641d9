"""The records of a session's signatures, and its limits."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from onnx_subgraph.errors import UsageError
from onnx_subgraph.session.schedule import Feeds, Schedule, Signature


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of schedules: their number, their bytes together, and the runs of a signature before it gets one (`after`).

    nbytes counts the weights and buffers of each schedule. When `schedules` were prepared, one more is prepared only if it pays.
    every: the number of signatures at which a backend that can do so compiles its regions for all sizes. Raises UsageError for a
    negative limit.
    """

    schedules: int = 8
    nbytes: int = 2 << 30
    after: int = 1
    every: int = 3

    def __post_init__(self) -> None:
        for name, limit in asdict(self).items():
            if limit < 0:
                raise UsageError(f"the limit {name} is {limit}", hint="limits are 0 or more; 0 schedules are none")


@dataclass(frozen=True, slots=True)
class Story:
    """The public state of one signature.

    state: "ready", "waiting", "preparing", "seen" (not often enough), "evicted" or "refused".
    reason: of the state; for a ready one, why it was made. hits: runs by a schedule; misses: runs by the general model.
    nbytes: of its schedule. seconds: of preparing it.
    ratio: of its time to that of the general model, on the feeds that requested it; 0 if it was not timed.
    """

    signature: Signature
    state: str
    reason: str
    hits: int
    misses: int
    nbytes: int = 0
    seconds: float = 0.0
    ratio: float = 0.0


@dataclass(slots=True)
class Record:
    """The internal state of a signature.

    rent: seconds of its runs without its own schedule. again: when a failure expires. feeds: those that requested the schedule.
    urgent: whether somebody waits for it.
    """

    state: str = "seen"
    reason: str = ""
    hits: int = 0
    misses: int = 0
    seconds: float = 0.0
    ratio: float = 0.0
    rent: float = 0.0
    failures: int = 0
    again: float = float("inf")
    feeds: Feeds | None = None
    urgent: bool = False
    schedule: Schedule | None = None

    def is_open(self, now: float) -> bool:
        """Whether its schedule may be requested: there is none, none is in preparation, and no failure blocks it."""
        return self.state in ("seen", "evicted") or (self.state == "refused" and now >= self.again)

    def story(self, signature: Signature) -> Story:
        """Its public state."""
        nbytes = 0 if self.schedule is None else self.schedule.nbytes
        return Story(signature, self.state, self.reason, self.hits, self.misses, nbytes, self.seconds, self.ratio)
