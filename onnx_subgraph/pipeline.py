"""fuse(): load, prepare, find, choose, rewrite, verify, write. The flow, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.rewriting.rewrite import Rewrite, Skip
from onnx_subgraph.verification.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Options:
    """How to fuse. The command line's options, one for one; the defaults are the command line's defaults.

    target: "onnxruntime", "standard" or "function". providers: execution providers, each verified by itself.
    opset: "auto", "keep", or the opset to raise the model to. shapes: input name → shape, for feeds. inputs: an .npz of feeds.
    rtol, atol: override the measured bound. verify: False writes without verification (the verdict is then "not-run").
    """

    target: str = "onnxruntime"
    providers: tuple[str, ...] = ("CPUExecutionProvider",)
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    verify: bool = True
    rtol: float | None = None
    atol: float | None = None
    seed: int = 0
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: Path | None = None
    opset: str = "auto"
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class FuseResult:
    """What `fuse` did to one model.

    output: the file written, or None (dry run, or a verdict "different"). unchanged: nothing fused; the file is a copy.
    opset: of the default domain, before and after. seconds: stage → wall-clock seconds.
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


Progress = Callable[[str], None]
"""Called with the stage that begins: "load", "find", "rewrite", "verify", "write"."""
