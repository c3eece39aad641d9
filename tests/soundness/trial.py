"""One trial of the campaign: fuse a case as the library does it, and look at everything that a fusion promises.

The model stays valid, keeps its interface and its results; fusing raises nothing but the project's own errors, repeats byte for
byte and has nothing left to do the second time; and verification raises no false alarm and undoes nothing. With wrong patterns in
the library it is the other way round: what a wrong pattern did is undone, or the model is not called equivalent.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import onnx

from onnx_subgraph import kernels
from onnx_subgraph.errors import KernelError, OnnxSubgraphError
from onnx_subgraph.options import Options
from onnx_subgraph.pipeline import fuse
from onnx_subgraph.report.blame import sentence
from onnx_subgraph.result import FuseResult
from tests.soundness import graphs, judge, traps
from tests.soundness.graphs import Case
from tests.soundness.planting import library, misleading, wrong

VERIFIED = 10
"""Every so many graphs are fused with verification, too …"""
REPEATED = 5
"""… and every so many a second time."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What went wrong: "invalid", "wrong", "interface", "traceback", "refused", …, and a description.

    "believed": a wrong pattern's rewrite is in a model that is called equivalent. "doubted": a right pattern's rewrite was called
    wrong and undone.
    """

    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of one case. judged, left: elements compared and not comparable. ways: by what they were compared.

    undone: rewrites of wrong patterns that were undone. unshown: those of right ones that were, as nothing showed them.
    """

    case: Case
    patterns: tuple[str, ...] = ()
    finding: Finding | None = None
    judged: int = 0
    left: int = 0
    ways: tuple[str, ...] = ()
    verified: str = ""
    digest: str = ""
    undone: int = 0
    unshown: int = 0


def drawn(seed: int, number: int) -> Case:
    """The case with this number in the campaign with this seed."""
    return graphs.draw_case(Random(f"{seed}/{number}"))


def attempt(case: Case, random: Random, *, verified: bool = False, repeated: bool = True) -> Trial:
    """The trial of a case. random: for the trap that needs a fused model to be set.

    verified: fuse with verification, too. repeated: fuse a second time, which has to write the same bytes.
    """
    with TemporaryDirectory(prefix="onnx-subgraph-campaign-") as folder:
        try:
            if case.trap == traps.COLLISION:
                case = _collided(case, random, Path(folder))
        except OnnxSubgraphError as error:
            return Trial(case, finding=Finding("refused", str(error)))
        problem = judge.problem(case.model)
        if problem is not None:  # a mistake of the generator
            return Trial(case, finding=Finding("no case", problem))
        attempt = _Attempt(case, Path(folder))
        if case.trap == traps.WRONG:
            return attempt.misled()
        return attempt.run(verified=verified or case.trap in traps.DECEPTIONS, repeated=repeated)


def _collided(case: Case, random: Random, folder: Path) -> Case:
    """The case with names of its own that the rewriter would have given."""
    result = _fuse(case, folder, "first")
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    if result.output is None or not traps.collide(random, model, onnx.load(result.output)):
        return replace(case, trap="")
    return replace(case, model=model)


@cache
def _has_kernels() -> bool:
    """Whether this machine has our library, without which nothing is fused for it."""
    try:
        kernels.path()
    except KernelError:
        return False
    return True


def _fuse(case: Case, folder: Path, name: str, source: Path | None = None, *, verify: bool = False) -> FuseResult:
    if source is None:
        source = folder / f"{name}.onnx"
        source.write_bytes(case.model.SerializeToString(deterministic=True))
    target = case.target if case.target != "native" or _has_kernels() else "function"
    options = Options(target=target, opset=case.opset, verify=verify, prefer="fusion")
    patterns = misleading() if case.trap == traps.WRONG else library()
    return fuse(source, folder / f"{name}.fused.onnx", patterns, options)


