"""The options of a partition."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.partitioning.worth import RegionLimits
from onnx_subgraph.paths import StrPath


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """How to partition. limits: the requirements on a region.

    backend: a name of the registry, or a file that declares one. Of several, each gets the nodes that those before it left.
    measure: time the regions, and drop those that are not faster with the backend; the result depends on the machine.
    isolated: verify and measure with the backend in a process of its own; None isolates backends that others wrote.
    accuracy: the allowed error of outputs and engines' results against float64, relative to their largest element; None for the
    noise of the model. Results inside the model may be `holding.INNER` times as far off.
    pattern: its regions become engines, instead of the largest that the backend supports. The others are as for `fuse`: verify,
    rtol, atol, seed, shapes and inputs for the comparison, libraries of custom operators, dry_run to write nothing.
    results: backend → the values that its engines may compute; a backend that is not in it may compute all.
    """

    backend: str | Sequence[str]
    limits: RegionLimits = field(default_factory=RegionLimits)
    measure: bool = False
    isolated: bool | None = None
    verify: bool = True
    accuracy: float | None = None
    rtol: float | None = None
    atol: float | None = None
    seed: int = 0
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: StrPath | None = None
    libraries: Sequence[StrPath] = ()
    pattern: Pattern | None = None
    dry_run: bool = False
    results: Mapping[str, Collection[str]] = field(default_factory=dict)

    @property
    def backends(self) -> tuple[str, ...]:
        """The names of the backends."""
        return (self.backend,) if isinstance(self.backend, str) else tuple(self.backend)
