"""Runs many models: one after another in this process, several at a time in child processes, or on a cluster.

If a model crashes its process or exhausts its memory, the other models are not affected. Results are in the order of the models.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from onnx_subgraph.cli.ci import held
from onnx_subgraph.cli.failure import describe
from onnx_subgraph.cli.interrupt import Interrupt, was_interrupted
from onnx_subgraph.cli.job import Failure, J, Job, Say, Settled, absolute_options, read_by
from onnx_subgraph.cli.options import LESS_TIME
from onnx_subgraph.deadline import within

if TYPE_CHECKING:
    from onnx_subgraph.expectation.expectation import Section
    from onnx_subgraph.language.library import Library
    from onnx_subgraph.options import Options
    from onnx_subgraph.result import FuseResult

    Tune = Callable[[Path, Library, Options, Callable[[str], None]], Options]


@dataclass(frozen=True, slots=True)
class Task:
    """One model to fuse. patterns: folders and files in addition to the built-in ones.

    section: its expectations; if one is missed, the model is not written. measured: whether to report its size. time_limit: in
    seconds, 0 for none. tune: makes the options from measurements, before the model is fused.
    """

    less: ClassVar[str] = LESS_TIME

    model: Path
    output: Path
    patterns: tuple[Path, ...]
    options: Options
    section: Section | None = None
    measured: bool = False
    time_limit: float = 0.0
    tune: Tune | None = None

    def work(self, library: Library, tell: Say) -> FuseResult:
        """Fuses the model, and writes it."""
        from onnx_subgraph.pipeline import fuse

        accepts = partial(_accepts, self.section, library) if self.measured else None
        options = self.options if self.tune is None else self.tune(self.model, library, self.options, tell)
        if options.tuning is None or not options.tuning.backend:
            return fuse(self.model, self.output, library, options, tell, accepts)
        from onnx_subgraph.tuning.engines import fuse_with_engines

        return fuse_with_engines(self.model, self.output, library, options, options.tuning, tell, accepts)

    def places(self) -> tuple[Path, ...]:
        """The files to read, and the folder to write to."""
        written = () if self.options.dry_run else (self.output.parent,)
        return (self.model, *written, *self.patterns, *read_by(self.options))

    def absolute(self) -> Task:
        """The same with absolute paths."""
        patterns = tuple(path.absolute() for path in self.patterns)
        return replace(
            self,
            model=self.model.absolute(),
            output=self.output.absolute(),
            patterns=patterns,
            options=absolute_options(self.options),
        )

    def called(self, result: FuseResult) -> FuseResult:
        """The result with the paths of this task."""
        return replace(result, model=self.model, output=None if result.output is None else self.output)


def run(
    tasks: Sequence[J],
    library: Library,
    jobs: int,
    say: Say,
    settled: Settled = lambda number, outcome: None,
    cluster: str = "",
) -> Generator[FuseResult | Failure, None, None]:
    """The outcomes of all tasks, in order. Close the iterator to stop the run. say: called with the current stage.

    settled: called with the number and the outcome of each task as soon as it is done, which may be out of order. cluster: the
    address of a scheduler; its workers then run the tasks.
    """
    if not cluster and (jobs == 1 or len(tasks) == 1):
        for number, task in enumerate(tasks):
            outcome = _outcome(task, library, lambda stage, model=task.model: say(f"{model}: {stage}"))  # type: ignore[misc]
            settled(number, outcome)
            yield outcome
        return

    def tell(done: int, stages: Mapping[int, str]) -> None:
        now = "; ".join(f"{tasks[number].model.name}: {stage}" for number, stage in sorted(stages.items()))
        say(f"{done} of {len(tasks)} done. {now}")

    if cluster:
        from onnx_subgraph.cli.cluster import on_cluster

        yield from on_cluster(cluster, alone, tasks, tell, settled)
    else:
        yield from _run_processes(tasks, jobs, tell, settled)


def _outcome(task: Job, library: Library, say: Say) -> FuseResult | Failure:
    try:
        return within(task.time_limit, lambda tell: task.work(library, tell), say, task.less)
    except Exception as error:
        if was_interrupted():
            raise Interrupt from error
        return Failure(describe(error))


def _accepts(section: Section | None, library: Library, result: FuseResult) -> bool:
    return section is None or all(check.met for check in held(section, result, library))


def _run_processes(
    tasks: Sequence[Job], jobs: int, tell: Callable[[int, Mapping[int, str]], None], settled: Settled
) -> Iterator[FuseResult | Failure]:
    from onnx_subgraph.cli.workers import Lost, Work, outcomes

    work: Work[Job, FuseResult | Failure] = alone
    with closing(outcomes(work, tasks, jobs, tell, settled)) as results:
        for outcome in results:
            if isinstance(outcome, Lost):
                yield Failure(str(outcome))
            else:
                yield outcome


def alone(task: Job, say: Say) -> FuseResult | Failure:
    """Runs one task in a child process."""
    return _outcome(task, _library(task.patterns), say)


@lru_cache(maxsize=1)
def _library(patterns: tuple[Path, ...]) -> Library:
    from onnx_subgraph.language.library import load_patterns

    return load_patterns(patterns)