@dataclass(slots=True)
class _Attempt:
    case: Case
    folder: Path

    def run(self, *, verified: bool, repeated: bool) -> Trial:
        trial = Trial(self.case)
        try:
            result = _fuse(self.case, self.folder, "model")
        except OnnxSubgraphError as error:
            if self.case.opset.isdigit() and "raised" in error.message:  # some models can't be
                self.case = replace(self.case, opset="keep")
                return self.run(verified=verified, repeated=repeated)
            return replace(trial, finding=Finding("refused", str(error)))
        except Exception:
            return replace(trial, finding=Finding("traceback", traceback.format_exc(limit=-12)))
        assert result.output is not None
        content = result.output.read_bytes()
        trial = replace(
            trial, patterns=tuple(r.pattern for r in result.rewrites), digest=hashlib.sha256(content).hexdigest()[:16]
        )
        finding = self.again(result, content, repeated=repeated) or self.promises(result)
        if finding is not None or (not result.rewrites and result.opset_before == result.opset_after):
            return replace(trial, finding=finding)
        fused = onnx.load(result.output)
        problem = judge.problem(fused)
        held = judge.Judge(self.case.model, self.case.feeds)
        if problem is not None and not held.loads():  # the checker infers less of the original than onnxruntime, which refuses it
            problem = None
        finding = Finding("invalid", problem) if problem is not None else interface(self.case.model, fused)
        if finding is None:
            difference = held.difference(fused)
            finding = None if difference is None else Finding("wrong", difference)
        trial = replace(trial, finding=finding, judged=held.judged, left=held.left, ways=tuple(sorted(held.ways)))
        return self.verified(trial) if verified else trial

    def misled(self) -> Trial:
        """Fuse with wrong patterns in the library, which only verification can tell from right ones."""
        trial = Trial(self.case)
        try:
            result = _fuse(self.case, self.folder, "model", verify=True)
        except OnnxSubgraphError as error:
            return replace(trial, finding=Finding("refused", str(error)))
        except Exception:
            return replace(trial, finding=Finding("traceback", traceback.format_exc(limit=-12)))
        verdict = result.verdict
        names = {p.id for p in wrong()}
        fooled = [r for r in result.rewrites if r.pattern in names]
        trial = replace(
            trial,
            patterns=tuple(r.pattern for r in result.rewrites),
            verified=verdict.verdict,
            undone=sum(one.rewrite.pattern in names for one in result.undone),
            unshown=sum(one.found == "nowhere" and one.rewrite.pattern not in names for one in result.undone),
        )
        if fooled and verdict.verdict == "equivalent":
            words = ", ".join(f"{r.pattern} at {r.root}" for r in fooled)
            return replace(trial, finding=Finding("believed", f"called equivalent with {words}"))
        if result.output is None:
            return trial
        trial = replace(trial, digest=hashlib.sha256(result.output.read_bytes()).hexdigest()[:16])
        held = judge.Judge(self.case.model, self.case.feeds)
        doubted = doubts(result, names)
        if doubted and not held.breaks_when_optimised() and not self.spoiled():
            return replace(trial, finding=Finding("doubted", doubted))
        if result.unchanged:
            return trial
        difference = held.difference(onnx.load(result.output))
        finding = None if difference is None else Finding("wrong", difference)
        return replace(trial, finding=finding, judged=held.judged, left=held.left, ways=tuple(sorted(held.ways)))

    def again(self, result: FuseResult, content: bytes, *, repeated: bool) -> Finding | None:
        """The same input gives the same bytes, and a fused model has nothing left to fuse."""
        if repeated:
            second = _fuse(self.case, self.folder, "model").output
            if second is None or second.read_bytes() != content:
                return Finding("not repeatable", "a second run wrote other bytes")
        if not result.rewrites:
            return None
        try:
            twice = _fuse(self.case, self.folder, "twice", result.output)
        except OnnxSubgraphError as error:
            return Finding("refused", f"the fused model: {error}")
        if twice.rewrites:
            return Finding("not idempotent", "fusing again: " + ", ".join(r.pattern for r in twice.rewrites))
        return None

    def promises(self, result: FuseResult) -> Finding | None:
        """If nothing fused, the file equals the original byte for byte."""
        if result.unchanged and result.output is not None and result.output.read_bytes() != result.model.read_bytes():
            return Finding("changed", "nothing fused, and the file is another one")
        return None

    def verified(self, trial: Trial) -> Trial:
        try:
            result = _fuse(self.case, self.folder, "verified", verify=True)
        except OnnxSubgraphError as error:
            return replace(trial, finding=Finding("refused", f"with verification: {error}"))
        except Exception:
            return replace(trial, finding=Finding("traceback", traceback.format_exc(limit=-12)))
        verdict, doubted = result.verdict, doubts(result)
        trial = replace(trial, unshown=sum(one.found == "nowhere" for one in result.undone))
        alarm = verdict.verdict == "different" or bool(doubted)
        if alarm and judge.Judge(self.case.model, self.case.feeds).breaks_when_optimised():
            return replace(trial, verified="different, like the original after onnxruntime's optimisation")
        if alarm and self.spoiled():
            return replace(trial, verified="different, caused by onnxruntime's optimisation of the fused model")
        if verdict.verdict == "different" and trial.finding is None:
            why = next((run.problem for run in verdict.runs if run.problem), str(verdict)[:600])
            return replace(trial, verified=verdict.verdict, finding=Finding("false alarm", why))
        if doubted and trial.finding is None:
            return replace(trial, verified=verdict.verdict, finding=Finding("doubted", doubted))
        return replace(trial, verified=verdict.verdict)

    def spoiled(self) -> bool:
        """Whether onnxruntime's own optimisation makes another model of the fused one, as it is without verification."""
        fused = _fuse(self.case, self.folder, "unverified").output
        return fused is not None and judge.Judge(onnx.load(fused), self.case.feeds).breaks_when_optimised()


def doubts(result: FuseResult, names: Collection[str] = ()) -> str:
    """The rewrites that were called wrong and undone, and why, but for those of the patterns of these names; "" for none.

    A rewrite that gives a number where the original has none is undone as well, but it is not called wrong. Nor is one with which
    onnxruntime refuses sizes, because it gives one buffer to values whose dimensions have one name, such as `?`.
    """
    called_wrong = (u for u in result.undone if u.found != "nowhere" and not u.overflows)
    said = (sentence(u) for u in called_wrong if u.rewrite.pattern not in names)
    return "; ".join(one for one in said if "Shape mismatch attempting to" not in one)


def interface(before: onnx.ModelProto, after: onnx.ModelProto) -> Finding | None:
    """Inputs and outputs, with their names, order, types and dimensions, and which inputs have a value of their own."""
    for part in ("input", "output"):
        old, new = ([(v.name, v.type.SerializeToString()) for v in getattr(m.graph, part)] for m in (before, after))
        if old != new:
            return Finding("interface", f"the {part}s are {[n for n, _ in new]} of other types than {[n for n, _ in old]}")
    inputs = {v.name for v in before.graph.input}
    old_values, new_values = ({t.name for t in m.graph.initializer if t.name in inputs} for m in (before, after))
    if old_values != new_values:
        return Finding("interface", f"of the inputs {sorted(old_values)} only {sorted(new_values)} have a value of their own")
    return None
