"""fuse(): load, prepare, find, choose, rewrite, verify, write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_subgraph import __version__
from onnx_subgraph.clock import Clock, Progress
from onnx_subgraph.collection import uncollected
from onnx_subgraph.custom_ops import libraries
from onnx_subgraph.errors import about
from onnx_subgraph.files.models import hand_on, load, save, size
from onnx_subgraph.language.library import Library, is_built_in
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.model.gaps import Gap, gaps
from onnx_subgraph.model.overridable import make_constant, overridable
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.model.specialize import specialize
from onnx_subgraph.operators.names import OWN_DOMAIN, operator_of
from onnx_subgraph.options import Options, checked
from onnx_subgraph.paths import StrPath, path_of
from onnx_subgraph.result import FuseResult
from onnx_subgraph.rewriting import costs
from onnx_subgraph.rewriting.marked import Before, Marked, Marks, check_marks, replace_marked
from onnx_subgraph.rewriting.opsets import Attempt, attempts
from onnx_subgraph.rewriting.rewrite import Place, Skip
from onnx_subgraph.rewriting.rounds import Fused, Rewriter
from onnx_subgraph.rewriting.shared_loadability import loadability_of
from onnx_subgraph.settling import settled_attempt
from onnx_subgraph.simplification.simplify import NOTHING
from onnx_subgraph.targets import FLOAT32
from onnx_subgraph.verification.blame import Settled, Undone
from onnx_subgraph.verification.found_shapes import find_shapes, of_unknown_operators
from onnx_subgraph.verification.libraries import with_libraries
from onnx_subgraph.verification.reference import Reference
from onnx_subgraph.verification.rounding import held_to
from onnx_subgraph.verification.verdict import Verdict

if TYPE_CHECKING:
    from onnx_subgraph.kernels import Description
    from onnx_subgraph.timing import Bench
    from onnx_subgraph.verification.own import OwnWork

WRITTEN_BY = "onnx_subgraph.written_by"
"""Key in the metadata of a model that is not a copy of its original: the program and version that wrote it."""
BENCH_BUDGET = 5.0
"""Seconds to time the original and the result in turn."""
Accepts = Callable[[FuseResult], bool]
"""Called with the whole result, except its output, before it is written: whether to write it."""


def fuse(
    model: StrPath,
    output: StrPath | None,
    library: Library,
    options: Options,
    progress: Progress | None = None,
    accepts: Accepts | None = None,
) -> FuseResult:
    """Fuse one model file: find, rewrite, verify, write. The input is never touched; the output appears whole or not at all.

    output: the file to write, None as with `dry_run`. If nothing fuses, it is a byte-for-byte copy of the input. If the verdict
    is "different", or verification was requested and could not be run, nothing is written.
    accepts: called with a result that would be written; if it returns False, nothing is written.
    Raises ModelError for a model that can't be read or written, UsageError for options that don't fit it, KernelError if the
    target is native and there is no library of kernels.
    """
    model, output = path_of(model), None if output is None else Path(output)
    with with_libraries(options.libraries, library.packs):
        return _fuse(model, output, library, options, progress, accepts)


def _fuse(
    model: Path, output: Path | None, library: Library, options: Options, progress: Progress | None, accepts: Accepts | None
) -> FuseResult:
    options = checked(options)
    clock = Clock(progress)
    reference = _reference(model, library, options, clock)
    own_kernels = _own_kernels() if options.target == "native" else None
    rewriter = _rewriter(library, options, clock)
    original, made_constant = _loaded(model, reference, options, clock)
    before, opset_before = _operators(original), original.opset_imports.get("", 0)
    with about(model):
        if options.fixed:
            with clock.stage("specialize"):
                specialize(original, options.fixed)
        check_marks(original, options.marks)
    as_it_was = Before.of(original) if options.marks else None
    _find_shapes(original, reference, options, clock)
    given_up, replaceable = gaps(original), overridable(original)
    prepared = bool(options.fixed or options.marks or made_constant)
    notes: dict[int, str] = {}
    undone: dict[Place, Undone] = {}
    for attempt in attempts(original, rewriter, options.opset, clock, notes):
        settled = settled_attempt(attempt, rewriter, reference, options, clock, None if prepared else opset_before, own_kernels)
        undone |= {one.rewrite.place: one for one in settled.undone}
        if not _has_failed(attempt, settled):
            break
        failure = "is not equivalent to the original" if options.verify else "does not load"
        notes[attempt.fused.opset] = f"raised to it, the model {failure}"
    fused = settled.fused
    verdict = held_to(settled.verdict, None if options.numerics == FLOAT32 else options.accuracy)
    here, held = {one.rewrite.place for one in settled.undone}, {rewrite.place for rewrite in fused.held}
    undone = {p: one if p in here else replace(one, instead="") for p, one in undone.items() if p in here or p not in held}
    marked, verdict = _marked(fused.model, options.marks, as_it_was, verdict, reference, clock)
    unchanged = not (fused.is_changed or prepared) and fused.opset == opset_before
    if not unchanged:
        fused.model.metadata_props[WRITTEN_BY] = f"onnx-subgraph {__version__}"
        if own_kernels and (ours := {name for domain, name, _ in fused.model.functions if domain == OWN_DOMAIN}):
            from onnx_subgraph.kernels.marked import KERNELS

            fused.model.metadata_props[KERNELS] = " ".join(sorted(ours))
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
        near_misses=tuple(_behind(miss, given_up) for miss in fused.near_misses),
        skipped=tuple(_explained(s, notes) for s in fused.skips if not s.needless),
        verdict=verdict,
        seconds=clock.seconds,
        unchanged=unchanged,
        fixed=options.fixed,
        size=None if accepts is None else size(fused.model, model if unchanged else None),
        undone=tuple(undone.values()),
        sites=settled.sites if options.sites else (),
        own=_own_work(model, fused, options, clock),
        operators_before=before,
        operators_after=after,
        assumed=options.assumed,
        gaps=given_up,
        overridable=replaceable,
        made_constant=made_constant,
        flushed=fused.flushed,
        unflushed=() if fused.flushed else attempt.fused.flushed,
        simplified=fused.simplified,
        unsimplified=NOTHING if fused.simplified else attempt.fused.simplified,
        recurrent=fused.recurrent,
        unrecurrent=tuple(one for one in attempt.fused.recurrent if one.rewrite.place in undone),
        tuning=options.tuning,
        libraries=libraries(),
        marked=marked,
    )
    writes = verdict.verdict == "equivalent" or (not options.verify and verdict.verdict == "not-run")
    writes = writes and not (options.strict and undone)
    if output is None or options.dry_run or not writes or (accepts is not None and not accepts(result)):
        return result
    with clock.stage("write"):
        if unchanged:
            hand_on(model, output)
        else:
            save(fused.model, output, model)
    if options.bench and not unchanged:
        with clock.stage("bench"):
            result = replace(result, bench=_timed(model, output, options))
    return replace(result, output=output)


def _loaded(model: Path, reference: Reference, options: Options, clock: Clock) -> tuple[ir.Model, tuple[str, ...]]:
    """The model with inferred shapes, and the names of initializers that were made constant."""
    with clock.stage("load"), uncollected():
        original = load(model)
        made_constant = make_constant(original) if options.constant_initializers else ()
        if not options.fixed:  # else after the dimensions have their sizes: inference may give them the names of others
            infer_shapes(original)
            reference.original = original
    return original, made_constant


def _reference(model: Path, library: Library, options: Options, clock: Clock) -> Reference:
    """The original, as the options want it verified."""
    return Reference(
        model,
        providers=options.providers,
        seed=options.seed,
        rtol=options.rtol,
        atol=options.atol,
        shapes=options.shapes,
        inputs=options.inputs,
        fixed=options.fixed,
        constant_initializers=options.constant_initializers,
        fix_overflows=options.fix_overflows,
        progress=clock.progress,
        wide=not all(is_built_in(pattern.file) for pattern in library.patterns),  # built-in ones are proved on large values
    )


def _rewriter(library: Library, options: Options, clock: Clock) -> Rewriter:
    """Rewrites a model as the options want it."""
    return Rewriter(
        library.selected(options.target, options.only, options.skip),
        options.target,
        loadability_of(options.providers, options.assumed),
        clock.stage,
        options.excerpts,
        costs.measured(refuses=options.prefer == "speed") if options.target in ("onnxruntime", "native") else costs.NONE,
        options.thorough,
        options.thorough and bool(options.only),
        recording=options.verify,
        flushing=not (options.keep_subnormals or options.only),
        simplifying=options.simplify and not options.only,
        recurring=not (options.keep_loops or options.only),
        numerics=options.numerics,
        rounded=options.rounded,
    )


def _find_shapes(original: ir.Model, reference: Reference, options: Options, clock: Clock) -> None:
    """Set the types and shapes of values whose operators only a library knows, by running the original."""
    if not options.sites_only and libraries() and reference.providers and of_unknown_operators(original):
        with clock.stage("run"):
            provider = reference.providers[0]
            find_shapes(original, reference.path, provider, reference.cases(provider))


def _marked(
    model: ir.Model, marks: Marks, before: Before | None, verdict: Verdict, reference: Reference, clock: Clock
) -> tuple[tuple[Marked, ...], Verdict]:
    """Turn marked parts into operators; returns them and the verdict, a new one if the model is not equivalent with them."""
    if not marks or verdict.verdict == "different":
        return (), verdict
    made = replace_marked(model, marks, before)
    if verdict.verdict != "equivalent":
        return made, verdict
    with clock.stage("verify"):
        again = reference.verdict(model)
    return made, verdict if again.verdict == "equivalent" and verdict.runs else again


def _own_kernels() -> Description:
    """The operators of our library of kernels. Raises KernelError if there is none."""
    from onnx_subgraph import kernels

    return kernels.describe()


def _timed(model: Path, output: Path, options: Options) -> Bench:
    """The time of the fused model beside the original's, on the first provider, and with our kernels if it uses some."""
    from onnx_subgraph.timing import BenchOptions, bench

    timing = BenchOptions(
        runtimes=("onnxruntime", "kernels") if options.target == "native" else ("onnxruntime",),
        provider=options.providers[0],
        seed=options.seed,
        shapes=options.fixed or options.shapes,
        inputs=options.inputs,
        budget=BENCH_BUDGET,
        memory=False,
    )
    return bench([model, output], timing)


