"""The results of verification: a `Run` for each comparison, the placement of nodes, and the overall `Verdict`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True)
class Run:
    """One output of one run of the candidate, compared with the reference's.

    provider: the execution provider. optimised: whether the candidate's session had graph optimisation on.
    sizes: symbolic dimension → size of this run. seed: of its feeds, None for the user's own. output: its name.
    error: the largest absolute difference over the finite elements (in the output's own unit).
    bound: the largest difference allowed at that element: floor + measured noise (see `bounds`).
    worst: the index of the element with the largest ratio of difference to bound.
    problem: another defect than the size of the error (another shape, another dtype, non-finite where the reference is finite,
    the session's error message), or "".
    overflows: the number of elements where the reference is NaN or infinite and the candidate finite, if nothing else is wrong.
    jumps: the number of elements that may differ by more, because as many of the reference jump when its roundings change.
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
    overflows: int = 0
    jumps: int = 0

    @property
    def equal(self) -> bool:
        """Whether this output is within its bound and has no other problem."""
        return not self.problem and self.error <= self.bound


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node of the candidate, and the execution provider that it was placed on."""

    name: str
    op: str
    provider: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a session for `provider` placed the candidate's nodes, with optimisation off, in onnxruntime's order."""

    provider: str
    nodes: tuple[PlacedNode, ...]

    @property
    def taken(self) -> tuple[PlacedNode, ...]:
        """The nodes that run on the provider."""
        return tuple(node for node in self.nodes if node.provider == self.provider)

    @property
    def fallen(self) -> tuple[PlacedNode, ...]:
        """The nodes that fell back to another provider, the CPU's."""
        return tuple(node for node in self.nodes if node.provider != self.provider)


@dataclass(frozen=True, slots=True)
class Showing:
    """Whether an output of the reference can show a difference.

    blind: why it can't; "" where it can. power: the smallest error common to all elements that would exceed the bound, relative
    to the output's spread; None where the output is not of floats, or is blind. unseen: of an output that is not of floats, the
    fraction of its elements that may differ unseen, with a probability of one in twenty; None otherwise.
    """

    output: str
    blind: str = ""
    power: float | None = None
    unseen: float | None = None


@dataclass(frozen=True, slots=True)
class Rounding:
    """The error of an output against a float64 evaluation of the original, relative to its largest element.

    kernels: with kernels that may round their operands. onnxruntime: of the original itself.
    """

    output: str
    kernels: float
    onnxruntime: float


@dataclass(frozen=True, slots=True)
class Reached:
    """The nodes of the candidate that ran, by name. kernel: those that ran themselves.

    reached: all nodes of the graphs that ran.
    """

    kernel: frozenset[str] = frozenset()
    reached: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Coverage:
    """The evidence for each fusion. Each fusion counts once in kernel, body or alone, and once in float64, unfused or outputs.

    kernel, body: it ran in a run of the model, by a kernel or by its definition.
    alone: no run of the model reached it. float64: checked separately against a float64 evaluation.
    unfused: checked separately against the unfused result, within its noise. outputs: only the outputs of the model are evidence.
    drawn: how many separate checks used drawn values.
    """

    kernel: int = 0
    body: int = 0
    alone: int = 0
    float64: int = 0
    unfused: int = 0
    outputs: int = 0
    drawn: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """equivalent: all runs are equal, with evidence. different: one is not.

    not-run: nothing was compared, or nothing shows a difference.

    strength: "kernel" when every fused operator ran as a kernel of the provider, "body" when the definition of at least one was
    inlined, so that the definition was verified, not a kernel.
    reason: why it is not-run, or further remarks.
    placements: for every provider except the CPU's, where nodes ran; missing where this onnxruntime does not tell.
    showings: whether each output can show a difference. blind: whether it is not-run because no output can.
    random: the random operators, whose results were fed to both models.
    coverage: the evidence for each fusion; None where there are none, or it is unknown.
    reached: the nodes of the candidate that ran. also: the other ways in which the candidate was run.
    roundings: the errors of the outputs with kernels that may round their operands; () where none may.
    """

    verdict: Literal["equivalent", "different", "not-run"]
    strength: Literal["kernel", "body"] = "kernel"
    runs: tuple[Run, ...] = ()
    reason: str = ""
    placements: tuple[Placement, ...] = ()
    showings: tuple[Showing, ...] = ()
    blind: bool = False
    random: tuple[str, ...] = ()
    coverage: Coverage | None = None
    reached: Reached = Reached()
    also: tuple[str, ...] = ()
    roundings: tuple[Rounding, ...] = ()

    @property
    def worst(self) -> Run | None:
        """The run with a problem, or else with the largest ratio of error to bound; None without runs."""
        return max(self.runs, key=lambda r: (bool(r.problem), r.error / r.bound if r.bound else r.error), default=None)

    def on_evidence(self, *, given: bool) -> Verdict:
        """This verdict, but "not-run" where nothing differs and no output could show it. given: whether the inputs were."""
        if self.verdict == "different" or any(not showing.blind for showing in self.showings):
            return self
        said = "; ".join(dict.fromkeys(f"{one.output}: {one.blind}" for one in self.showings[:3]))
        reason = f"no output can show a difference ({said})" if said else "the model has no output that could be compared"
        hint = _OTHER_INPUTS if given else "--inputs FEEDS.npz compares them on inputs that matter"
        return replace(self, verdict="not-run", blind=bool(said), reason=f"{reason}; {hint}" if said else reason)


_OTHER_INPUTS = "other inputs may show one, and so may a bound that you set: --rtol, --atol"
