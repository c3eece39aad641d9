"""bench(): time models side by side, as ratios to the first one, with their spread.

All models run in one process, in turn, on the same feeds. The sizes are the user's, or usual ones that the first model accepts:
one image, or one text of 128 tokens, or small ones if a run with them is long. A run is timed as an application makes it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_subgraph import temporary
from onnx_subgraph.clock import Progress
from onnx_subgraph.errors import ModelError, UsageError
from onnx_subgraph.files.models import load, save
from onnx_subgraph.inputs.feeds import Feeds, draw_feeds, read_feeds, required_inputs, sizes_of, unfeedable
from onnx_subgraph.inputs.refusal import Refusals
from onnx_subgraph.inputs.sizes import FIRST, USUAL, Likely, Sizes, fixed_by, symbols
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.operators.names import ENGINE, OWN_DOMAIN
from onnx_subgraph.paths import StrPath, path_of, several
from onnx_subgraph.timing.difference import difference
from onnx_subgraph.timing.memory import peak
from onnx_subgraph.timing.profile import Profile, modules_of, node_times, profiled
from onnx_subgraph.timing.runtimes import Runner, Setting, check_runtimes, open_runner, try_once
from onnx_subgraph.timing.turns import LONG, Ratio, ratio, take_turns
from onnx_subgraph.values import check_not_negative, check_shapes, check_whole
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.fatal import guarded
from onnx_subgraph.verification.given_shapes import check_given_shapes
from onnx_subgraph.verification.libraries import with_libraries
from onnx_subgraph.verification.search import first_that_runs, trials
from onnx_subgraph.verification.sessions import Failure, check_providers, onnxruntime

BUDGET = 10.0
"""The time for all runs together, in seconds."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """How to time. The command line's options, one for one.

    runtimes: see `RUNTIMES`; every model is timed in each. provider: of onnxruntime. threads: 0 for the runtime's default.
    budget: the time for all runs together, in seconds. sizes: symbolic dimension → size. shapes: input → shape. inputs: an .npz.
    libraries: of custom operators. memory: whether to measure it, in one process per model.
    profile: whether to profile the models.
    """

    runtimes: tuple[str, ...] = ("onnxruntime",)
    provider: str = "CPUExecutionProvider"
    threads: int = 0
    budget: float = BUDGET
    seed: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: StrPath | None = None
    libraries: Sequence[StrPath] = ()
    memory: bool = True
    profile: bool = False

    @property
    def by_processor(self) -> bool:
        """Whether to measure processor time, which other processes hardly affect.

        Only valid where one thread does all the work.
        """
        runtimes = {"onnxruntime", "kernels"}
        return self.threads == 1 and self.provider == "CPUExecutionProvider" and runtimes.issuperset(self.runtimes)


@dataclass(frozen=True, slots=True)
class Timed:
    """One model in one runtime. seconds: of each timed run. opening: seconds to open it. memory: bytes, see `memory.peak`.

    ratio: its time by the first one's; None for the first. difference: the largest difference of an output from the first
    model's, relative to that output's largest element. problem: why it was not timed.
    """

    model: Path
    runtime: str
    seconds: tuple[float, ...] = ()
    ratio: Ratio | None = None
    opening: float = math.nan
    memory: int | None = None
    difference: float | None = None
    problem: str = ""
    profile: Profile | None = None

    def quantile(self, share: float) -> float:
        """The time in seconds that this fraction of the runs did not exceed: 0.5 gives the median."""
        return float(np.quantile(self.seconds, share))

    @property
    def throughput(self) -> float:
        """Runs per second, one after another."""
        return len(self.seconds) / sum(self.seconds)


@dataclass(frozen=True, slots=True)
class Bench:
    """The result of `bench`. timed: the first is the baseline of the others. sizes: symbolic dimension → size."""

    timed: tuple[Timed, ...]
    options: BenchOptions
    sizes: Mapping[str, int]
    onnxruntime: str


@dataclass(slots=True)
class _Entrant:
    """A model in a runtime, before it is timed. problem: why it can't be timed."""

    model: Path
    runtime: str
    runner: Runner | None = None
    outputs: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""

    def open(self, setting: Setting) -> None:
        opened = open_runner(self.model, self.runtime, setting)
        if isinstance(opened, Failure):
            self.problem = f"{self.runtime} does not load it: {opened.message}"
        else:
            self.runner = opened

    def try_once(self, feeds: Feeds) -> None:
        if self.runner is None:
            return
        found = try_once(self.runner, feeds)
        if isinstance(found, Failure):
            self.problem, self.runner = f"{self.runtime} does not run it on these feeds: {found.message}", None
        else:
            self.outputs = found

    def must_run(self) -> Runner:
        if self.runner is None:
            raise ModelError(f"{self.model}: {self.problem}", hint="it is the first model, which others are compared with")
        return self.runner


