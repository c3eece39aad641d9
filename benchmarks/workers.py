"""Runs one function over many tasks in child processes, so that a crash or an endless loop costs one task and not the run.

A worker takes the next task unless it died, exceeded its time limit, or `fresh` asks for a new worker for each task, which bounds
memory. An exception of the function is returned as text, so that a benchmark reports it and goes on.
"""

from __future__ import annotations

import multiprocessing
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Outcome(Generic[Task, Result]):
    """The outcome of a task: `result`, or `failure` as text (the traceback, the signal, the time limit)."""

    task: Task
    result: Result | None
    failure: str = ""


def run(
    function: Callable[[Task], Result], tasks: Sequence[Task], *, jobs: int = 1, limit: float = 60.0, fresh: bool = False
) -> Iterator[Outcome[Task, Result]]:
    """Outcomes in the order of `tasks`. `function` must be importable; tasks and results are pickled.

    jobs: workers at a time. limit: seconds for one task. fresh: a new process for every task.
    """
    local = threading.local()
    workers: list[_Worker] = []

    def one(task: Task) -> Outcome[Task, Result]:
        worker: _Worker | None = getattr(local, "worker", None)
        if worker is None or fresh or not worker.process.is_alive():
            if worker is not None:
                worker.stop()
            worker = local.worker = _Worker(function)
            workers.append(worker)
        return worker.run(task, limit)

    with ThreadPoolExecutor(jobs) as threads:
        try:
            yield from threads.map(one, tasks)
        finally:
            for worker in workers:
                worker.stop()


class _Worker:
    """One child process and the pipe to it."""

    def __init__(self, function: Callable[..., object]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, child = context.Pipe()
        self.process = context.Process(target=_serve, args=(function, child), daemon=True)
        self.process.start()
        child.close()

    def run(self, task: Task, limit: float) -> Outcome[Task, Result]:
        try:
            self.pipe.send(task)
            if not self.pipe.poll(limit):
                self.stop()
                return Outcome(task, None, f"no answer within {limit:.0f} s")
            result, failure = self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join(5)
            return Outcome(task, None, f"the process ended with code {self.process.exitcode}")
        return Outcome(task, result, failure)

    def stop(self) -> None:
        """End the process, if it has not ended."""
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def _serve(function: Callable[..., object], pipe: Connection) -> None:
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer: tuple[object, str] = (function(task), "")
        except Exception:
            answer = (None, traceback.format_exc())
        pipe.send(answer)
