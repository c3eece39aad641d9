"""fuse(): load, prepare, find, choose, rewrite, verify, write. The flow, and nothing else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx_ir as ir

from onnx_subgraph.errors import ModelError, UsageError
from onnx_subgraph.language.library import Library
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.find import find
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.files import hand_on, load, save, size, write_temporary
from onnx_subgraph.model.opset import raise_opset
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.rewriting.apply import apply
from onnx_subgraph.rewriting.excerpt import operator_name
from onnx_subgraph.rewriting.loadability import Loadability
from onnx_subgraph.rewriting.rewrite import Rewrite, Skip
from onnx_subgraph.verification.sessions import check_providers
from onnx_subgraph.verification.verdict import Verdict
from onnx_subgraph.verification.verify import verify


@dataclass(frozen=True, slots=True)
class Options:
    """How to fuse. The command line's options, one for one; the defaults are the command line's defaults.

    target: "onnxruntime", "standard" or "function". providers: execution providers, each verified by itself.
    opset: "auto", "keep", or the opset to raise the model to. shapes: input name → shape, for feeds. inputs: an .npz of feeds.
    rtol, atol: override the measured bound. verify: False writes without verification (the verdict is then "not-run").
    excerpts: whether each rewrite notes down the nodes that it removed and added, for a report to draw.
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
    excerpts: bool = False