@dataclass(frozen=True, slots=True)
class _Run:
    """What all entrants share. modules: name of a node of the first model → its module."""

    setting: Setting
    feeds: Feeds
    options: BenchOptions
    modules: Mapping[str, str]


def bench(models: StrPath | Sequence[StrPath], options: BenchOptions, progress: Progress | None = None) -> Bench:
    """Time the models in turn. The first one is the baseline.

    Raises ModelError where the first one can't be read or run, UsageError where there is none or options do not fit it,
    KernelError where the runtime is "kernels" and the library of kernels is missing.
    """
    if not (paths := several(models, "a model")):
        raise UsageError("there is no model to time", hint="give the path of one")
    with with_libraries(options.libraries):
        return _bench(paths, options, progress or (lambda stage: None))


def _bench(models: Sequence[Path], options: BenchOptions, tell: Progress) -> Bench:
    check_not_negative(budget=options.budget)
    check_whole(threads=options.threads, seed=options.seed)
    check_whole(**options.sizes)
    check_shapes(options.shapes)
    check_providers([options.provider])
    check_runtimes(options.runtimes)
    setting = Setting(options.provider, options.threads)
    tell("load")
    entrants = [_Entrant(path, runtime) for path in models for runtime in _of(path, options.runtimes)]
    first = entrants[0]
    model = load(first.model)
    infer_shapes(model)
    for one in entrants:
        tell(f"open {one.model.name} in {one.runtime}")
        one.open(setting)
    tell("look for sizes")
    feeds, sizes = _feeds(model, first.model, first.must_run(), options)
    for one in entrants:
        one.try_once(feeds)
    first.must_run()
    tell("run, in turn")
    ways = {str(number): partial(one.runner.run, feeds) for number, one in enumerate(entrants) if one.runner is not None}
    seconds = take_turns(ways, options.budget, time.thread_time if options.by_processor else time.perf_counter)
    run, timed = _Run(setting, feeds, options, modules_of(model)), []
    for number, one in enumerate(entrants):
        tell(f"look at {one.model.name} in {one.runtime}")
        timed.append(_timed(one, first, seconds.get(str(number), []), seconds["0"], run))
    return Bench(tuple(timed), options, sizes, onnxruntime().__version__)


def time_nodes(model: StrPath, options: BenchOptions) -> dict[str, float]:
    """The microseconds that a run of onnxruntime spends in each node of a model (`profile.node_times`).

    A node without a name is identified by its first output. Raises ModelError where the model can't be read, run or profiled, and
    UsageError where no feeds can be made.
    """
    setting = Setting(options.provider, options.threads)
    graph = load(Path(model))
    infer_shapes(graph)
    with temporary.folder() as folder:
        path = Path(model)
        if unnamed := [node for node in graph.graph.all_nodes() if not node.name]:
            for node in unnamed:
                node.name = node.outputs[0].name
            path = folder / path.name
            save(graph, path, None)
        entrant = _Entrant(path, "onnxruntime")
        entrant.open(setting)
        if entrant.runner is None:
            raise ModelError(f"{model}: {entrant.problem.replace(str(path), str(model))}", hint=_UNPROFILED)
        feeds, _ = _feeds(graph, path, entrant.runner, options)
        found = node_times(path, setting, feeds)
    if found is None:
        raise ModelError(f"{model}: onnxruntime gives no profile of it", hint=_UNPROFILED)
    return found


