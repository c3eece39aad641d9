"""Child processes that run tasks, several at a time, each process one task after another.

On Linux a process is a fork of one that has imported the shared modules and has read the patterns; elsewhere it does both itself.
A process that dies loses only its current task. If it had run other tasks before, their memory may be the cause, so the task is
tried once more in a fresh process. When the run is interrupted, the processes are ended and clean up after themselves.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from onnx_subgraph.cli.interrupt import break_off, check, interrupts
from onnx_subgraph.cli.last_words import CAUSES
from onnx_subgraph.cli.terminal import quiet_libraries
from onnx_subgraph.deadline import abandoned

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerContext, SpawnContext

T = TypeVar("T")
R = TypeVar("R")

GRACE = 10.0
"""Seconds that a process has to clean up before it is killed."""
LIFE = 20.0
"""Seconds of processor time after which a process takes no further task, so that memory left by large models is freed."""
LONGEST_SOCKET = 107
"""The most bytes of a socket's path on Linux."""
SOCKET = "/pymp-00000000/listener-00000000"
"""What multiprocessing adds to the temporary folder for the socket of a fork server."""
PRELOADED = "onnx_subgraph.cli.preloaded"
"""The module with the shared imports, where processes are forks."""

Work = Callable[[T, Callable[[str], None]], R]
"""Runs a task, and reports its stages. A top-level function of a module, because processes find it by its name."""

Tell = Callable[[int, dict[int, str]], None]
"""Called with the number of finished tasks, and the stages of the running ones, by their numbers."""
Settled = Callable[[int, Any], None]
"""Called with the number and the outcome of a task."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The outcome of a task whose process died. code: the exit code of the process, or the negative number of a signal.

    stage: the last one that it reported.
    """

    code: int | None
    stage: str = ""

    def __str__(self) -> str:
        how = f"with code {self.code}"
        if self.code is not None and self.code < 0:
            with suppress(ValueError):  # not all signals have a name
                how = f"by {signal.Signals(-self.code).name}"
        at = f" at the stage '{self.stage}'" if self.stage else ""
        return f"the process that worked on it was ended {how}{at}; {CAUSES}"


@dataclass(frozen=True, slots=True)
class _Done(Generic[R]):
    """The outcome of a task. again: whether the process can take another one."""

    outcome: R
    again: bool


class Worker(Generic[T, R]):
    """A process and its tasks. taken: how many tasks it was given."""

    def __init__(self, work: Work[T, R]) -> None:
        context = _context()
        self.link, theirs = context.Pipe()
        self.process = context.Process(target=_work_off, args=(work, dict(os.environ), theirs), daemon=True)
        with _unanswered():
            self.process.start()
        theirs.close()
        self.taken = 0

    def take(self, task: T) -> None:
        """Gives it a task. `answer` tells if the process has died."""
        self.taken += 1
        try:
            self.link.send(task)
        except OSError:  # it died while it waited: `answer` reports that
            return

    def answer(self) -> str | _Done[R] | Lost:
        """Its current stage, or the outcome of its task."""
        try:
            message: str | _Done[R] = self.link.recv()
        except (EOFError, OSError):
            self.process.join()
            return Lost(self.process.exitcode)
        return message

    def end(self) -> None:
        """Ends it when it has no task."""
        self.link.close()
        self.wait()

    def break_off(self) -> None:
        """Interrupts its work. `wait` makes sure that it ends."""
        self.process.terminate()

    def wait(self) -> None:
        """Waits until it has ended, and kills it if that takes too long."""
        self.process.join(GRACE)
        self.process.kill()


