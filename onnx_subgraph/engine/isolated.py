"""A backend in a separate process: if it crashes or hangs, our process goes on, and onnxruntime runs the region.

Arrays are copied to that process and back, some 2 GB a second. Use it for backends that you do not trust yet.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from onnx_subgraph import custom_ops
from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Backend, Declined, Signature
from onnx_subgraph.backends.registry import find_backend
from onnx_subgraph.backends.subgraph import Subgraph
from onnx_subgraph.engine.wire import Message, receive, send
from onnx_subgraph.errors import UsageError
from onnx_subgraph.forks import renew_in_forks
from onnx_subgraph.inherited import environment
from onnx_subgraph.watch import after

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(eq=False)
class Remote:
    """A region in the other process. started: the number of the process that has compiled it, counted from the first.

    seconds: of its last run there, without the transfers.
    """

    number: int
    subgraph: Subgraph
    signature: Signature
    started: int = 0
    seconds: float = 0.0


class Isolated(Backend):
    """The backend of that name, from the registry. deadline: seconds after which a run, and its process, is ended.

    A process that ended is started again on the next request, and its regions are compiled again; only the request during which
    it ended fails. Raises UsageError if the backend is missing.
    """

    def __init__(self, name: str, deadline: float | None = None) -> None:
        self.name = name
        self._deadline = deadline
        self._libraries = custom_ops.libraries()
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0
        self._numbers = itertools.count()
        self._gone: list[int] = []
        self.renew()
        renew_in_forks(self)
        traits = self._start()
        self.version, self.specializes, self.dynamic = traits["version"], traits["specializes"], traits["dynamic"]
        self.bounded = True

    def renew(self) -> None:
        """In a forked process: the other process is the parent's, and the next request starts a new one."""
        self._lock = threading.RLock()
        if self._process is not None:
            self._closing.detach()
            _leave(self._process)
            self._process = None

    def supports(self, node: ir.Node) -> bool:
        """As the backend, in this process."""
        return find_backend(self.name).supports(node)

    def compile(self, subgraph: Subgraph, signature: Signature) -> Remote:
        """The region, compiled in the other process."""
        region = Remote(next(self._numbers), subgraph, signature)
        self._compile(region)
        weakref.finalize(region, self._gone.append, region.number)
        return region

    def run(self, compiled: Remote, inputs: Sequence[Array]) -> Sequence[Array]:
        """The outputs. Raises Declined, as the backend, and RuntimeError with its message, or how its process ended."""
        with self._lock:
            if not self._is_alive() or compiled.started != self._started:
                self._compile(compiled)
            answer = self._ask({"ask": "run", "region": compiled.number}, inputs, deadline=self._deadline)
            compiled.seconds = answer.head["seconds"]
            return answer.arrays

    def _compile(self, region: Remote) -> None:
        with self._lock:
            head = {"ask": "compile", "region": region.number, "name": region.subgraph.name, "key": region.subgraph.key}
            head["signature"] = region.signature
            self._ask(head, content=region.subgraph.serialized())
            region.started = self._started

    def _ask(
        self, head: dict[str, Any], arrays: Sequence[Array] = (), content: bytes = b"", deadline: float | None = None
    ) -> Message:
        if not self._is_alive():
            self._start()
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        gone, self._gone[:] = list(self._gone), []
        with contextlib.ExitStack() as watched:
            alarm = None if deadline is None else watched.enter_context(after(deadline, partial(_kill, process)))
            try:
                send(process.stdin, Message({**head, "gone": gone}, arrays, content))  # type: ignore[arg-type]
                answer = receive(process.stdout)  # type: ignore[arg-type]
            except (EOFError, OSError):
                late = alarm is not None and alarm.rang
                ended = _ended(process)
                if late:
                    raise TimeoutError(f"it took more than {deadline:g} s and was ended") from None
                raise RuntimeError(ended) from None
            except BaseException:  # such as ^C: the pending answer would be taken for the next one
                _close(process)
                raise
        if "declined" in answer.head:
            raise Declined(answer.head["declined"])
        if "error" in answer.head:
            raise RuntimeError(answer.head["error"])
        return answer

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _start(self) -> Mapping[str, Any]:
        """Start the process; returns what its backend reports about itself."""
        given = {**environment(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "ONNX_SUBGRAPH_SESSION": "0"}
        given.pop("ONNX_SUBGRAPH_BACKEND", None)
        command = [sys.executable, "-m", "onnx_subgraph.engine.worker", self.name, *map(str, self._libraries)]
        if self._process is not None:
            _close(self._process)
        # A process group of its own, so that what the backend starts ends with it.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=given, start_new_session=True
        )
        self._started += 1
        self._closing = weakref.finalize(self, _close, self._process)
        assert self._process.stdout is not None
        try:
            head = receive(self._process.stdout).head  # type: ignore[arg-type]
        except EOFError:
            raise UsageError(
                f"backend {self.name} does not start in a process of its own: {_ended(self._process)}",
                hint="its own output, above, says why; --no-isolated runs it in this process",
            ) from None
        if "error" in head:
            _close(self._process)
            raise UsageError(head["error"], hint="--no-isolated runs the backend in this process")
        return head


_left: list[subprocess.Popen[bytes]] = []
"""Processes of our parent. They are kept: to delete a pipe may wait for the thread that was using it when we were forked."""


def _leave(process: subprocess.Popen[bytes]) -> None:
    """Let go of a process of our parent. What is left in the buffers of its pipes is the parent's to send."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None and not pipe.closed:
            os.dup2(nowhere, pipe.fileno(), inheritable=False)
    os.close(nowhere)
    _left.append(process)


def _ended(process: subprocess.Popen[bytes]) -> str:
    code = process.wait()
    _close(process)
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return f"its process ended {how}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and everything that it started, which may hold its pipes open."""
    if not hasattr(os, "killpg"):
        process.kill()
        return
    with contextlib.suppress(OSError):  # nothing of its group is left
        os.killpg(process.pid, signal.SIGKILL)


def _close(process: subprocess.Popen[bytes]) -> None:
    """End the process and close its pipes; once, because its number may be another's later."""
    assert process.stdin is not None and process.stdout is not None
    if process.stdin.closed:
        return
    _kill(process)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # unsent data
            pipe.close()