_UNPROFILED = "leave --profile out: nothing is run then"


def _of(path: Path, runtimes: Sequence[str]) -> list[str]:
    """The runtimes that matter for a model: "kernels" only with operators of ours, "engines" only with engine operators."""
    ours = {function.name for function in load(path).functions.values() if function.domain == OWN_DOMAIN}
    idle = {"kernels"} if not ours - {ENGINE} else set[str]()
    idle |= {"engines"} if ENGINE not in ours else set()
    return [runtime for runtime in runtimes if runtime not in idle] or ["onnxruntime"]


def _timed(one: _Entrant, first: _Entrant, seconds: Sequence[float], of_first: Sequence[float], run: _Run) -> Timed:
    """The result for an entrant after all runs."""
    if one.runner is None:
        return Timed(one.model, one.runtime, problem=one.problem)
    profiles = run.options.profile and one.runner.session is not None
    return Timed(
        one.model,
        one.runtime,
        seconds=tuple(seconds),
        ratio=None if one is first else ratio(seconds, of_first),
        opening=one.runner.seconds,
        memory=peak(one.model, one.runtime, run.setting, run.feeds) if run.options.memory else None,
        difference=None if one is first else difference(one.outputs, first.outputs),
        profile=profiled(one.model, one.runtime, run.setting, run.feeds, run.modules) if profiles else None,
    )


def _feeds(model: ir.Model, path: Path, runner: Runner, options: BenchOptions) -> tuple[Feeds, Mapping[str, int]]:
    """The feeds for all runs, and their sizes. path: of the model. Raises UsageError where none can be made."""
    inputs = required_inputs(model)
    session = None if runner.session is None else guarded(runner.session, model, path, options.provider)
    if options.inputs is not None:
        feeds = read_feeds(path_of(options.inputs, "a file of inputs"), model.graph.inputs)
        check_given_shapes(inputs, options.shapes, feeds)
        if session is not None and (refused := session.refuses(feeds)) is not None:
            raise UsageError(f"{path} can't be run on the feeds given: {refused.message}", hint="give others with --inputs")
        return feeds, sizes_of(feeds, inputs)
    if reason := unfeedable(model):
        raise UsageError(reason, hint="give them with --inputs")
    known = symbols(inputs)
    if unknown := [name for name in options.sizes if name not in known]:
        hint = f"it has {', '.join(known)}" if known else "all its inputs have fixed shapes"
        raise UsageError(f"--dim names {unknown[0]}, which is no dimension of the model's inputs", hint=hint)
    check_given_shapes(inputs, options.shapes)
    chosen = {**fixed_by(inputs, options.shapes), **options.sizes}
    refusals = Refusals(model, frozenset(chosen))

    def tried(likely: Likely) -> Iterator[Sizes]:
        return ({**sizes, **options.sizes} for sizes in refusals.guided(trials(model, options.shapes, likely)))

    if session is None:
        sizes = next(tried(USUAL))
        return draw_feeds(model, sizes, options.seed), sizes
    if known.keys() - chosen.keys():  # usual sizes could take minutes for a run
        small = first_that_runs(model, session, islice(tried(FIRST), 1), refusals, options.seed)
        if isinstance(small, Case) and small.seconds > LONG:
            return small.feeds, small.sizes
    case = first_that_runs(model, session, tried(USUAL), refusals, options.seed)
    if isinstance(case, Failure):
        raise UsageError(case.message)
    return case.feeds, case.sizes