class _Crew(Generic[T, R]):
    """The processes of a run. done: number of a task → its outcome. stages: of the running tasks."""

    def __init__(self, work: Work[T, R], tasks: Sequence[T], jobs: int, settled: Settled) -> None:
        self._work, self._tasks, self._jobs, self._settled = work, tasks, jobs, settled
        self._waiting = deque(range(len(tasks)))
        self._idle: list[Worker[T, R]] = []
        self._busy: dict[Connection, tuple[int, Worker[T, R]]] = {}
        self.done: dict[int, R | Lost] = {}
        self.stages: dict[int, str] = {}

    def step(self) -> None:
        """Gives tasks to as many processes as allowed, and receives the next messages."""
        while self._waiting and len(self._busy) < self._jobs:
            worker = self._idle.pop() if self._idle else Worker(self._work)
            number = self._waiting.popleft()
            self._busy[worker.link] = (number, worker)
            worker.take(self._tasks[number])
        ready = connection.wait(list(self._busy))
        for link in [link for link in self._busy if link in ready]:
            number, worker = self._busy[link]
            message = worker.answer()
            if isinstance(message, str):
                self.stages[number] = message
                continue
            del self._busy[link]
            stage = self.stages.pop(number, "")
            self._settle(number, worker, Lost(message.code, stage) if isinstance(message, Lost) else message)

    def _settle(self, number: int, worker: Worker[T, R], message: _Done[R] | Lost) -> None:
        if isinstance(message, _Done) and message.again:
            self._idle.append(worker)
        else:
            worker.end()
        if isinstance(message, _Done):
            self.done[number] = message.outcome
            self._settled(number, message.outcome)
        elif worker.taken == 1:
            self.done[number] = message
        else:
            self._waiting.appendleft(number)

    def end(self) -> None:
        """Ends all processes, interrupting those that are at work."""
        busy = [worker for _, worker in self._busy.values()]
        for worker in busy:
            worker.break_off()
        for worker in busy:
            worker.wait()
        for worker in self._idle:
            worker.end()


def outcomes(
    work: Work[T, R], tasks: Sequence[T], jobs: int, tell: Tell, settled: Settled = lambda number, outcome: None
) -> Generator[R | Lost, None, None]:
    """The outcomes of all tasks, in order, with so many at a time. Close the iterator to stop the run.

    tell: called with the number of finished tasks, and the stages of the running ones, by their numbers. settled: called with the
    number of a task and its outcome as soon as it is done, which may be out of order.
    """
    crew = _Crew(work, tasks, jobs, settled)
    try:
        for index in range(len(tasks)):
            while index not in crew.done:
                crew.step()
                tell(index + len(crew.done), crew.stages)
            yield crew.done.pop(index)
    finally:
        crew.end()


@contextmanager
def _unanswered() -> Iterator[None]:
    """Makes children started inside ignore ^C: a terminal sends it to every process of the group, and only this one handles it.

    Where possible the signal is blocked, not ignored: a ^C during this block is handled afterwards. The first child would start
    multiprocessing's resource tracker, which unblocks signals, so the tracker is started before.
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
    path = os.fsencode(tempfile.gettempdir() + SOCKET)
    if sys.platform != "linux" or len(path) > LONGEST_SOCKET:  # elsewhere the system's own libraries do not allow a fork
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOADED])
    return context


def _work_off(work: Work[Any, Any], environment: dict[str, str], link: Connection) -> None:
    """The main loop of a child: runs tasks until there are no more. environment: of the parent."""
    os.environ.clear()  # a fork has the environment of the fork server, which is older than the parent's
    os.environ.update(environment)

    def tell(stage: str) -> None:
        check()
        link.send(stage)

    try:
        signal.signal(signal.SIGTERM, break_off)
        quiet_libraries()
        with suppress(EOFError), interrupts():  # there are no more tasks, or the parent is gone
            again = True
            while again:
                outcome = work(link.recv(), tell)
                check()
                again = not abandoned() and time.process_time() < LIFE
                link.send(_Done(outcome, again))
        # The work is done. A signal from here on would only print an error while Python shuts down.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except KeyboardInterrupt:
        sys.exit(2)
    finally:
        link.close()
        if abandoned():
            os._exit(0)
