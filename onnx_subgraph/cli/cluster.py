"""Runs models on the workers of a dask cluster, one model a task, with dask's own client (the extra `dask`).

A worker process gets one model at a time, so if a process ends, its model is known. The model of a lost worker goes to another
one. A model that ends `MOST_LOST` workers is given up, and the others go on.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from onnx_subgraph.cli.job import Failure, J
from onnx_subgraph.errors import UsageError

if TYPE_CHECKING:
    from onnx_subgraph.cli.job import Job, Settled
    from onnx_subgraph.result import FuseResult

SCHEME = "dask://"
MOST_LOST = 3
"""Workers that may end with a model before the model is given up."""
LOOK_SECONDS = 0.25
"""Seconds between two looks at which workers there are."""
ANSWER_SECONDS = 10.0
"""How long a scheduler may take to answer."""
NO_WORKER_SECONDS = 60.0
"""How long a cluster may have no worker at all."""

Work = Callable[["Job", Callable[[str], None]], "FuseResult | Failure"]


class Executor(click.ParamType):  # type: ignore[type-arg]
    """`dask://HOST:PORT`: the scheduler of a cluster."""

    name = "executor"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The address of the scheduler, as its client takes it."""
        address = value.removeprefix(SCHEME)
        host, _, port = address.rpartition(":")
        if address == value or not host or not port.isdecimal():
            self.fail(f"{value!r} is no {SCHEME}HOST:PORT", param, ctx)
        return f"tcp://{address}"


def executor_option(command: Any) -> Any:
    """`--executor`: where to run the models."""
    return click.option(
        "--executor",
        type=Executor(),
        metavar=f"{SCHEME}HOST:PORT",
        show_default="processes on this machine, as -j says",
        help="Run the models on the workers of a dask cluster, one model a task. The workers need the same files. Needs"
        " the extra dask.",
    )(command)


def check_executor(executor: str | None, jobs: int) -> None:
    """Raises UsageError if the extra is not installed, or -j is given as well."""
    if not executor:
        return
    if jobs > 1:
        raise UsageError("-j counts processes on this machine, and --executor has its own", hint="leave one of them out")
    try:
        _dask()
    except ImportError as error:
        raise UsageError(f"--executor needs the extra dask ({error})", hint="pip install 'onnx-subgraph[dask]'") from None


def _dask() -> Any:
    import distributed

    return distributed


