"""Verifies a rewritten model, and takes back wrong rewrites and other wrong changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from onnx_subgraph.clock import Clock
from onnx_subgraph.inputs.sizes import assignments
from onnx_subgraph.language.library import is_built_in
from onnx_subgraph.options import Options
from onnx_subgraph.rewriting.cutting import Cutting
from onnx_subgraph.rewriting.opsets import Attempt
from onnx_subgraph.rewriting.rewrite import Rewrite
from onnx_subgraph.rewriting.rounds import Fused, Rewriter
from onnx_subgraph.verification.blame import Settled, settle
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.memory import open_file, open_model
from onnx_subgraph.verification.planting import planted
from onnx_subgraph.verification.reference import Reference
from onnx_subgraph.verification.sessions import Failure
from onnx_subgraph.verification.site import CASES, SiteCheck, check_sites
from onnx_subgraph.verification.verdict import Verdict

if TYPE_CHECKING:
    from onnx_subgraph.kernels import Description

UNCHANGED = Verdict("equivalent", reason="nothing fused, so the file is the original, byte for byte")
NOT_RUN = Verdict("not-run", reason="the model was not run", blind=True)
UNVERIFIED = "--provider verifies it on one that is here as well, --no-verify writes it unverified"
"""The hint if every provider is assumed."""


def settled_attempt(
    attempt: Attempt,
    rewriter: Rewriter,
    reference: Reference,
    options: Options,
    clock: Clock,
    opset: int | None,
    library: Description | None,
) -> Settled[Fused]:
    """The attempt, verified, without the rewrites and other changes that made it different.

    opset: the file's own; None if the model differs from the file even without a fusion. library: of kernels; the model must be
    correct with and without it.
    """
    first, model = attempt.fused, reference.path
    if not options.verify:
        unloaded = _why_unloaded(attempt, model, options, clock)
        return Settled(first, unloaded or Verdict("not-run", reason="verification was not asked for"))
    if not options.providers:
        return Settled(first, Verdict("not-run", reason=f"it can't be run on {' or '.join(options.assumed)} here; {UNVERIFIED}"))
    if not first.is_changed and first.opset == opset:
        return Settled(first, UNCHANGED)
    if options.sites_only:
        return _by_sites(attempt, rewriter, model, options, clock, opset)

    judge = _Judge(attempt.base, rewriter, reference, options, clock, library)
    found = judge.verdict(first)
    if found.verdict == "different":
        clock.progress("the outputs differ: which rewrite changes them?")
    if found.verdict == "different" and attempt.raised_for and _differs(attempt.base, reference, clock):
        return Settled(first, found)  # no rewrite is to blame: raised to this opset, the model differs by itself
    settled = settle(first, found, partial(rewriter, attempt.base), judge)
    for less in _doing_less(rewriter, first):
        if settled.verdict.verdict != "different" or settled.ended:
            break
        fused = less(attempt.base)
        settled = settle(fused, judge.verdict(fused), partial(less, attempt.base), judge)
    return _as_it_was(settled, opset)


def _why_unloaded(attempt: Attempt, model: Path, options: Options, clock: Clock) -> Verdict | None:
    """A verdict if a provider loads the original, but not the model raised to an opset that replacements need; None otherwise.

    Each operator may load and the model not: onnxruntime 1.32 can't optimise int8's DequantizeLinear and a Transpose at opset 21.
    """
    with clock.stage("raise"):
        for provider in options.providers if attempt.raised_for else ():
            session = open_model(attempt.fused.model, model.resolve().parent, provider, optimised=True)
            if isinstance(session, Failure) and not isinstance(open_file(model, provider, optimised=True), Failure):
                return Verdict("different", reason=f"{provider} does not load it: {session.message}")
    return None


def _differs(model: ir.Model, reference: Reference, clock: Clock) -> bool:
    with clock.stage("verify"):
        return reference.verdict(model).verdict == "different"


def _by_sites(
    attempt: Attempt, rewriter: Rewriter, model: Path, options: Options, clock: Clock, opset: int | None
) -> Settled[Fused]:
    """The attempt without the rewrites that a check on drawn values does not prove. The model is not run."""
    judge = _BySites(attempt.base, model, options, clock)
    return _as_it_was(settle(attempt.fused, NOT_RUN, partial(rewriter, attempt.base), judge), opset)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Runs the rewritten model beside the original. base: the model before the rewrites. library: of kernels."""

    base: ir.Model
    rewriter: Rewriter
    reference: Reference
    options: Options
    clock: Clock
    library: Description | None

    def verdict(self, fused: Fused) -> Verdict:
        with self.clock.stage("verify"):
            if self.library is None:
                return self.reference.verdict(fused.model)
            from onnx_subgraph.verification.both_ways import both_ways

            return both_ways(self.reference, fused.model, self.library, self.options.numerics)

    def check(self, fused: Fused, thorough: bool) -> list[SiteCheck]:
        later = (fused.model,) if fused.products is None else (fused.products, fused.model)
        return self._checks(fused.cuttings, thorough=thorough or self.options.sites, later=later)

    def doubt(self, fused: Fused, wrong: Collection[Rewrite]) -> list[SiteCheck]:
        theirs = {pattern.id for pattern in self.rewriter.patterns if not is_built_in(pattern.file)}
        suspect = {_how(one) for one in wrong if one.pattern in theirs or one.lowering}
        places = {one.place for one in wrong}
        chosen = [c for c in fused.cuttings if _how(c.rewrite) in suspect and c.rewrite.place not in places]
        return self._checks(chosen, thorough=True, drawn=True, wide=True) if chosen else []

    def planted(self, fused: Fused, rewrite: Rewrite) -> Verdict | None:
        names = {now for cutting in fused.cuttings if cutting.rewrite.place == rewrite.place for _, now in cutting.results}
        with self.clock.stage("verify"):
            wrong = planted(fused.model, names)
            return None if wrong is None else self.reference.verdict(wrong)

    def _checks(self, cuttings: Sequence[Cutting], **how: Any) -> list[SiteCheck]:
        with self.clock.stage("sites"):
            held = partial(check_sites, self.base, self.reference.path, cuttings, fix_overflows=self.options.fix_overflows)
            held = partial(held, **how)
            return [check for provider in self.options.providers for check in held(provider, self.reference.cases(provider))]


