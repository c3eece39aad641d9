"""prove(): holds a pattern against the models that it generates.

Every instance must fuse whole and once, for each target that can be loaded, and the fused model must be as near to the float64 truth as
the unfused one; every mutant must be left alone or still be right; every `keeps` must stay and every `fuses` must go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir

from onnx_subgraph.errors import Span
from onnx_subgraph.language.pattern import Case, Pattern
from onnx_subgraph.matching.find import find
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.files import load, save
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.proving.instance import Instance, Unbuildable, build
from onnx_subgraph.proving.mutants import Mutant, mutants
from onnx_subgraph.proving.spelling import LATEST, Spelling, base_spellings, spellings
from onnx_subgraph.proving.truth import Unknown, evaluate
from onnx_subgraph.rewriting.apply import apply
from onnx_subgraph.rewriting.loadability import Loadability
from onnx_subgraph.rewriting.rewrite import Rewrite, Skip
from onnx_subgraph.verification.feeds import draw_feeds
from onnx_subgraph.verification.sessions import Failure, open_session, run

PROVIDER = "CPUExecutionProvider"
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
SLACK = 4.0
"""How many times further from the truth than the unfused model the fused one may be …"""
FLOOR = 64.0
"""… and how many units in the last place of the largest value are always allowed: kernels approximate tanh and erf."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What came of proving a pattern.

    cases: how many models were tried. failures: in words, empty when the pattern is proved. targets: target → how many instances
    fused and were equal; a target that no provider of this machine loads has none, and `notes` says why.
    """

    pattern: str
    cases: int
    failures: tuple[str, ...]
    targets: Mapping[str, int]
    notes: tuple[str, ...] = ()


def prove(pattern: Pattern) -> Proof:
    """The proof of a pattern on the CPU execution provider."""
    return _Proof(pattern).run()


@dataclass(frozen=True, slots=True)
class _Fused:
    """An attempt to fuse one model: the model after it, how it was before, and what was done."""

    model: ir.Model
    rewrites: tuple[Rewrite, ...]
    skips: tuple[Skip, ...]
    matches: int
    left: int


@dataclass(slots=True)
class _Proof:
    pattern: Pattern
    cases: int = 0
    failures: list[str] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    targets: dict[str, int] = field(default_factory=dict)
    loadability: Loadability = field(default_factory=lambda: Loadability(PROVIDER))

    def run(self) -> Proof:
        built = 0
        for spelling in spellings(self.pattern):
            instance = self.build(spelling)
            built += instance is not None and self.instance(instance, str(spelling), plain=spelling.is_plain)
        for spelling in base_spellings(self.pattern):
            instance = self.build(spelling)
            for mutant in mutants(instance) if instance is not None else ():
                self.mutant(mutant)
        for case in self.pattern.keeps:
            self.keeps(case)
        for case in self.pattern.fuses:
            built += self.fuses(case)
        if not built:
            self.failures.append("no model could be built from its example; give real spellings in `fuses`")
        elif not any(self.targets.values()):
            self.failures.append("no target could be proved")
        return Proof(self.pattern.id, self.cases, tuple(self.failures), dict(self.targets), tuple(self.notes))

    def build(self, spelling: Spelling) -> Instance | None:
        """The instance in this spelling, at the latest opset where an operator does not exist at the one asked for."""
        for attempt in (spelling, replace(spelling, opset=LATEST)):
            try:
                return build(self.pattern, attempt)
            except Unbuildable as why:
                reason = str(why)
        self.notes[f"not built ({spelling}): {reason}"] = None
        return None

    def instance(self, instance: Instance, name: str, *, plain: bool) -> bool:
        """One instance for every target; whether it was a valid model at all. plain: of the example's own types."""
        try:
            truth = evaluate(instance.proto, instance.feeds)
        except Unknown as why:
            self.notes[f"not evaluated ({name}): {why}"] = None
            return False
        self.cases += 1
        for target in self.pattern.targets:
            fused = self.fuse(instance.proto, target)
            self.targets.setdefault(target, 0)
            if not fused.rewrites and fused.skips:
                self.notes[f"{target} ({name}): {fused.skips[0].reason}"] = None
                continue
            if not fused.matches and not plain:
                self.notes[f"not found ({name})"] = None  # a pattern may hold for the types of its example only
                continue
            if len(fused.rewrites) != 1 or (fused.left and plain):
                found = f"{len(fused.rewrites)} rewrites, {fused.left} nodes left" if fused.rewrites else "it is not found"
                self.failures.append(f"an instance is not fused whole and once: {found} ({name}, {target})")
                continue
            problem = self.compare(instance.proto, fused.model, instance.feeds, truth)
            if problem is not None:
                self.failures.append(f"a fused instance differs: {problem} ({name}, {target})")
            else:
                self.targets[target] += 1
        return True

    def mutant(self, mutant: Mutant) -> None:
        try:
            truth = evaluate(mutant.proto, mutant.feeds)
        except Unknown:
            return  # the change made no valid model
        self.cases += 1
        for target in self.pattern.targets:
            fused = self.fuse(mutant.proto, target)
            if fused.rewrites:
                problem = self.compare(mutant.proto, fused.model, mutant.feeds, truth)
                if problem is not None:
                    self.failures.append(f"a mutant fuses and differs: {mutant.change}: {problem} ({target})")

    def keeps(self, case: Case) -> None:
        self.cases += 1
        proto = onnx.parser.parse_model(case.model)
        for target in self.pattern.targets:
            if self.fuse(proto, target).rewrites:
                self.failures.append(f"{_at(case.span)}a model to keep is fused for {target}: {case.why}")

    def fuses(self, case: Case) -> bool:
        self.cases += 1
        proto = onnx.parser.parse_model(case.model)
        feeds = {}
        proved = False
        for target in self.pattern.targets:
            fused = self.fuse(proto, target)
            self.targets.setdefault(target, 0)
            if not fused.matches:
                self.failures.append(f"{_at(case.span)}a model to fuse is not matched: {case.why}")
                return False
            if not fused.rewrites:
                self.notes[f"{target}: {fused.skips[0].reason if fused.skips else 'not replaced'}"] = None
                continue
            feeds = feeds or draw_feeds(ir.from_proto(proto), {}, 0)
            try:
                truth = evaluate(proto, feeds)
            except Unknown as why:
                self.notes[f"not evaluated: {why}"] = None
                continue
            problem = self.compare(proto, fused.model, feeds, truth)
            if problem is not None:
                self.failures.append(f"{_at(case.span)}a model to fuse differs: {problem} ({target})")
            else:
                proved = True
                self.targets[target] += 1
        return proved

    def fuse(self, proto: onnx.ModelProto, target: str) -> _Fused:
        """What this pattern alone does to the model for this target."""
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        model = ir.from_proto(copy)
        infer_shapes(model)
        constants = Constants(model)
        found = find(model, [self.pattern], constants=constants)
        rewrites, skips = apply(model, found.matches, target=target, loadability=[self.loadability], constants=constants)
        left = sum(1 for node in model.graph if node.op_type != "Constant") - sum(r.added for r in rewrites)
        return _Fused(model, rewrites, skips, len(found.matches), left)

    def compare(
        self, before: onnx.ModelProto, after: ir.Model, feeds: Mapping[str, np.ndarray], truth: Mapping[str, np.ndarray]
    ) -> str | None:
        """None when the fused model is as near to the truth as the unfused one, else what is wrong."""
        with TemporaryDirectory(prefix="onnx-subgraph-") as folder:
            path = Path(folder) / "fused.onnx"
            save(after, path, None)
            load(path)
            fused = _outputs(path, feeds)
        unfused = _outputs(before.SerializeToString(), feeds)
        if isinstance(fused, str):
            return None if isinstance(unfused, str) else fused  # what did not run before need not run now
        for name, exact in truth.items():
            problem = _distance(fused[name], None if isinstance(unfused, str) else unfused[name], np.asarray(exact))
            if problem is not None:
                return f"{name} {problem}"
        return None