@dataclass(frozen=True, slots=True)
class FuseResult:
    """What `fuse` did to one model.

    output: the file written, or None (dry run, or a verdict "different"). unchanged: nothing fused; the file is a copy.
    size: the bytes that the fused model takes, its external data included; None where nobody asked.
    opset: of the default domain, before and after. seconds: stage → wall-clock seconds. operators: how often each is there.
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
    operators_before: Mapping[str, int] = field(default_factory=dict)
    operators_after: Mapping[str, int] = field(default_factory=dict)


Accepts = Callable[[FuseResult], bool]
"""Asked with the whole result, but for its output, before that is written: whether to write it."""

Progress = Callable[[str], None]
"""Called with the stage that begins: "load", "find", "rewrite", "raise", "verify", "write"."""

MOST_ROUNDS = 16
"""A bound on the rounds of find and rewrite; one fusion enables the next two or three times, not more."""


@dataclass(frozen=True, slots=True)
class Fused:
    """A model after rewriting, not yet verified. opset: of the default domain."""

    model: ir.Model
    rewrites: tuple[Rewrite, ...]
    skips: tuple[Skip, ...]
    near_misses: tuple[NearMiss, ...]

    @property
    def opset(self) -> int:
        return self.model.opset_imports.get("", 0)


def fuse(
    model: Path,
    output: Path | None,
    library: Library,
    options: Options,
    progress: Progress | None = None,
    accepts: Accepts | None = None,
) -> FuseResult:
    """Fuse one model file: find, rewrite, verify, write. The input is never touched; the output appears whole or not at all.

    output: the file to write, None as with `dry_run`. Where nothing fuses, the input is handed on byte for byte. Where the
    verdict is "different", or verification was asked for and could not be run, nothing is written.
    accepts: asked for a result that would be written; where it says no, nothing is.
    Raises ModelError for a model that can't be read or written, UsageError for options that don't fit it.
    """
    clock = _Clock(progress)
    check_providers(options.providers)
    with clock.stage("load"):
        original = load(model)
        infer_shapes(original)
        before, opset_before = _operators(original), original.opset_imports.get("", 0)
    verdict = Verdict("not-run", reason="nothing to verify")
    notes: dict[int, str] = {}
    for fused in _attempts(original, library, options, clock, notes):
        verdict = _verdict(model, fused, options, clock)
        if verdict.verdict != "different":
            break
        notes[fused.opset] = "raised to it, the model is not equivalent to the original"
    skips = tuple(_explained(s, notes) for s in fused.skips)
    unchanged = not fused.rewrites and fused.opset == opset_before
    after = _operators(fused.model)
    result = FuseResult(
        model=model,
        output=None,
        nodes_before=before.total(),
        nodes_after=after.total(),
        opset_before=opset_before,
        opset_after=fused.opset,
        target=options.target,
        providers=options.providers,
        rewrites=fused.rewrites,
        near_misses=fused.near_misses,
        skipped=skips,
        verdict=verdict,
        seconds=clock.seconds,
        unchanged=unchanged,
        size=None if accepts is None else size(fused.model, model if unchanged else None),
        operators_before=before,
        operators_after=after,
    )
    writes = verdict.verdict == "equivalent" or (not options.verify and verdict.verdict == "not-run")
    if output is None or options.dry_run or not writes or (accepts is not None and not accepts(result)):
        return result
    with clock.stage("write"):
        if unchanged:
            hand_on(model, output)
        else:
            save(fused.model, output, model)
    return replace(result, output=output)


def explain(model: Path, library: Library, options: Options, progress: Progress | None = None) -> FuseResult:
    """What fuses in a model, what nearly does, and why not: `fuse` without verifying and without writing."""
    return fuse(model, None, library, replace(options, verify=False, dry_run=True), progress)


def selected(library: Library, options: Options) -> tuple[Pattern, ...]:
    """The patterns that the options leave."""
    return tuple(p for p in library.patterns if (not options.only or p.id in options.only) and p.id not in options.skip)


def _attempts(original: ir.Model, library: Library, options: Options, clock: _Clock, notes: dict[int, str]) -> Iterator[Fused]:
    """The fused models to verify, best first: at the opsets that replacements want, highest first, then at the model's own.

    An opset is only tried where a replacement that wants it is really made there. notes: opset → why it can't be had.
    """
    own = original.opset_imports.get("", 0)
    if options.opset == "keep" or not own:
        yield _rewritten(original, library, options, clock)
        return
    if options.opset != "auto":
        if int(options.opset) < own:
            raise UsageError(
                f"the model has opset {own}, which can't be lowered to {options.opset}", hint="give a higher one, or keep"
            )
        yield _rewritten(_at_opset(original, int(options.opset), clock), library, options, clock)
        return
    plain = _rewritten(original.clone(), library, options, clock)
    for opset in sorted({s.opset for s in plain.skips if s.opset is not None}, reverse=True):
        try:
            raised = _rewritten(_at_opset(original, opset, clock), library, options, clock)
        except ModelError as error:
            notes[opset] = error.message
            continue
        if {s.pattern for s in plain.skips if s.opset == opset} & {r.pattern for r in raised.rewrites}:
            yield raised
    yield plain


def _at_opset(model: ir.Model, opset: int, clock: _Clock) -> ir.Model:
    with clock.stage("raise"):
        if opset > model.opset_imports.get("", 0) > 0:
            model = raise_opset(model, opset)
        infer_shapes(model)
    return model


def _rewritten(model: ir.Model, library: Library, options: Options, clock: _Clock) -> Fused:
    """Rounds of find and rewrite until nothing changes: one fusion enables the next. Changes `model`."""
    patterns = selected(library, options)
    loadability = [Loadability(p) for p in options.providers]
    rewrites: list[Rewrite] = []
    waiting: list[Skip] = []
    for _ in range(MOST_ROUNDS):
        constants = Constants(model)
        with clock.stage("find"):
            found = find(model, patterns, constants=constants)
        with clock.stage("rewrite"):
            made, skips = apply(
                model,
                found.matches,
                target=options.target,
                loadability=loadability,
                constants=constants,
                excerpts=options.excerpts,
            )
        rewrites += made
        if not made:
            break
        # A smaller match may take the place of one that waits for a later opset; that one must not be forgotten.
        waiting += (s for s in skips if s.opset is not None)
    return Fused(model, tuple(rewrites), tuple(dict.fromkeys((*skips, *waiting))), found.near_misses)


def _verdict(model: Path, fused: Fused, options: Options, clock: _Clock) -> Verdict:
    if not options.verify:
        return Verdict("not-run", reason="verification was not asked for")
    if not fused.rewrites and fused.opset == load(model).opset_imports.get("", 0):
        return Verdict("equivalent", reason="nothing fused: the file is the original, byte for byte")
    with clock.stage("verify"), TemporaryDirectory(prefix="onnx-subgraph-") as folder:
        candidate = write_temporary(fused.model, model, Path(folder))
        return verify(
            model,
            candidate,
            providers=options.providers,
            seed=options.seed,
            rtol=options.rtol,
            atol=options.atol,
            shapes=options.shapes,
            inputs=options.inputs,
            weights=model.resolve().parent,
            progress=clock.progress,
        )


def _explained(skip: Skip, notes: Mapping[int, str]) -> Skip:
    """A skip for want of an opset, with why the model could not be raised to it."""
    why = notes.get(skip.opset) if skip.opset is not None else None
    return skip if why is None else replace(skip, reason=f"{skip.reason}; {why}")


def _operators(model: ir.Model) -> Counter[str]:
    """How often each operator is in the model, nested bodies and functions included."""
    nodes = chain(model.graph.all_nodes(), *(f.all_nodes() for f in model.functions.values()))
    return Counter(map(operator_name, nodes))


class _Clock:
    """Tells which stage begins, and adds up the seconds of each."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress: Progress = progress or (lambda stage: None)
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.progress(name)
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun
