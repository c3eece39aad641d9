"""The reference of a verification: the original runs once on each provider, and any number of candidates is compared with it.

The reference is the original with graph optimisation off. The candidate runs with it off and on, on every provider, on feeds of
several sizes and seeds. Many right fusions change an output by a rounding at most. The noise, which takes many runs of the
original, is measured only if a candidate differs by more. Sessions of the reference and of a candidate are never open at the same
time, so that only one takes memory.

The verdict is "equivalent" only on evidence: where no output can show a difference (`showing`), it is "not-run".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnx_subgraph import custom_ops
from onnx_subgraph.evaluator.truth import UnknownError
from onnx_subgraph.files.models import load
from onnx_subgraph.inputs.feeds import read_feeds, unfeedable
from onnx_subgraph.model.local_functions import is_own
from onnx_subgraph.model.overridable import make_constant
from onnx_subgraph.model.shapes import declared_only, infer_shapes
from onnx_subgraph.model.specialize import fix_dimensions
from onnx_subgraph.paths import StrPath, path_of
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.cases import Drawing
from onnx_subgraph.verification.fed import Fed
from onnx_subgraph.verification.flips import Flips
from onnx_subgraph.verification.given_shapes import check_given_shapes
from onnx_subgraph.verification.interface import interface_problems
from onnx_subgraph.verification.judge import Finding
from onnx_subgraph.verification.memory import too_large
from onnx_subgraph.verification.nearness import exactly, inaccurate, nearness
from onnx_subgraph.verification.observed import name_bodies, reached
from onnx_subgraph.verification.randomness import listed
from onnx_subgraph.verification.sessions import Failure, Outputs, Session, check_providers, run
from onnx_subgraph.verification.showing import showings
from onnx_subgraph.verification.trial import CPU, Outcome, Trial, outcomes_of
from onnx_subgraph.verification.verdict import Run, Showing, Verdict

Opener = Callable[[Fed], Session | Failure]
"""Opens a session of a candidate."""


class Reference:
    """The original, run once on each provider; any number of candidates is compared with it.

    The arguments are those of `verify`; wide: whether inputs of many magnitudes are tried as well. Nothing is loaded or run
    before it is needed.
    """

    def __init__(
        self,
        path: Path,
        *,
        providers: Sequence[str] = (CPU,),
        seed: int = 0,
        rtol: float | None = None,
        atol: float | None = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        inputs: StrPath | None = None,
        fixed: Mapping[str, tuple[int, ...]] | None = None,
        constant_initializers: bool = False,
        fix_overflows: bool = False,
        wide: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        check_providers(providers)
        self.path = path
        self.providers = tuple(providers)
        self._seed, self._rtol, self._atol = seed, rtol, atol
        self._shapes, self._inputs, self._fixed = (
            shapes or {},
            None if inputs is None else path_of(inputs, "a file of inputs"),
            fixed or {},
        )
        self._constant_initializers = constant_initializers
        self._fix_overflows, self._wide = fix_overflows, wide
        self._tell = progress or (lambda stage: None)
        self._cases: dict[str, list[Case] | Failure] = {}
        self._drawings: dict[str, Drawing] = {}
        self._flips: dict[str, Flips] = {}
        self._remarks: dict[str, None] = {}

    @cached_property
    def original(self) -> ir.Model:
        """The original with inferred shapes. A caller that has it in memory sets it; nobody changes it."""
        model = load(self.path)
        if self._constant_initializers:
            make_constant(model)
        fix_dimensions(model, self._fixed)
        infer_shapes(model)
        return model

    @cached_property
    def _truth(self) -> Callable[[Mapping[str, Any]], Outputs]:
        return exactly(self.path, self.original, self.fed(self.providers[0]).results)

    def truth(self, feeds: Mapping[str, Any]) -> Outputs:
        """The original evaluated in float64. Raises UnknownError."""
        return self._truth(feeds)

    def verdict(
        self,
        candidate: Path | ir.Model,
        weights: Path | None = None,
        also: Mapping[str, Opener] | None = None,
        coarser: float = 1.0,
    ) -> Verdict:
        """Whether the candidate, a file or a model in memory, computes the same.

        Where no output can show a difference, inputs of many magnitudes are tried as well, from then on.

        weights: the folder of its external data, if that is not its own.
        also: other ways to run it, by the name that their runs report as provider; compared with the first provider's cases. An
        output that differs by more than the noise is still equal if it is as near to the truth as the original's (see
        `nearness`).
        coarser: the factor by which roundings, and so the bounds, are larger for these.
        """
        fused = load(candidate, weights=weights) if isinstance(candidate, Path) else candidate
        file = candidate if isinstance(candidate, Path) else None
        found = self._verdict(fused, file, weights, also or {}, coarser)
        if found.blind and not self._wide and self._inputs is None:
            self._wide = True
            for made in (self._cases, self._drawings, self._flips):
                made.clear()
            found = self._verdict(fused, file, weights, also or {}, coarser)
        return found

    def _verdict(
        self, fused: ir.Model, file: Path | None, weights: Path | None, also: Mapping[str, Opener], coarser: float
    ) -> Verdict:
        """The verdict on the inputs that are drawn now. file: of the candidate, if it has one."""
        self._remarks.clear()
        strength = _strength(fused)
        with declared_only(self.original), declared_only(fused):
            problems = interface_problems(self.original, fused)
        if problems:
            return Verdict("different", strength, problems)
        home = weights or (file or self.path).resolve().parent
        trial = Trial(fused, file, home, named=file is not None and name_bodies(fused))
        runs: list[Run] = []
        for provider in self.providers:
            if isinstance(cases := self.cases(provider), Failure):
                return Verdict("not-run", strength, tuple(runs), cases.message)
            runs += self._compared(provider, self._outcomes(trial, provider, cases))
        for name, opened in also.items():
            self._tell(f"candidate by {name}")
            cases = self.cases(self.providers[0])
            assert not isinstance(cases, Failure)
            ran = outcomes_of(opened(self.fed(self.providers[0])), name, True, cases, also=True)
            runs += self._compared(self.providers[0], ran, coarser, also=True)
        drawings = [self.fed(provider) for provider in self.providers]
        apart = tuple(dict.fromkeys(source for one in drawings for source in one.drawn_otherwise(fused)))
        drawn = (remark for drawing in self._drawings.values() for remark in drawing.remarks)
        unlike = [f"the candidate draws other numbers than {listed(apart)}"] if apart else []
        verdict = Verdict(
            "equivalent" if all(run.equal for run in runs) else "different",
            strength,
            tuple(runs),
            "; ".join(dict.fromkeys((*unlike, *drawn, *self._remarks))),
            tuple(trial.placements),
            self._showings,
            random=tuple(dict.fromkeys(str(source) for one in drawings for source in one.sources if source not in apart)),
            reached=reached(fused, trial.executed),
        )
        return verdict.on_evidence(given=self._inputs is not None)

    def cases(self, provider: str) -> list[Case] | Failure:
        """The original's feeds, outputs and bounds on a provider; or why it does not run there."""
        if provider not in self._cases:
            self._cases[provider] = self._drawn(provider)
        return self._cases[provider]

    def fed(self, provider: str) -> Fed:
        """The random results of the original that are fed on a provider, on which the original runs."""
        return self._drawings[provider].fed

    def measure_noise(self, provider: str) -> None:
        """Widen the bounds of the provider's cases, on which the original runs, by all its noise."""
        while self._widened(provider):
            pass

    def _widened(self, provider: str) -> bool:
        """Widen the bounds of the provider's cases by the next kind of noise. False where there is none."""
        cases, drawing = self.cases(provider), self._drawings[provider]
        assert not isinstance(cases, Failure)
        if drawing.unmeasured:
            self._tell(f"noise on {provider}")
        return drawing.widen(cases)

    def _compared(self, provider: str, outcomes: Iterable[Outcome], coarser: float = 1.0, also: bool = False) -> list[Run]:
        """The outcomes compared with the provider's cases. The noise is measured as far as it decides.

        coarser, also: as for `verdict`.
        """
        found: list[list[Run]] = []
        pending: dict[int, Outcome] = {}
        for index, outcome in enumerate(outcomes):
            found.append(outcome.runs(coarser))
            if not outcome.problem and not all(run.equal for run in found[index]):
                pending[index] = outcome
        flips = self._flips.setdefault(provider, Flips(self._drawings[provider], self._tell))
        while pending and (self._widened(provider) or flips.look(pending.values())):
            for index, outcome in list(pending.items()):
                found[index] = outcome.runs(coarser)
                if all(run.equal for run in found[index]):
                    del pending[index]
        for index, outcome in pending.items():
            if outcome.case.wide:
                found[index] = self._on_large(outcome.case, outcome.runs(coarser, self._nearer))
            elif also:
                found[index] = outcome.runs(coarser, self._nearer)
        return list(itertools.chain.from_iterable(found))

    def _on_large(self, case: Case, runs: list[Run]) -> list[Run]:
        """The runs on large values without those of outputs that the original itself computes wrongly there."""
        lost = inaccurate(case, {run.output: run.error for run in runs if not run.equal and not run.problem}, self._truth)
        for name in lost:
            self._remarks[f"{name} is not compared on large inputs, where the original itself is inaccurate"] = None
        return [run for run in runs if run.output not in lost]

    def _outcomes(self, trial: Trial, provider: str, cases: Sequence[Case]) -> Iterator[Outcome]:
        """The outcomes of a candidate on a provider; only without optimisation where neither it nor the original runs with it."""
        for optimised in (False, True):
            self._tell(f"candidate on {provider}, optimisation {'on' if optimised else 'off'}")
            for outcome in trial.outcomes(provider, optimised, cases, self.fed(provider)):
                if optimised and outcome.problem and self._fails_optimised(provider, outcome.case):
                    self._remarks["with optimisation, onnxruntime does not run the original either, so it was off"] = None
                else:
                    yield outcome

    def _fails_optimised(self, provider: str, case: Case) -> bool:
        """Whether onnxruntime's optimisation keeps the original, too, from running on these feeds."""
        session = self._drawings[provider].open_optimised()
        return isinstance(session, Failure) or isinstance(run(session, case.fed_to(session)), Failure)

    def _nearer(self, case: Case, names: Collection[str], outputs: Outputs) -> Mapping[str, Finding]:
        """The outputs that are as near to the truth as the original's; empty if the user set the bounds."""
        if self._rtol is not None or self._atol is not None:
            return {}
        optimised = self._drawings[self.providers[0]].open_optimised()
        try:
            found = nearness(case, names, optimised, self._truth, outputs)
        except UnknownError as why:
            self._remarks[f"the original can't be evaluated in float64: {why}"] = None
            return {}
        for name in found:
            self._remarks[f"{name} was compared with a float64 evaluation of the original"] = None
        return found

    @property
    def _showings(self) -> tuple[Showing, ...]:
        """What each output can show, on the provider where it shows the most."""
        given = self._rtol is not None or self._atol is not None
        found: dict[str, Showing] = {}
        for provider, drawing in self._drawings.items():
            cases = self._cases[provider]
            assert not isinstance(cases, Failure)
            for one in showings(cases, drawing.fed.random, given=given):
                if one.output not in found or found[one.output].blind:
                    found[one.output] = one
        return tuple(found.values())

    def _drawn(self, provider: str) -> list[Case] | Failure:
        if reason := too_large(self.path):
            return Failure(reason)
        model = self.original
        if self._inputs is None and (reason := unfeedable(model)):
            return Failure(f"{reason}; give them with --inputs")
        self._tell(f"reference on {provider}")
        drawing = Drawing(self.path, model, provider, self._rtol, self._atol, self._fix_overflows, wide=self._wide)
        given = None if self._inputs is None else read_feeds(self._inputs, model.graph.inputs)
        check_given_shapes(model.graph.inputs, self._shapes, given)
        cases = drawing.cases(self._seed, self._shapes, given)
        if not isinstance(cases, Failure):
            self._drawings[provider] = drawing
        return cases


def _strength(model: ir.Model) -> Any:
    """Return "body" if the model has a function definition of ours and no library may have a kernel for it; else "kernel"."""
    if custom_ops.libraries():
        return "kernel"
    nodes = itertools.chain(model.graph.all_nodes(), *(function.all_nodes() for function in model.functions.values()))
    ours = (node for node in nodes if (called := model.functions.get(node.op_identifier())) is not None and is_own(called))
    return "body" if next(ours, None) is not None else "kernel"