def on_cluster(
    address: str, work: Work, tasks: Sequence[J], tell: Callable[[int, Mapping[int, str]], None], settled: Settled
) -> Iterator[FuseResult | Failure]:
    """The outcomes of all tasks, in order. Close the iterator to stop the run: waiting tasks are then not started.

    tell, settled: as for `workers.outcomes`. Raises UsageError if no scheduler answers.
    """
    try:
        client = _dask().Client(address, timeout=ANSWER_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        hint = "start one with `dask scheduler`, and workers with `dask worker`"
        raise UsageError(f"no dask scheduler answers at {address} ({error})", hint=hint) from error
    crew = _Crew(client, work, tasks, settled)
    try:
        for index in range(len(tasks)):
            while index not in crew.done:
                crew.step()
                tell(index + len(crew.done), {number: f"on {worker}" for worker, (number, _) in crew.busy.items()})
            yield crew.done.pop(index)
    finally:
        crew.end()


@dataclass(slots=True)
class _Crew:
    """The workers of a run. busy: address of a worker → number of its task, and the future of its outcome.

    lost: number of a task → how many workers ended with it. alive: the last time when there was a worker. ready: set when there
    is an outcome. versions: of our code and its dependencies; workers must have the same.
    """

    client: Any
    work: Work
    tasks: Sequence[Job]
    settled: Settled
    waiting: deque[int] = field(init=False)
    busy: dict[str, tuple[int, Any]] = field(default_factory=dict)
    lost: dict[int, int] = field(default_factory=dict)
    done: dict[int, FuseResult | Failure] = field(default_factory=dict)
    alive: float = field(default_factory=time.monotonic)
    ready: threading.Event = field(default_factory=threading.Event)
    versions: str = ""

    def __post_init__(self) -> None:
        from onnx_subgraph.session.digest import versions

        self.waiting = deque(range(len(self.tasks)))
        self.versions = versions()

    def step(self) -> None:
        """Gives tasks to idle workers, and collects finished and lost tasks."""
        try:
            workers = self.client.nthreads()
        except (OSError, RuntimeError) as error:
            self._give_up(f"the dask scheduler does not answer any more ({error})")
            return
        for worker in [worker for worker in self.busy if worker not in workers]:
            self._lose(worker)
        for worker in workers:
            if self.waiting and worker not in self.busy:
                number = self.waiting.popleft()
                self.busy[worker] = (number, self._submit(worker, number))
        if workers:
            self.alive = time.monotonic()
        elif time.monotonic() - self.alive > NO_WORKER_SECONDS:
            self._give_up(f"the dask cluster has had no worker for {NO_WORKER_SECONDS:g} s")
        self._take()

    def _submit(self, worker: str, number: int) -> Any:
        task = self.tasks[number]
        call = (self.work, task.absolute(), task.model.exists(), self.versions)
        future = self.client.submit(_there, *call, workers=[worker], allow_other_workers=False, pure=False)
        future.add_done_callback(lambda _: self.ready.set())
        return future

    def _take(self) -> None:
        self.ready.wait(LOOK_SECONDS)
        self.ready.clear()
        for worker, (number, future) in list(self.busy.items()):
            if future.done():
                self._settle(worker, number, future)

    def _settle(self, worker: str, number: int, future: Any) -> None:
        dask = _dask()
        try:
            outcome = future.result(timeout=ANSWER_SECONDS)
        except (OSError, dask.CancelledError, dask.KilledWorker):  # its worker ended after it, or too often for dask
            self._lose(worker)
            return
        except Exception as error:  # a worker can't start it: our package is missing there, or another version
            outcome = Failure(f"the dask worker {worker} could not work on it: {type(error).__name__}: {error}")
        del self.busy[worker]
        self._finish(number, outcome)

    def _lose(self, worker: str) -> None:
        number, future = self.busy.pop(worker)
        with suppress(OSError, RuntimeError):
            future.cancel()
        self.lost[number] = self.lost.get(number, 0) + 1
        if self.lost[number] < MOST_LOST:
            self.waiting.append(number)
            return
        words = f"{MOST_LOST} dask workers, one after another, ended while they worked on it; it may need more memory"
        self._finish(number, Failure(words))

    def _finish(self, number: int, outcome: FuseResult | Failure) -> None:
        self.done[number] = outcome if isinstance(outcome, Failure) else self.tasks[number].called(outcome)
        self.settled(number, self.done[number])

    def _give_up(self, why: str) -> None:
        for number in (*self.waiting, *(number for number, _ in self.busy.values())):
            self._finish(number, Failure(why))
        self.waiting.clear()
        self.busy.clear()

    def end(self) -> None:
        """Cancels unfinished tasks. A worker finishes its current model."""
        with suppress(OSError, RuntimeError):
            self.client.cancel([future for _, future in self.busy.values()])
        self.client.close()


def _there(work: Work, task: Job, seen: bool, wanted: str) -> FuseResult | Failure:
    """Runs a task on a worker. seen: whether the model exists on the client. wanted: the versions of the client's packages."""
    from onnx_subgraph.session.digest import versions

    here = f"the dask worker on {socket.gethostname()}"
    for place in task.places():
        if not os.access(place, os.R_OK) and (seen or place != task.model):
            return Failure(f"{place}: {here} can't read it; models and outputs lie on a file system that all workers share")
    if versions() != wanted:
        return Failure(f"{here} has another version of onnx-subgraph, onnx or onnxruntime; install the same everywhere")
    return work(task, lambda stage: None)
