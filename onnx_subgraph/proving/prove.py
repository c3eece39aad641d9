"""prove(): test a pattern on the models that it generates.

Every instance must fuse completely into one rewrite, for each target that can be loaded, and the fused model must be as accurate
as the unfused one, compared with float64. Every mutant must stay unfused, or be correct when fused. Every `keeps` must stay
unfused, and every `fuses` must fuse for one of the targets in its file. Every alternative of the formula and every target must be
proved at least once. A region pattern is proved by its `fuses`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import onnx_ir as ir

from onnx_subgraph.clock import Progress
from onnx_subgraph.collection import collect_if_due
from onnx_subgraph.errors import Span
from onnx_subgraph.evaluator.truth import UnknownError, evaluate
from onnx_subgraph.language.pattern import Case, Pattern
from onnx_subgraph.matching.find import find
from onnx_subgraph.matching.match import Match
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.nested import live
from onnx_subgraph.model.shapes import copied
from onnx_subgraph.proving.comparison import BLIND, PROVIDER, Exact, NotRunError, difference
from onnx_subgraph.proving.coverage import Coverage
from onnx_subgraph.proving.covering import covering, spellings_of_each, spellings_of_pairs
from onnx_subgraph.proving.draw import nearby, shifted, widened
from onnx_subgraph.proving.given import drawn, given, inferred, parsed
from onnx_subgraph.proving.instance import Instance, build
from onnx_subgraph.proving.missing import why_not_found
from onnx_subgraph.proving.mutants import Mutant, mutants, of_each_kind
from onnx_subgraph.proving.spelling import LATEST, Spelling, UnbuildableError
from onnx_subgraph.rewriting.apply import apply
from onnx_subgraph.rewriting.rewrite import Rewrite, Skip
from onnx_subgraph.rewriting.shared_loadability import loadability_of

MOST_MUTANTS = 30
"""The mutants of one pattern that are tried without pairs of alternatives; most patterns have fewer."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of proving a pattern.

    cases: the number of models tried. failures: in words, empty when the pattern is proved.
    targets: target → the number of instances that fused and are equal. notes: spellings that could not be tried, and why.
    unproved: target → why it has no instance, if the pattern is not at fault: nothing on this machine loads its operator.
    """

    pattern: str
    cases: int
    failures: tuple[str, ...]
    targets: Mapping[str, int]
    notes: tuple[str, ...] = ()
    unproved: Mapping[str, str] = field(default_factory=dict)


def prove(pattern: Pattern, tell: Progress = lambda _: None, *, pairs: bool = True) -> Proof:
    """The proof of a pattern on the CPU execution provider. tell: called with the number of models tried so far.

    pairs: whether every pair of alternatives occurs in some model, and every model is fused for every target. Otherwise every
    single alternative occurs; each target gets half of the varied instances, and each mutant is fused for one target.
    Raises PatternError for a model in `keeps` or `fuses` that is none.
    """
    return _Proof(pattern, tell, pairs).run()


@dataclass(frozen=True, slots=True)
class _Fused:
    """An attempt to fuse one model. left: the number of original nodes that remain."""

    model: ir.Model
    matches: tuple[Match, ...]
    rewrites: tuple[Rewrite, ...]
    skips: tuple[Skip, ...]
    left: int


@dataclass(slots=True)
class _Proof:
    pattern: Pattern
    tell: Progress
    pairs: bool
    cases: int = 0
    failures: list[str] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    evaluated: int = 0
    coverage: Coverage = field(init=False)

    def __post_init__(self) -> None:
        self.coverage = Coverage(self.pattern)

    def run(self) -> Proof:
        if self.pattern.is_formula:
            self.instances()
        else:
            for mutant in (m for case in self.pattern.fuses for m in mutants(given(case))):
                self.mutant(mutant)
        for case in self.pattern.keeps:
            self.keeps(case)
        for case in self.pattern.fuses:
            self.fuses(case)
        self.failures += self.coverage.failures(self.notes)
        notes = tuple(f"{note} ({count} times)" if count > 1 else note for note, count in self.notes.items())
        failures = tuple(dict.fromkeys(self.failures))
        return Proof(self.pattern.id, self.cases, failures, self.coverage.targets, notes, self.coverage.unproved())

    def instances(self) -> None:
        """Try every instance of the formula, and the mutants of the plain ones."""
        models = covering(self.pattern)
        since = max([self.spelling(spelling) for spelling in spellings_of_each(models)], default=0)
        if not self.evaluated:
            self.failures.append(f"correct `example`: no model of it is evaluated: {', '.join(self.notes) or 'it gives none'}")
        for spelling in spellings_of_pairs(models, since) if self.pairs else ():
            self.spelling(spelling)
        plain = filter(None, map(self.build, map(Spelling, models.each)))
        for mutant in of_each_kind(plain, most=None if self.pairs else MOST_MUTANTS):
            self.mutant(mutant)

    def spelling(self, spelling: Spelling) -> int:
        """Try one spelling; again at a later opset for targets that need one. Returns the latest opset needed, or 0."""
        later = {t: o for t, o in self.instance(spelling, self.pattern.targets).items() if o > spelling.opset}
        for target, opset in later.items():
            self.instance(replace(spelling, opset=opset), (target,))
        return max(later.values(), default=0)

    def count(self) -> None:
        """Count one more model. The one before may be unused."""
        collect_if_due()
        self.cases += 1
        self.tell(f"{self.cases} model{'' if self.cases == 1 else 's'}")

    # Instances

    def build(self, spelling: Spelling) -> Instance | None:
        """The instance in this spelling, at the latest opset if an operator does not exist at the requested one."""
        for attempt in (spelling, replace(spelling, opset=LATEST)):
            try:
                return build(self.pattern, attempt)
            except UnbuildableError as why:
                reason = str(why)
        if not spelling.is_varied:
            self.notes[f"not built: {reason}"] += 1
        return None

    def instance(self, spelling: Spelling, targets: tuple[str, ...]) -> dict[str, int]:
        """Try one instance for these targets. Returns target → the later opset that it needs."""
        instance = self.build(spelling)
        if instance is None:
            return {}
        try:
            truth = evaluate(instance.proto, instance.feeds)
        except UnknownError as why:
            self.notes.update([] if spelling.is_varied else [f"not evaluated: {why}"])
            return {}
        self.count()
        self.evaluated += 1
        exact = Exact(instance.proto, instance.feeds, truth)
        later: dict[str, int] = {}
        model = inferred(instance.proto)
        if not (self.pairs or spelling.is_plain):
            targets = tuple(Random(self.cases).sample(targets, (len(targets) + 1) // 2))
        for target in targets:
            fused = self.fuse(model, target, str(spelling))
            if fused is None:
                continue
            if fused.skips:
                self.coverage.left(target, fused.skips, replaced=bool(fused.rewrites))
                wanted = (skip.opset for skip in fused.skips if skip.lowering or not fused.rewrites)
                if (opset := next(wanted, None)) is not None:
                    later[target] = opset
            if not fused.rewrites and fused.skips:
                continue
            if not fused.matches and not spelling.is_plain:
                break  # same for every target: a pattern may accept only its example's types and ranks
            if len(fused.rewrites) != 1 or (fused.left and spelling.is_plain):
                found = f"{len(fused.rewrites)} rewrites, {fused.left} nodes left" if fused.rewrites else "it is not found"
                nearly = "" if fused.matches else why_not_found(self.pattern, instance.proto)
                self.failures.append(f"an instance is not fused whole and once: {found} ({spelling}, {target}){nearly}")
            elif self.agrees("a fused instance differs", exact, fused.model, f"{spelling}, {target}"):
                self.coverage.replaced(target, instance.used, fused.rewrites, mixed=spelling.mixed)
                self.wide(instance, spelling, fused, target)
        return later

    def wide(self, instance: Instance, spelling: Spelling, fused: _Fused, target: str) -> None:
        """Compare a fused instance on values of many magnitudes and far from 0, if the spelling is the first of its alternatives.

        What assumes centred values is not compared far from 0.
        """
        if spelling.seed or not spelling.is_plain:
            return
        centred = any("centred" in rewrite.assumes for rewrite in fused.rewrites)
        for where, draw in (("on large values", widened), ("far from 0", shifted)):
            feeds = None if draw is shifted and centred else draw(instance.feeds, self.pattern)
            if feeds is not None:
                near = partial(evaluate, instance.proto, nearby(feeds))
                exact = Exact(instance.proto, feeds, evaluate(instance.proto, feeds), near)
                what, place = f"{where}, a fused instance differs", f"{spelling}, {target}"
                self.agrees(what, exact, fused.model, place, may_be_blind=True)

    def agrees(self, what: str, exact: Exact, model: ir.Model, place: str, *, may_be_blind: bool = False) -> bool:
        """Whether the fused model is as accurate as the unfused one; adds a failure if not, or if that can't be seen."""
        try:
            problem = difference(exact, ir.to_proto(model))
        except NotRunError as why:
            self.notes[f"not run: {why}"] += 1
            return False
        if problem is not None and not (may_be_blind and problem.endswith(BLIND)):
            self.failures.append(f"{what}: {problem} ({place})")
        return problem is None

    # Mutants and hand-written cases

    def mutant(self, mutant: Mutant) -> None:
        self.count()
        exact: Exact | None = None
        model = inferred(mutant.proto)
        targets = self.pattern.targets
        if not self.pairs:  # a definition has the pattern's own formula, so it shows the least
            targets = tuple(sorted(Random(self.cases).sample(targets, len(targets)), key=lambda target: target == "function"))
        for target in targets:
            fused = self.fuse(model, target, mutant.change)
            if fused is None or not fused.matches:
                return
            if not fused.rewrites:
                continue
            try:
                exact = exact or Exact(mutant.proto, mutant.feeds, evaluate(mutant.proto, mutant.feeds))
            except UnknownError:
                return  # the changed model is not valid
            if isinstance(exact.unfused, str):
                return
            self.agrees("a mutant fuses and differs", exact, fused.model, f"{mutant.change}, {target}")
            if not self.pairs:
                return

    def keeps(self, case: Case) -> None:
        self.count()
        model = inferred(parsed(case))
        for target in self.pattern.targets:
            fused = self.fuse(model, target, case.why)
            if fused is None or not fused.matches:
                return
            if fused.rewrites:
                self.failures.append(f"{_at(case.span)}a model to keep is fused for {target}: {case.why}")

    def fuses(self, case: Case) -> None:
        self.count()
        proto = parsed(case)
        exact: Exact | None = None
        refused: dict[str, Sequence[Skip]] = {}
        model = inferred(proto)
        for target in self.pattern.targets:
            fused = self.fuse(model, target, case.why)
            if fused is None:
                continue
            if not fused.matches:
                why = why_not_found(self.pattern, proto)
                self.failures.append(f"{_at(case.span)}a model to fuse is not matched: {case.why}{why}")
                return
            if not fused.rewrites:
                self.coverage.left(target, fused.skips, replaced=False)
                refused[target] = fused.skips
                continue
            try:
                feeds = drawn(proto) if exact is None else exact.feeds
                exact = exact or Exact(proto, feeds, evaluate(proto, feeds))
            except UnknownError as why:
                self.notes[f"not evaluated: {why}"] += 1
                continue
            if self.agrees(f"{_at(case.span)}a model to fuse differs", exact, fused.model, f"{case.why}, {target}"):
                self.coverage.replaced(target, (c for m in fused.matches for c in m.chosen.items()), fused.rewrites)
        reason = self.coverage.refused(case.why, refused)
        if reason is not None:
            self.failures.append(f"{_at(case.span)}a model to fuse is not replaced: {case.why}; {reason}")

    def fuse(self, unfused: ir.Model, target: str, place: str) -> _Fused | None:
        """Apply only this pattern to a copy of the model, for this target. None, and a failure, where that raises."""
        model = copied(unfused)
        constants = Constants(model)
        try:
            found = find(model, [self.pattern], constants=constants)
            before = frozenset(live(model.graph))
            loadability = loadability_of((PROVIDER,))
            rewrites, skips = apply(model, found.matches, target=target, loadability=loadability, constants=constants)
        except Exception as error:  # a bug of this tool; the proof must report it
            self.failures.append(f"fusing raises {type(error).__name__}: {error} ({place}, {target})")
            return None
        self.failures += [f"fusing raises {skip.bug.error} ({place}, {target})" for skip in skips if skip.bug is not None]
        left = sum(node in before and node.op_type != "Constant" for node in live(model.graph))
        return _Fused(model, found.matches, rewrites, skips, left)


def _at(span: Span | None) -> str:
    return f"{span}: " if span is not None else ""