@dataclass(frozen=True, slots=True)
class _BySites:
    """Checks each rewrite on drawn values. The model is not run."""

    base: ir.Model
    model: Path
    options: Options
    clock: Clock

    def verdict(self, fused: Fused) -> Verdict:
        return NOT_RUN

    def check(self, fused: Fused, thorough: bool) -> list[SiteCheck]:
        sizes = islice(assignments(list(self.base.graph.inputs), self.options.shapes), CASES)
        cases = [Case(found, self.options.seed, {}) for found in sizes]
        with self.clock.stage("sites"):
            held = partial(check_sites, self.base, self.model, fused.cuttings, fix_overflows=self.options.fix_overflows)
            held = partial(held, thorough=self.options.sites, drawn=True)
            return [_not_blamed(check) for provider in self.options.providers for check in held(provider, cases)]

    def doubt(self, fused: Fused, wrong: Collection[Rewrite]) -> list[SiteCheck]:
        return []  # drawn values show nothing wrong (`_not_blamed`)

    def planted(self, fused: Fused, rewrite: Rewrite) -> Verdict | None:
        return None


def _how(rewrite: Rewrite) -> tuple[str, str, str]:
    """What rewrites have in common that are wrong for the same reason."""
    return rewrite.pattern, rewrite.op, rewrite.lowering


def _as_it_was(settled: Settled[Fused], opset: int | None) -> Settled[Fused]:
    """The result. If every rewrite was undone, the file is the original, and is equivalent without a run."""
    unchanged = not settled.fused.is_changed and settled.fused.opset == opset
    return replace(settled, verdict=UNCHANGED) if unchanged and settled.verdict.verdict == "not-run" else settled


def _not_blamed(check: SiteCheck) -> SiteCheck:
    """The check, unknown instead of wrong: a fusion can rely on the model's own values, such as rows with equal halves."""
    if not check.wrong:
        return check
    return replace(check, accuracy=None, unknown="its result differs on drawn values, and the model was not run to try its own")


def _doing_less(rewriter: Rewriter, fused: Fused) -> Iterator[Rewriter]:
    """The rewriter without each of the changes that are not verified alone, and without both."""
    if fused.flushed:
        yield replace(rewriter, flushing=False)
    if fused.simplified:
        yield replace(rewriter, simplifying=False)
    if fused.flushed and fused.simplified:
        yield replace(rewriter, flushing=False, simplifying=False)
