"""tune(): which fusions of a model pay on this machine, by measuring it.

The model is made as `fuse` would make it, once more without each of its patterns, and once with all that the table of costs
leaves apart. What is clearly faster is taken, and the whole is held against the original: it is not slower, or nothing is fused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onnx_subgraph import temporary
from onnx_subgraph.clock import Progress
from onnx_subgraph.language.library import Library
from onnx_subgraph.options import Options
from onnx_subgraph.pipeline import fuse
from onnx_subgraph.result import FuseResult
from onnx_subgraph.timing import Bench, BenchOptions, Ratio, bench
from onnx_subgraph.timing.tuning import Choice, Tuning, machine

BUDGET = 60.0
"""Seconds of running that a model gets."""
CLEARLY = 0.99
"""What a change must reach in every part of the run to be taken."""
MOST = 16
"""Patterns that are tried, those with the most fusions first."""
AT_ONCE = 2 << 30
"""Bytes of models whose sessions stand at the same time; three models in any case."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A way to fuse the model. what: in words. skip: patterns that it leaves alone besides. prefer: see `Options`."""

    what: str
    path: Path
    result: FuseResult
    skip: tuple[str, ...] = ()
    prefer: str = "speed"


def tune(model: Path, library: Library, options: Options, budget: float = BUDGET, progress: Progress | None = None) -> Tuning:
    """What to fuse of the model on this machine, on the first provider. Nothing is verified: whoever fuses it so does that.

    budget: seconds of running. Raises what `fuse` and `bench` raise.
    """
    tell = progress or (lambda stage: None)
    with temporary.folder() as folder:
        maker = _Maker(
            model,
            library,
            replace(options, verify=False, dry_run=False, strict=False, sites=False, bench=False, compare_ort=False),
            folder,
        )
        base = maker.make("as by default", (), options.prefer)
        if base.result.unchanged:
            return Tuning((), options.prefer, machine=machine(options.providers[0]))
        choices: list[Choice] = []
        others = list(maker.alternatives(base, tell))
        size = max(2, AT_ONCE // max(1, base.path.stat().st_size) - 1)
        groups = [others[start : start + size] for start in range(0, len(others), size)]
        for group in groups:
            found = _measured([base, *group], options, budget / 2 / len(groups), tell)
            ratios = [one.ratio for one in found.timed[1:]]
            choices += [Choice(made.what, r, r.most < CLEARLY) for made, r in zip(group, ratios, strict=True) if r is not None]
        taken = [made for made in others if any(choice.taken and choice.what == made.what for choice in choices)]
        return _confirmed(maker, base, taken, choices, options, budget / 2, tell)


class _Maker:
    """Makes the model in one way or another, in a folder."""

    def __init__(self, model: Path, library: Library, options: Options, folder: Path) -> None:
        self.model = model
        self._library = library
        self._options = options
        self._folder = folder
        self._count = 0

    def make(self, what: str, skip: tuple[str, ...], prefer: str) -> _Made:
        self._count += 1
        path = self._folder / f"{self._count}.onnx"
        options = replace(self._options, skip=(*self._options.skip, *skip), prefer=prefer)
        return _Made(what, path, fuse(self.model, path, self._library, options), skip, prefer)

    def alternatives(self, base: _Made, tell: Progress) -> Iterator[_Made]:
        """The other ways that make another model than `base`."""
        if base.prefer == "speed":
            tell("make it with all fusions")
            everything = self.make("with all fusions, whatever the table of costs says", (), "fusion")
            if everything.result.operators_after != base.result.operators_after:
                yield everything
        used = Counter(rewrite.pattern for rewrite in base.result.rewrites)
        for pattern, _ in used.most_common(MOST):
            tell(f"make it without {pattern}")
            yield self.make(f"without {pattern}", (pattern,), base.prefer)


def _measured(ways: Sequence[_Made], options: Options, budget: float, tell: Progress) -> Bench:
    return bench([made.path for made in ways], _timing(options, budget), lambda stage: tell(f"tune: {stage}"))


def _timing(options: Options, budget: float) -> BenchOptions:
    return BenchOptions(
        runtimes=("kernels",) if options.target == "native" else ("onnxruntime",),
        provider=options.providers[0],
        budget=budget,
        seed=options.seed,
        shapes=options.fixed or options.shapes,
        inputs=options.inputs,
        memory=False,
    )


def _confirmed(
    maker: _Maker,
    base: _Made,
    taken: Sequence[_Made],
    choices: Sequence[Choice],
    options: Options,
    budget: float,
    tell: Progress,
) -> Tuning:
    """What is taken, all together, where that is no slower than the original and than `base`."""
    skip = tuple(pattern for made in taken for pattern in made.skip)
    prefer = "fusion" if any(made.prefer == "fusion" != base.prefer for made in taken) else base.prefer
    together = maker.make("together", skip, prefer) if taken else base
    paths = list(dict.fromkeys([maker.model, base.path, together.path]))
    found = bench(paths, _timing(options, budget), lambda stage: tell(f"tune: {stage}"))
    ratios: Mapping[Path, Ratio | None] = {one.model: one.ratio for one in found.timed}
    best = min((base, together), key=lambda made: _ratio(ratios[made.path]))
    whole = ratios[best.path]
    everything = tuple(dict.fromkeys(rewrite.pattern for rewrite in best.result.rewrites))
    if whole is not None and whole.least > 1:
        return Tuning((*best.skip, *everything), best.prefer, tuple(choices), None, machine(options.providers[0]))
    kept = choices if best is together else [replace(choice, taken=False) for choice in choices]
    return Tuning(best.skip, best.prefer, tuple(kept), whole, machine(options.providers[0]))


def _ratio(ratio: Ratio | None) -> float:
    return float("inf") if ratio is None else ratio.ratio
