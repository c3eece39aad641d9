"""FuseResult: the result of fuse()."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.model.gaps import Gap
from onnx_subgraph.model.overridable import Overridable
from onnx_subgraph.model.simplify import NOTHING, Simplified
from onnx_subgraph.rewriting.marked import Marked
from onnx_subgraph.rewriting.recurrent import Recurrent
from onnx_subgraph.rewriting.rewrite import Rewrite, Skip
from onnx_subgraph.rewriting.subnormal import Flushed
from onnx_subgraph.verification.blame import Undone
from onnx_subgraph.verification.own import OwnWork
from onnx_subgraph.verification.site import SiteCheck
from onnx_subgraph.verification.verdict import Verdict

if TYPE_CHECKING:  # measuring has its own imports, and few runs measure
    from onnx_subgraph.timing import Bench
    from onnx_subgraph.timing.tuning import Tuning


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines in the result. count: of engines; nodes: inside them. refused: why other regions are not engines."""

    backend: str
    count: int
    nodes: int
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FuseResult:
    """What `fuse` did to one model.

    output: the file written, or None (dry run, a verdict "different", or with `strict` something undone). unchanged: nothing
    fused; the file is a copy. opset: of the default domain, before and after. undone: rewrites that were wrong and taken back.
    size: the bytes that the fused model takes, its external data included; None where nobody asked.
    bench: the time of what was made, beside that of the original; None where nobody asked, or nothing was made.
    libraries: of custom operators, that were loaded. marked: the operators that marked parts became.
    tuning: what was measured to pay; None where nobody asked. engines: what became engines, None for nothing.
    gaps: where shape inference gave up. overridable: the initializers that a run may replace, which are no constants.
    made_constant: those that were taken out of the inputs on request. flushed: weights in which subnormal numbers became zeros;
    unflushed: those that got them back, since the model was not equivalent without them. simplified: what was decided before the
    model runs; unsimplified: what was left to run after all, for the same reason. recurrent: Loops that became LSTM, GRU or RNN;
    unrecurrent: those that became Loops again, for the same reason.
    sites: each rewrite by itself, where that was asked for.
    seconds: stage → wall-clock seconds. operators: how often each is there.
    """

    model: Path
    output: Path | None
    nodes_before: int
    nodes_after: int
    opset_before: int
    opset_after: int
    target: str
    providers: tuple[str, ...]
    rewrites: tuple[Rewrite, ...]
    near_misses: tuple[NearMiss, ...]
    skipped: tuple[Skip, ...]
    verdict: Verdict
    seconds: Mapping[str, float]
    unchanged: bool = False
    size: int | None = None
    undone: tuple[Undone, ...] = ()
    sites: tuple[SiteCheck, ...] = ()
    own: tuple[OwnWork, ...] = ()
    operators_before: Mapping[str, int] = field(default_factory=dict)
    operators_after: Mapping[str, int] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    fixed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    marked: tuple[Marked, ...] = ()
    gaps: tuple[Gap, ...] = ()
    overridable: Overridable = field(default_factory=Overridable)
    made_constant: tuple[str, ...] = ()
    flushed: tuple[Flushed, ...] = ()
    unflushed: tuple[Flushed, ...] = ()
    simplified: Simplified = NOTHING
    unsimplified: Simplified = NOTHING
    recurrent: tuple[Recurrent, ...] = ()
    unrecurrent: tuple[Recurrent, ...] = ()
    bench: Bench | None = None
    tuning: Tuning | None = None
    engines: Engines | None = None
    libraries: tuple[Path, ...] = ()
