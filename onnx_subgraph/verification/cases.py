"""Make the cases of a verification: feeds, the original's outputs for them, and the bounds for a candidate.

Sizes and seeds are tried until the original runs with optimisation off. The bounds are the user's, or at first those of one
rounding of the outputs. A candidate that exceeds these has them widened by the noise of the original: how far its outputs move
with optimisation on, and with random noise added inside. All sessions are closed when the cases are made.

Random operators run once; from then on their results are fed as inputs (`fed`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_subgraph.inputs.draws import Floats
from onnx_subgraph.inputs.feeds import Feeds, draw_feeds, required_inputs, sizes_of
from onnx_subgraph.inputs.refusal import Refusals
from onnx_subgraph.inputs.sizes import FIRST, SECOND, Likely, Sizes, fixed_by, with_ones
from onnx_subgraph.verification.blocks import Array
from onnx_subgraph.verification.bounds import Bound, Noise, bound
from onnx_subgraph.verification.case import COARSE, Case, measure
from onnx_subgraph.verification.fatal import guarded
from onnx_subgraph.verification.fed import Fed, fed
from onnx_subgraph.verification.judge import flatten
from onnx_subgraph.verification.labels import of_labels
from onnx_subgraph.verification.larger import at_usual_sizes, larger
from onnx_subgraph.verification.memory import open_file, open_model
from onnx_subgraph.verification.noise import noisy
from onnx_subgraph.verification.parts import note_parts
from onnx_subgraph.verification.search import first_that_runs, long_trials, on_smaller_images, timed, trials
from onnx_subgraph.verification.sessions import Failure, Session, run
from onnx_subgraph.verification.showing import UNDEFINED, is_too_wide, showings
from onnx_subgraph.verification.verdict import Showing

DRAWS = 2
"""Runs with added noise per case; one where the model is slow. The run with optimisation on is extra."""
COST = 6.0
"""The time of a run with added noise, relative to a plain run. Most of it is drawing random numbers."""
SECONDS = 5.0
"""The time limit for all runs on one provider, estimated from the first run.

If it is too short, first draws, then cases are dropped.
"""
LABEL_SECONDS = 0.5
"""The time limit for further cases of a model with few labels, estimated like `SECONDS`."""
MORE = 16
"""The most further runs with added noise per case, for a candidate that exceeds the bounds so far. They have `SECONDS`, too."""
SLOW = SECONDS / (4 * (4 + COST))
"""If a run takes more seconds, fewer than four sets of feeds fit into the time limit, and smaller images are tried."""
PATIENCE = 1.0
"""A model whose run takes less than these seconds is run at two sizes in any case."""
NOT_REGISTERED = "is not a registered function/op"
"""onnxruntime's message for an operator that neither it nor a library has."""
LARGER = (512, 2048, 8192)
"""Lengths to try where the outputs show nothing. For example, audio shorter than a window gives silence."""


