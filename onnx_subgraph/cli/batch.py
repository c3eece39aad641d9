"""Fuses many models: one after another in this process, or several at a time in processes of their own.

A process takes one model, so that one that crashes or runs out of memory takes no other model with it. On Linux it is a fork of
a process that has imported what all of them need, and has read the patterns; elsewhere it does both itself. Results come in the
order of the models. When the run is broken off, the processes are ended and clean up after themselves.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection, resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_subgraph.cli.ci import held
from onnx_subgraph.cli.failure import describe
from onnx_subgraph.cli.interrupt import Interrupt, break_off, was_interrupted
from onnx_subgraph.cli.options import LESS_TIME
from onnx_subgraph.cli.terminal import quiet_libraries
from onnx_subgraph.deadline import abandoned, within

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerContext, ForkServerProcess, SpawnContext, SpawnProcess

    from onnx_subgraph.expectation.expectation import Section
    from onnx_subgraph.language.library import Library
    from onnx_subgraph.options import Options
    from onnx_subgraph.result import FuseResult

    Process = ForkServerProcess | SpawnProcess
    Tune = Callable[[Path, Library, Options, Callable[[str], None]], Options]

GRACE = 10.0
"""Seconds that a process has to clean up before it is killed."""
PRELOADED = "onnx_subgraph.cli.preloaded"
"""The module that holds what the processes share, where they are forks."""


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
        from onnx_subgraph.tuning.engines import fuse_with_engines

        accepts = partial(_accepts, task.section, library) if task.measured else None

        def fused(tell: Callable[[str], None]) -> FuseResult:
            options = task.options if task.tune is None else task.tune(task.model, library, task.options, tell)
            backend = "" if options.tuning is None else options.tuning.backend
            return fuse_with_engines(task.model, task.output, library, options, backend, tell, accepts)

        return within(task.time_limit, fused, progress, LESS_TIME)
    except Exception as error:
        if was_interrupted():
            raise Interrupt from error
        return Failure(describe(error))


def _accepts(section: Section | None, library: Library, result: FuseResult) -> bool:
    return section is None or all(check.met for check in held(section, result, library))


def _run_processes(tasks: Sequence[Task], jobs: int, say: Callable[[str], None]) -> Generator[FuseResult | Failure, None, None]:
    waiting = deque(range(len(tasks)))
    running: dict[Connection, tuple[int, Process]] = {}
    stages: dict[int, str] = {}
    done: dict[int, FuseResult | Failure] = {}
    try:
        for index in range(len(tasks)):
            while index not in done:
                while waiting and len(running) < jobs:
                    start = waiting.popleft()
                    reader, process = _start(tasks[start])
                    running[reader] = (start, process)
                ready = connection.wait(list(running))
                for reader in [reader for reader in running if reader in ready]:
                    number, process = running[reader]
                    message = _receive(reader, process)
                    if isinstance(message, str):
                        stages[number] = message
                        continue
                    done[number] = message
                    stages.pop(number, None)
                    del running[reader]
                    reader.close()
                    process.join()
                now = "; ".join(f"{tasks[number].model.name}: {stage}" for number, stage in sorted(stages.items()))
                say(f"{index + len(done)} of {len(tasks)} done. {now}")
            yield done.pop(index)
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            process.join(GRACE)
            process.kill()


@contextmanager
def _unanswered() -> Iterator[None]:
    """^C at a terminal reaches every process of the group. Only this one answers it; children begun here inherit that they don't.

    Blocked, and not ignored, where that can be: one that comes just now waits, and is answered afterwards. The first child would
    start multiprocessing's resource tracker, which unblocks signals: it is started before.
    """
    if hasattr(signal, "pthread_sigmask"):
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    answer = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, answer)


def _context() -> ForkServerContext | SpawnContext:
    if sys.platform != "linux":  # where the system's own libraries may not be forked
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOADED])
    return context


def _start(task: Task) -> tuple[Connection, Process]:
    context = _context()
    reader, writer = context.Pipe(duplex=False)
    process: Process = context.Process(target=_work, args=(task, dict(os.environ), writer), daemon=True)
    with _unanswered():
        process.start()
    writer.close()
    return reader, process


def _receive(reader: Connection, process: Process) -> str | FuseResult | Failure:
    """The stage that a process has come to, or its outcome."""
    try:
        message: str | FuseResult | Failure = reader.recv()
    except EOFError:
        process.join()
        return Failure(f"the process that fused it ended with code {process.exitcode}; it may have run out of memory")
    return message


def _work(task: Task, environment: dict[str, str], writer: Connection) -> None:
    """What a process does: fuse one model and send what came of it. environment: of the process that asks for it."""
    os.environ.clear()  # of the process that it is forked from, which is older than the caller's
    os.environ.update(environment)
    try:
        signal.signal(signal.SIGTERM, break_off)
        quiet_libraries()
        from onnx_subgraph.language.library import load_patterns

        writer.send(_fuse(task, load_patterns(task.patterns), writer.send))
        # What is done can't be broken off: a signal from here on would only make Python complain about its own shutting down.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except KeyboardInterrupt:
        sys.exit(2)
    finally:
        writer.close()
        if abandoned():
            os._exit(0)