def _outputs(model: Path | bytes, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | str:
    session = open_session(model, PROVIDER, optimised=False)
    outputs = session if isinstance(session, Failure) else run(session, feeds)
    return f"onnxruntime says: {outputs.message}" if isinstance(outputs, Failure) else {n: np.asarray(a) for n, a in outputs.items()}


def _distance(fused: np.ndarray, unfused: np.ndarray | None, exact: np.ndarray) -> str | None:
    if fused.shape != exact.shape:
        return f"has shape {list(fused.shape)}, not {list(exact.shape)}"
    if fused.dtype.kind in "bui":
        return None if bool((fused == exact).all()) else "has other integers"
    with np.errstate(all="ignore"):
        finite = np.isfinite(exact) & (np.abs(exact) < np.finfo(fused.dtype).max / 2 if fused.dtype.kind == "f" else True)
        error = np.abs(fused.astype(np.float64) - exact)[finite]
        noise = 0.0 if unfused is None else np.abs(unfused.astype(np.float64) - exact)[finite].max(initial=0.0)
    scale = max(1e-6, np.abs(exact[finite]).max(initial=0.0))
    bound = SLACK * (0.0 if not np.isfinite(noise) else float(noise)) + FLOOR * EPSILON.get(fused.dtype.name, 2.0**-23) * scale
    worst = float(np.nan_to_num(error, nan=np.inf).max(initial=0.0))
    return None if worst <= bound else f"is {worst:.3g} from the truth, {bound:.3g} is allowed"


def _at(span: Span | None) -> str:
    return f"{span}: " if span is not None else ""


def proofs(patterns: tuple[Pattern, ...]) -> Iterator[Proof]:
    """The proofs of all these patterns, one after another."""
    for pattern in patterns:
        yield prove(pattern)