@dataclass(slots=True)
class Drawing:
    """The original on one provider: finds cases that run on it, and sets their outputs and bounds.

    fed: the original without its random operators, as the cases feed it, once there are cases. unmeasured: the
    kinds of noise that the bounds do not include. wide: whether to try inputs of many magnitudes as well.
    """

    path: Path
    model: ir.Model
    provider: str
    rtol: float | None
    atol: float | None
    fix_overflows: bool = False
    remarks: list[str] = field(default_factory=list)
    draws: int = DRAWS
    wide: bool = False
    fed: Fed = field(init=False)
    unmeasured: list[str] = field(init=False)
    _noises: list[dict[str, Noise]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.fed = Fed(self.model)
        self.unmeasured = ["optimised", "noisy", "noisier"] if self.rtol is None and self.atol is None else []

    def cases(self, seed: int, shapes: Mapping[str, tuple[int, ...]], given: Feeds | None) -> list[Case] | Failure:
        """The cases with outputs and bounds. A Failure, with a next step, when the reference does not run."""
        session = self._open_original(optimised=False)
        if isinstance(session, Failure):
            named = "; --custom-op-library names the library that has an operator" if NOT_REGISTERED in session.message else ""
            return Failure(f"onnxruntime does not load the original model: {session.message}{named}")
        if given is not None:
            return self._prepared(session, self._given(session, given))
        cases = self._prepared(session, self._drawn(session, seed, shapes))
        if isinstance(cases, Failure):
            return cases
        if undefined := [showing.output for showing in self._blind(cases) if showing.blind == UNDEFINED]:
            others = self._better(session, cases, self._with_positive(session, seed, shapes))
            if others is not cases:
                self._say(f"some feeds have only positive floats, because otherwise {undefined[0]} is NaN or infinite everywhere")
            cases = others
        for length in LARGER:
            if cases[0].seconds > PATIENCE or not self._is_flat(cases):
                break
            cases = self._better(session, cases, self._drawn(session, seed, shapes, length))
        return cases

    def _with_positive(self, session: Session, seed: int, shapes: Mapping[str, tuple[int, ...]]) -> list[Case] | Failure:
        """Cases of which half have only positive floats, as logarithms and roots need them."""
        both = [self._drawn(session, seed, shapes, floats=floats) for floats in ("normal", "positive")]
        drawn = [cases for cases in both if not isinstance(cases, Failure)]
        return [case for cases in drawn for number, case in enumerate(cases) if number < 2 or case.wide]

    def _better(self, session: Session, cases: list[Case], drawn: list[Case] | Failure) -> list[Case]:
        """Cases that were drawn in another way, if more outputs show something there; else the given ones."""
        before = self.fed, list(self.remarks)
        others = self._prepared(session, drawn)
        if not isinstance(others, Failure) and len(self._blind(others)) < len(self._blind(cases)):
            return others
        self.fed, self.remarks = before
        return cases

    def _blind(self, cases: Sequence[Case]) -> list[Showing]:
        """The outputs that show nothing: empty, NaN or infinite, the same for all feeds, or random."""
        return [showing for showing in showings(cases, self.fed.random, given=True) if showing.blind]

    def _is_flat(self, cases: Sequence[Case]) -> bool:
        return len(self._blind(cases)) == len(flatten(cases[0].outputs))

    def _prepared(self, session: Session, cases: list[Case] | Failure) -> list[Case] | Failure:
        """The cases with bounds, and with the results of random operators as feeds."""
        if isinstance(cases, Failure):
            return cases
        found = fed(self.model, session, cases, self._open)
        if isinstance(found, Failure):
            return found
        self.fed = found
        if all(not flatten(case.outputs) for case in cases):
            return Failure("the model has no output that could be compared")
        note_parts(cases, found.model, partial(self._open, optimised=True))
        self._bound(cases, [{}] * len(cases))
        return cases

    def _open(self, model: ir.Model, *, optimised: bool = False, inferred: bool = False) -> Session | Failure:
        """A session of a changed copy of the original."""
        home = self.path.resolve().parent
        return open_model(model, home, self.provider, optimised=optimised, inferred=inferred)

    def _open_original(self, *, optimised: bool) -> Session | Failure:
        session = open_file(self.path, self.provider, optimised=optimised)
        return session if isinstance(session, Failure) else guarded(session, self.model, self.path, self.provider)

    def open_optimised(self) -> Session | Failure:
        """The original with optimisation on, which reads the random results that cases feed."""
        return self._open(self.fed.model, optimised=True) if self.fed.sources else self._open_original(optimised=True)

    def _given(self, session: Session, given: Feeds) -> list[Case] | Failure:
        outputs, seconds = timed(session, given, alone=self._alone)
        if isinstance(outputs, Failure):
            return Failure(f"the original model does not run on the feeds given: {outputs.message}")
        return [Case(sizes_of(given, self.model.graph.inputs), None, given, outputs, seconds=seconds)]

    def _drawn(
        self, session: Session, seed: int, shapes: Mapping[str, tuple[int, ...]], length: int = 0, floats: Floats = "normal"
    ) -> list[Case] | Failure:
        """Cases of two sizes, with ones, and of other values, if possible. length: tries sizes of this length, if not 0."""
        inputs = required_inputs(self.model)
        refusals = Refusals(self.model, frozenset(fixed_by(inputs, shapes)))
        found = partial(self._found, session, refusals, floats=floats)
        first, second = found(self._trials(shapes, FIRST, length), seed), SECOND
        if isinstance(first, Failure):
            return first
        if not length:
            first, second = on_smaller_images(first, seed, SLOW, found, partial(trials, self.model, shapes))
        cases, seconds = [first], first.seconds

        def affordable_with(draws: int) -> int:
            # each case: reference with optimisation off and on, two runs of the candidate, and the noisy runs
            return int(SECONDS / max(1e-3, seconds * (4 + draws * COST)))

        self.draws = DRAWS if affordable_with(DRAWS) >= 4 else 1
        affordable = max(affordable_with(self.draws), 2 if seconds < PATIENCE else 1)
        if affordable < 4:
            self.remarks.append(f"{max(1, affordable)} of 4 sets of feeds were run, because one run takes {seconds:.1f} s")
        if affordable >= 2:
            others = self._trials(shapes, second, length - length // 4)
            other = found(others, seed + 1, other_than=first.sizes, seconds=SECONDS / 2)
            if not isinstance(other, Failure):
                cases.append(other)
        ones = [(sizes, seed + 2 + index) for index, sizes in enumerate(with_ones(inputs, shapes, first.sizes))]
        seeds = (2, 3) if len(cases) > 1 else (1, 3)  # in odd ones, initializers that a run can override have other values
        more = [(case.sizes, seed + at) for case, at in zip((first, cases[-1]), seeds, strict=True)]
        for sizes, at in [*ones, *more]:
            if len(cases) < min(4, affordable):
                feeds = draw_feeds(self.model, sizes, at, floats)
                outputs = run(session, feeds)
                if not isinstance(outputs, Failure):
                    cases.append(Case(dict(sizes), at, feeds, outputs))
        cases += of_labels(self.model, session, cases, fixed_by(inputs, shapes), floats, LABEL_SECONDS / (4 + self.draws * COST))
        if self.wide and self.rtol is None and self.atol is None and affordable >= 2:
            cases += larger(self.model, session, first, fixed_by(inputs, shapes), free=affordable >= 4)
            cases += at_usual_sizes(self.model, first, shapes, found)
        return cases

    def _trials(self, shapes: Mapping[str, tuple[int, ...]], likely: Likely, length: int) -> Iterator[Sizes]:
        return long_trials(self.model, shapes, likely, length) if length else trials(self.model, shapes, likely)

    def _found(self, session: Session, refusals: Refusals, trials: Iterator[Sizes], seed: int, **search: Any) -> Case | Failure:
        return first_that_runs(self.model, session, refusals.guided(trials), refusals, seed, alone=self._alone, **search)

    @property
    def _alone(self) -> bool:
        """Whether the provider uses only the CPU."""
        return self.provider == "CPUExecutionProvider"

    def widen(self, cases: Sequence[Case]) -> bool:
        """Widen the bounds of the cases by the next kind of noise. False where all was measured, or the bounds are the user's.

        First comes the original with optimisation on. Then come the runs with added noise, and more of them: few runs show how
        far one number moves less well than how far many do. Each kind only widens the bounds.
        """
        more = min(MORE, int(SECONDS / (COST * len(cases) * max(1e-3, cases[0].seconds))))
        if not self.unmeasured or (self.unmeasured == ["noisier"] and not more):
            return False
        kind = self.unmeasured.pop(0)
        self._noises = self._noises or [{name: case.no_noise(name) for name in flatten(case.outputs)} for case in cases]
        if kind == "optimised":
            measure(self.open_optimised(), cases, self._noises, 1)
            self._bound(cases, self._noises)
            self._leave_spoiled(cases)
            return True
        few = kind == "noisy"
        noisy = self.open_noisy(1 if few else 2)
        if isinstance(noisy, Failure):
            self._say("the noise was measured between optimisation levels only")
        steady = measure(noisy, cases, self._noises, self.draws if few else more, with_flips=few)
        if few:
            self._leave_out([case for case, is_steady in zip(cases, steady, strict=True) if not is_steady], cases)
        self._bound(cases, self._noises)
        return True

    def _leave_spoiled(self, cases: Sequence[Case]) -> None:
        """Compare outputs that optimisation changes in shape, or by more than a rounding, without it only: onnxruntime errs."""
        for case, noises in zip(cases, self._noises, strict=True):
            for name, array in flatten(case.outputs).items():
                measured = case.bounds[name].times(1.0 / COARSE if case.coarse else 1.0)
                if name not in self.fed.random and (noises[name].reshaped or is_too_wide(array, measured)):
                    case.spoiled.add(name)
                    noises[name] = case.no_noise(name)
                    case.bounds[name] = self._bound_of(name, array, noises[name], case)
                    self._say(f"{name} is compared without optimisation only: onnxruntime's changes it in the original")

    def _bound(self, cases: Sequence[Case], noises: Sequence[Mapping[str, Noise]]) -> None:
        """Set the bounds of all cases from rtol and atol, or from the noise."""
        for case, noise in zip(cases, noises, strict=True):
            known = {name: (a, noise.get(name) or case.no_noise(name)) for name, a in flatten(case.outputs).items()}
            case.bounds = {name: self._bound_of(name, *one, case) for name, one in known.items()}

    def _bound_of(self, name: str, array: Array, noise: Noise, case: Case) -> Bound:
        if name in self.fed.random:
            return Bound(np.asarray(np.inf), free=np.ones(array.shape, bool))
        if noise.unsteady is not None and not self.fix_overflows:
            self._say(f"{name} is NaN or infinite at some elements in the original, and a number where onnxruntime optimises it")
        allowed = bound(array, noise, rtol=self.rtol, atol=self.atol, fix_overflows=self.fix_overflows, flushed=case.wide)
        return allowed.times(COARSE if case.coarse else 1.0)

    def _say(self, remark: str) -> None:
        self.remarks += [] if remark in self.remarks else [remark]

    def _leave_out(self, unsteady: Sequence[Case], cases: Sequence[Case]) -> None:
        """Compare no longer on the cases that no noise was measured on, if there are others."""
        if len(unsteady) == len(cases):
            self._say("the noise was not measured, because runs with it fail or change a shape: the bounds may be too tight")
        elif unsteady:
            these = f"{len(unsteady)} of {len(cases)} sets of feeds are"
            self._say(f"{these} not compared, because there a rounding inside the original changes a shape or makes it fail")
            for case in unsteady:
                case.unsteady = True

    def open_noisy(self, seed: int = 1, **noise: Any) -> Session | Failure:
        """A session with added noise, with all shapes declared if possible: onnxruntime opens that several times faster."""
        model = noisy(self.fed.model, seed, **noise)
        if isinstance(model, str):
            return Failure(model)
        session = self._open(model, inferred=True)
        return self._open(model) if isinstance(session, Failure) else session
