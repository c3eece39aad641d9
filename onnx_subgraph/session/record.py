"""What a session knows of the signatures that it met, and how much it spends on them."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_subgraph.session.schedule import Feeds, Schedule, Signature


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is spent on speed: at most so many schedules, of so many bytes together, and none before `after` runs.

    nbytes counts what each schedule is taken to need, its weights and its buffers. When as many were prepared, one more is only
    where it pays. every: the number of signatures at which a backend that can do so compiles its regions for all sizes.
    """

    schedules: int = 8
    nbytes: int = 2 << 30
    after: int = 1
    every: int = 3


@dataclass(frozen=True, slots=True)
class Story:
    """What a session knows of one signature.

    state: "ready", "waiting", "preparing", "seen" (not often enough), "evicted" or "refused". reason: why; of a ready one, why it
    was made. hits: runs by a schedule; misses: runs by the general model. nbytes: of its schedule. seconds: of preparing it.
    ratio: of its time to that of the general model, on the feeds that asked for it; 0 where it was not timed.
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
    """What is kept of a signature, and grows into its story.

    rent: seconds of its runs without a schedule of its own. again: when a failure is forgotten. feeds: those that asked for it.
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
        """Whether its schedule may be asked for: there is none, none is on its way, and what stood against it is over."""
        return self.state in ("seen", "evicted") or (self.state == "refused" and now >= self.again)

    def story(self, signature: Signature) -> Story:
        """What may be told of it."""
        nbytes = 0 if self.schedule is None else self.schedule.nbytes
        return Story(signature, self.state, self.reason, self.hits, self.misses, nbytes, self.seconds, self.ratio)
