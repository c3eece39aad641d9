"""tune(): measure which ways to fuse a model are fastest on this machine.

The model is fused as by default, with one change at a time: without one of its patterns, with all fusions that the table of costs
rejects, with operators of another target. Changes that are clearly faster are kept. If an accuracy is given, products are rounded
as far as it allows, if that is clearly faster too. Engines of backends that the user names are tried last. Finally the result is
compared with the original: if it is slower, nothing is fused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from onnx_subgraph import kernels, temporary
from onnx_subgraph.clock import Progress
from onnx_subgraph.errors import UsageError
from onnx_subgraph.evaluator.truth import UnknownError
from onnx_subgraph.files.models import load
from onnx_subgraph.language.library import Library
from onnx_subgraph.options import Options
from onnx_subgraph.timing import Bench, BenchOptions, Ratio, bench
from onnx_subgraph.timing.tuning import Choice, Tuning, Way, machine
from onnx_subgraph.tuning.making import Made, Maker, away
from onnx_subgraph.tuning.precision import Precision
from onnx_subgraph.verification.libraries import with_libraries

BUDGET = 60.0
"""The time for the runs of a model in seconds."""
CLEARLY = 0.99
"""A change is kept if its ratio is below this in every part of the runs."""
AT_ONCE = 2 << 30
"""The total bytes of models whose sessions are open at the same time; but always at least three models."""


def tune(
    model: Path,
    library: Library,
    options: Options,
    budget: float = BUDGET,
    progress: Progress | None = None,
    backends: Sequence[str] = (),
) -> Tuning:
    """Find how to fuse the model on this machine, on the first provider. The caller must verify the result.

    budget: seconds for runs. backends: their engines are tried too. If the default way fails or is not equivalent, nothing is
    measured. Raises what `fuse`, `partition` and `bench` raise, and UsageError where an accuracy is given that can't be checked.
    """
    with temporary.folder() as folder, with_libraries(options.libraries, library.packs):
        maker = Maker(model, library, options, folder)
        return _Tuner(maker, options, budget, progress or (lambda stage: None), backends).tuned()


class _Tuner:
    """Tunes one model. _share: seconds for each measurement. _choices: everything that was timed. _notes: why others were not."""

    def __init__(self, maker: Maker, options: Options, budget: float, tell: Progress, backends: Sequence[str]) -> None:
        self._maker = maker
        self._options = options
        self._backends = backends
        self._share = budget / (2 + (options.accuracy is not None) + bool(backends))
        self._tell = tell
        self._choices: list[Choice] = []
        self._notes: list[str] = []

    def tuned(self) -> Tuning:
        options = self._options
        self._tell("make it as by default")
        base = self._maker.make("as by default", Way((), options.prefer, options.target, options.numerics), verified=True)
        if base.result.output is None or not (base.differs or self._backends):
            return self._tuning(base.way, None)
        best = self._maker.together(base, self._faster(base, list(self._maker.alternatives(base, self._tell))))
        if options.accuracy is not None:
            best = next(iter(self._faster(best, self._rounded(best, options.accuracy))), best)
        best = next(iter(self._faster(best, self._engines(base))), best)
        return self._confirmed(base, best)

    def _faster(self, base: Made, others: Sequence[Made]) -> list[Made]:
        """Those of the others that are clearly faster than `base`, the fastest first."""
        size = max(2, AT_ONCE // max(1, base.path.stat().st_size) - 1)
        groups = [others[start : start + size] for start in range(0, len(others), size)]
        found: list[tuple[float, Made]] = []
        for group in groups:
            timed = self._timed([base.path, *(made.path for made in group)], self._share / len(groups)).timed[1:]
            for made, ratio in ((made, one.ratio) for made, one in zip(group, timed, strict=True)):
                if ratio is None:
                    continue
                self._choices.append(Choice(made.what, ratio, ratio.most < CLEARLY))
                if ratio.most < CLEARLY:
                    found.append((ratio.ratio, made))
        return [made for _, made in sorted(found, key=lambda pair: pair[0])]

    def _rounded(self, best: Made, accuracy: float) -> list[Made]:
        """The model with as many rounded products as the accuracy allows, one variant for each kind of rounding."""
        if best.way.target != "native":
            return []
        home = self._maker.model.resolve().parent
        precision = Precision(self._maker.truth, load(best.path), home, kernels.describe())
        try:
            found = precision.within(accuracy, self._tell)
        except UnknownError as why:
            hint = "leave --accuracy out, or give --inputs that it can be evaluated on"
            raise UsageError(f"{self._maker.model}: no accuracy can be promised: {why}", hint=hint) from why
        return [
            self._maker.make(
                f"{one.numerics} in {len(one.results)} of {one.of} products: {away(one.error)}",
                replace(best.way, numerics=one.numerics, rounded=one.results, accuracy=accuracy),
            )
            for one in found
        ]

    def _engines(self, base: Made) -> list[Made]:
        """The model with engines of each backend that runs a part of it."""
        made = list(self._maker.by_engines(base, self._backends, self._options.accuracy, self._tell))
        for one in made:
            refused = one.result.engines.refused if one.result.engines else (one.result.verdict.reason,)
            self._notes += [f"{one.what}: {why}" for why in refused if why]
        return [one for one in made if one.has_engines]

    def _confirmed(self, base: Made, best: Made) -> Tuning:
        """`best`, unless the original or `base` is faster."""
        found = self._timed(list(dict.fromkeys([self._maker.model, base.path, best.path])), self._share)
        ratios: Mapping[Path, Ratio | None] = {one.model: one.ratio for one in found.timed}
        fastest = min((best, base), key=lambda made: _ratio(ratios[made.path]))
        whole = ratios[fastest.path]
        nothing_pays = whole is not None and whole.least > 1
        if nothing_pays or fastest is not best:
            self._choices = [replace(choice, taken=False) for choice in self._choices]
        return self._tuning(self._maker.nothing(base), None) if nothing_pays else self._tuning(fastest.way, whole)

    def _timed(self, paths: Sequence[Path], budget: float) -> Bench:
        timing = BenchOptions(
            runtimes=("kernels", "engines") if self._options.target == "native" else ("engines",),
            provider=self._options.providers[0],
            budget=budget,
            seed=self._options.seed,
            shapes=self._options.fixed or self._options.shapes,
            inputs=self._options.inputs,
            memory=False,
        )
        return bench(paths, timing, lambda stage: self._tell(f"tune: {stage}"))

    def _tuning(self, way: Way, whole: Ratio | None) -> Tuning:
        where = machine(self._options.providers[0])
        return Tuning(**asdict(way), choices=tuple(self._choices), whole=whole, machine=where, notes=tuple(self._notes))


def _ratio(ratio: Ratio | None) -> float:
    return float("inf") if ratio is None else ratio.ratio
