"""FuseResult: the result of fuse()."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.model.gaps import Gap
from onnx_subgraph.model.overridable import Overridable
from onnx_subgraph.rewriting.marked import Marked
from onnx_subgraph.rewriting.rewrite import Rewrite, Skip
from onnx_subgraph.rewriting.subnormal import Flushed
from onnx_subgraph.simplification.simplify import NOTHING, Simplified
from onnx_subgraph.verification.blame import Undone
from onnx_subgraph.verification.site import SiteCheck
from onnx_subgraph.verification.verdict import Verdict

if TYPE_CHECKING:  # what few runs need: Loops, a comparison with onnxruntime, measuring
    from onnx_subgraph.rewriting.recurrent import Recurrent
    from onnx_subgraph.timing import Bench
    from onnx_subgraph.timing.tuning import Tuning
    from onnx_subgraph.verification.own import OwnWork


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines in the result. count: of engines; nodes: inside them. refused: why other regions are not engines."""

    backend: str
    count: int
    nodes: int
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FuseResult:
    """The result of `fuse` for one model.

    output: the written file, or None (dry run, a verdict "different", or with `strict` something undone).
    unchanged: nothing fused; the file is a copy. opset: of the default domain, before and after.
    undone: rewrites that were wrong and taken back.
    size: of the fused model in bytes, including external data; None if not requested.
    bench: the time of the result, beside the original's; None if not requested, or without a result.
    libraries: of custom operators, that were loaded. marked: the operators that marked parts became.
    tuning: which choices were measured to pay; None if not requested. engines: the engines of backends, None for none.
    gaps: where shape inference gave up. overridable: initializers that a run may override, and so are not constants.
    made_constant: those that were removed from the inputs on request. flushed: weights in which subnormal numbers became zeros.
    unflushed: those whose subnormal numbers were restored, since the model was not equivalent without them.
    simplified: what was computed ahead of time. unsimplified: what was restored, for the same reason.
    recurrent: Loops that became LSTM, GRU or RNN. unrecurrent: those that became Loops again, for the same reason.
    sites: the check of each rewrite alone, if requested. seconds: stage → wall-clock seconds. operators: the count of each.
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
