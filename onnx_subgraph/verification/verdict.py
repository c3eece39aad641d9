"""What verification yields: one `Run` for each comparison made, where nodes ran, and the `Verdict` over all of it."""

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
    overflows: at how many elements the reference is NaN or infinite and the candidate a number, where nothing else is wrong.
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
    """What a session for `provider` made of the candidate's nodes, optimisation off, in the order of onnxruntime."""

    provider: str
    nodes: tuple[PlacedNode, ...]

    @property
    def taken(self) -> tuple[PlacedNode, ...]:
        """The nodes that run on the provider."""
        return tuple(node for node in self.nodes if node.provider == self.provider)

    @property
    def fallen(self) -> tuple[PlacedNode, ...]:
        """The nodes that it left to another one, which is the CPU's."""
        return tuple(node for node in self.nodes if node.provider != self.provider)


@dataclass(frozen=True, slots=True)
class Showing:
    """What an output of the reference can show.

    blind: why it can show nothing; "" where it can. power: the smallest error that its bound lets show, where all elements have
    it, as a share of the output's own spread; None where it is not of floats, or is blind.
    """

    output: str
    blind: str = ""
    power: float | None = None


@dataclass(frozen=True, slots=True)
class Rounding:
    """How far an output is from a float64 evaluation of the original, in units of the largest of its elements.

    kernels: with kernels that may round what they multiply. onnxruntime: the original itself.
    """

    output: str
    kernels: float
    onnxruntime: float


@dataclass(frozen=True, slots=True)
class Reached:
    """Nodes of the candidate that have run, by name. kernel: as themselves; reached: these, and others of the same graphs."""

    kernel: frozenset[str] = frozenset()
    reached: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Coverage:
    """What shows each fusion to be right. Each is counted once in the first three, and once in the others.

    kernel, body: ran in a run of the model, by a kernel or by its definition. alone: no run of the model reached it.
    float64: held by itself against a float64 evaluation. unfused: held by itself against the unfused result, within its noise.
    outputs: shown by the outputs of the model alone. drawn: how many of those held by themselves were on drawn values.
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
    """equivalent: every run is equal, on evidence. different: one is not. not-run: nothing was compared, or could show anything.

    strength: "kernel" when every fused operator ran as a kernel of the provider, "body" when the definition of at least one
    was inlined, so that the definition, not a kernel, is what was verified. reason: why it is not-run, or what else there is to
    say. placements: for every provider but the CPU's, where nodes ran; without it where this onnxruntime does not tell. showings:
    what each output can show. blind: whether it is not-run because no output can show anything. random: the random operators,
    whose results were fed to both models. coverage: what shows each fusion; None where there are none, or it is unknown. reached:
    which of the candidate's nodes have run. also: the other ways in which the candidate was run.
    roundings: what those kernels do to each output that may round what they multiply; () where none may.
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
        """The run with a problem, or else with the largest error in units of its bound; None without runs."""
        return max(self.runs, key=lambda r: (bool(r.problem), r.error / r.bound if r.bound else r.error), default=None)
