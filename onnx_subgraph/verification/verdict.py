"""What verification yields: one `Run` for each comparison made, and the `Verdict` over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Run:
    """One output of one run of the candidate, held against the reference.

    provider: the execution provider. optimised: whether the candidate's session had graph optimisation on.
    sizes: symbolic dimension → size of this run. seed: of its feeds, None for the user's own.
    output: its name. error: the largest absolute difference over the finite elements (in the output's own unit).
    bound: the largest difference allowed at that element: floor + measured noise (see `judge`).
    worst: the index of the element nearest to, or furthest over, its bound. problem: "" or what is wrong besides the
    size of the error (another shape, another dtype, non-finite where the reference is finite, the session's own message).
    """

    provider: str
    optimised: bool
    sizes: Mapping[str, int]
    seed: int | None
    output: str
    error: float
    bound: float
    worst: tuple[int, ...]
    problem: str = ""

    @property
    def equal(self) -> bool:
        """Whether this output is within its bound and has no other problem."""
        return not self.problem and self.error <= self.bound


@dataclass(frozen=True, slots=True)
class Verdict:
    """equivalent: every run is equal. different: one is not. not-run: nothing could be, or was to be, compared (`reason`).

    strength: "kernel" when every fused operator ran as a kernel of the provider, "body" when the definition of at least one
    was inlined, so that the definition, not a kernel, is what was verified.
    """

    verdict: Literal["equivalent", "different", "not-run"]
    strength: Literal["kernel", "body"] = "kernel"
    runs: tuple[Run, ...] = ()
    reason: str = ""

    @property
    def worst(self) -> Run | None:
        """The run with a problem, or else with the largest error in units of its bound; None without runs."""
        return max(self.runs, key=lambda r: (bool(r.problem), r.error / r.bound if r.bound else r.error), default=None)
