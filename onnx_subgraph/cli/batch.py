"""Fuses many models: one after another in this process, or several at a time in processes of their own.

A model that makes its process crash or run out of memory takes no other model with it. Results come in the order of the models.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_subgraph.cli.ci import held
from onnx_subgraph.cli.failure import describe
from onnx_subgraph.cli.interrupt import Interrupt, was_interrupted
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
    """One model to fuse. patterns: the folders and files given beside the built-in ones.

    section: what is expected of it; where that is missed, it is not written. measured: whether its size is asked for.
    time_limit: the seconds that it may take, 0 for any. tune: gives the options anew, from measurements, before it is fused.
    """

    model: Path
    output: Path
    patterns: tuple[Path, ...]
    options: Options
    section: Section | None = None
    measured: bool = False
    time_limit: float = 0.0
    tune: Tune | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a model could not be fused, in words for a person."""

    message: str


def run(
    tasks: Sequence[Task], library: Library, jobs: int, say: Callable[[str], None]
) -> Generator[FuseResult | Failure, None, None]:
    """The outcome of every task, in order; `say` is told what is being done. Close the iterator to break the run off."""
    if jobs == 1 or len(tasks) == 1:
        for task in tasks:
            yield _fuse(task, library, lambda stage, model=task.model: say(f"{model}: {stage}"))  # type: ignore[misc]
        return
    yield from _run_processes(tasks, jobs, say)


def _fuse(task: Task, library: Library, progress: Callable[[str], None]) -> FuseResult | Failure:
    try:
        from onnx_subgraph.pipeline import fuse

        accepts = partial(_accepts, task.section, library) if task.measured else None

        def fused(tell: Callable[[str], None]) -> FuseResult:
            options = task.options if task.tune is None else task.tune(task.model, library, task.options, tell)
            backend = "" if options.tuning is None else options.tuning.backend
            if not backend:
                return fuse(task.model, task.output, library, options, tell, accepts)
            from onnx_subgraph.tuning.engines import fuse_with_engines

            return fuse_with_engines(task.model, task.output, library, options, backend, tell, accepts)

        return within(task.time_limit, fused, progress, LESS_TIME)
    except Exception as error:
        if was_interrupted():
            raise Interrupt from error
        return Failure(describe(error))


def _accepts(section: Section | None, library: Library, result: FuseResult) -> bool:
    return section is None or all(check.met for check in held(section, result, library))


def _run_processes(tasks: Sequence[Task], jobs: int, say: Callable[[str], None]) -> Iterator[FuseResult | Failure]:
    from onnx_subgraph.cli.workers import Lost, outcomes

    def tell(done: int, stages: Mapping[int, str]) -> None:
        now = "; ".join(f"{tasks[number].model.name}: {stage}" for number, stage in sorted(stages.items()))
        say(f"{done} of {len(tasks)} done. {now}")

    with closing(outcomes(_fuse_alone, tasks, jobs, tell)) as results:
        for outcome in results:
            if isinstance(outcome, Lost):
                yield Failure(f"the process that fused it ended with code {outcome.code}; it may have run out of memory")
            else:
                yield outcome


def _fuse_alone(task: Task, progress: Callable[[str], None]) -> FuseResult | Failure:
    """What a process does with a task that it is given."""
    return _fuse(task, _library(task.patterns), progress)


@lru_cache(maxsize=1)
def _library(patterns: tuple[Path, ...]) -> Library:
    from onnx_subgraph.language.library import load_patterns

    return load_patterns(patterns)