def _has_failed(attempt: Attempt, settled: Settled[Fused]) -> bool:
    """Whether to make another attempt: the model is different, or no fusion is left that needed the higher opset."""
    gone = attempt.raised_for and not attempt.raised_for & {r.pattern for r in settled.fused.rewrites}
    return settled.verdict.verdict == "different" or bool(gone)


def _own_work(model: Path, fused: Fused, options: Options, clock: Clock) -> tuple[OwnWork, ...]:
    """Onnxruntime's own fusions in the original and in the fused model, on each provider; () if not requested."""
    if not options.compare_ort:
        return ()
    from onnx_subgraph.verification.own import own_work

    with clock.stage("compare"):
        return tuple(own_work(load(model), fused.model, model, fused.rewrites, p) for p in options.providers)


def _behind(miss: NearMiss, given_up: Sequence[Gap]) -> NearMiss:
    """A near miss caused by an unknown shape, with what would close the gap in shape inference."""
    gap = next((gap for gap in given_up if miss.unknown and gap.behind & {miss.node, miss.anchor}), None)
    return miss if gap is None else replace(miss, change=gap.change)


def _explained(skip: Skip, notes: Mapping[int, str]) -> Skip:
    """A match that needs a higher opset, with why the model could not be raised to it."""
    why = notes.get(skip.opset) if skip.opset is not None else None
    return skip if why is None else replace(skip, reason=f"{skip.reason}; {why}")


def _operators(model: ir.Model) -> Counter[str]:
    """The count of each operator in the model, including nested bodies and functions."""
    nodes = chain(model.graph.all_nodes(), *(f.all_nodes() for f in model.functions.values()))
    return Counter(map(operator_of, nodes))
