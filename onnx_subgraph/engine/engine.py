"""One region at run time: compiled for each signature or for all, checked, and run by onnxruntime if its backend fails.

A backend may raise, compute wrongly, be slow or hang. In every case the run returns correct outputs, and an `OnnxSubgraphWarning`
says which region failed, why, and when its backend is tried again.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Backend, Declined, Signature, signature_of
from onnx_subgraph.backends.subgraph import Subgraph
from onnx_subgraph.engine.breaker import Breaker
from onnx_subgraph.engine.cache import Cache, Usage
from onnx_subgraph.engine.deadline import within
from onnx_subgraph.engine.disk import restored_or_compiled
from onnx_subgraph.engine.expectation import Expectation, expected, of_any_shape, unexpected_of
from onnx_subgraph.engine.sample import BOUND, is_due, problem
from onnx_subgraph.engine.settings import EngineSettings
from onnx_subgraph.errors import EngineError, OnnxSubgraphWarning
from onnx_subgraph.forks import renew_in_forks


@dataclass(slots=True, eq=False)
class _Entry:
    """The state of one signature. broken: why its backend is not used, "" if it is; since: the time of the failure.

    told: whether the breaker knows of it.
    """

    expected: tuple[Expectation, ...]
    compiled: Any = None
    broken: str = ""
    since: float = 0.0
    told: bool = False


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of a region. sizes: the signatures whose compiled form fits, the best first. strict: no fallback to onnxruntime."""

    inputs: Sequence[Array]
    signature: Signature
    patience: float | None = None
    checked: bool = False
    sizes: tuple[Signature, ...] = ()
    strict: bool = False


class Engine:
    """A region with its backend. plain: runs the region if the backend does not. Thread-safe.

    breaker: of the backend, shared by the engines of a session. bound: the largest difference from onnxruntime's result, as a
    share of its largest element.
    """

    def __init__(
        self,
        subgraph: Subgraph,
        backend: Backend,
        plain: Backend,
        settings: EngineSettings,
        breaker: Breaker | None = None,
        bound: float = BOUND,
    ) -> None:
        self.subgraph = subgraph
        self.backend = backend
        self.plain = plain
        self.settings = settings
        self.breaker = breaker or Breaker(settings.retry)
        self.bound = bound
        self._entries: Cache[Signature, _Entry] = Cache(settings.signatures)
        self._plainly: Cache[None, Any] = Cache(1)
        self._numbers = itertools.count(1)
        self._failure = ""
        self._fallbacks = 0
        self.renew()
        renew_in_forks(self)

    def renew(self) -> None:
        """In a forked process no run has a lock."""
        self._alone: AbstractContextManager[Any] = nullcontext() if self.backend.concurrent else Lock()
        self._lock = Lock()

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """The outputs for these inputs, both in the order of the region.

        Raises EngineError if the backend fails and the settings are strict, else only what onnxruntime raises.
        """
        checked = is_due(next(self._numbers), self.settings.check)
        signature, settings = signature_of(inputs), self.settings
        sizes = (self._own(signature), _of_any_size(signature))
        return self._ran(_Run(inputs, signature, settings.patience, checked, sizes, settings.strict))

    def warm(self, inputs: Sequence[Array], *, every: bool = False) -> Sequence[Array]:
        """The outputs, as `run` gives them, after the backend has compiled the region for these inputs, however long that takes.

        every: compile it for all sizes of such inputs instead; the backend must be `dynamic`, or not specialize. The results are
        compared with onnxruntime's. Raises EngineError if the backend does not run it.
        """
        signature = signature_of(inputs)
        wanted = _of_any_size(signature) if every and self.backend.specializes else self._own(signature)
        return self._ran(_Run(inputs, signature, checked=True, sizes=(wanted,), strict=True))

    @property
    def usage(self) -> Usage:
        """The counters of the cache of compiled signatures."""
        return self._entries.usage

    @property
    def failure(self) -> str:
        """Why the backend was first given up for a signature; "" if it never was."""
        return self._failure

    @property
    def fallbacks(self) -> int:
        """How many runs fell back to onnxruntime."""
        return self._fallbacks

    def _ran(self, run: _Run) -> Sequence[Array]:
        """The outputs. Where onnxruntime does not run the inputs either, they are to blame, and its exception is raised."""
        if not self.breaker.asks(self.subgraph.name):
            return self._instead(run, f"was given up: {self._failure or 'it failed in other regions'}")
        entry = self._entry(run)
        if entry is None:
            return self._instead(run)
        if entry.broken:
            plain = self._plain(run)
            if run.strict and not entry.told:
                self._entries.drop(run.sizes[0], entry)  # it is compiled again when it is asked for again
            self._give_up(entry, entry.broken, run)
            return self._counted(plain)
        kept = [np.array(array) for array in run.inputs] if run.checked else []
        try:
            outputs = self._asked(entry, run.inputs)
        except Declined as declined:
            _restore(run.inputs, kept)
            return self._instead(run, str(declined) or "declined it")
        except Exception as error:  # a backend may raise any exception
            _restore(run.inputs, kept)
            plain = self._plain(run)
            self._give_up(entry, f"did not run it: {_said(error)}", run, "backend" if isinstance(error, TimeoutError) else "")
            return self._counted(plain)
        wrote = _restore(run.inputs, kept)
        unexpected = unexpected_of(entry.expected, outputs)
        if unexpected or run.checked:
            plain = self._plain(run)
            if unexpected and _forms(outputs) == _forms(plain):
                entry.expected, unexpected = of_any_shape(self.subgraph), ""  # what the model declares is wrong
            differing = wrote
            if run.checked and not (unexpected or wrote):
                differing = problem(outputs, plain, self.subgraph.outputs, self.bound)
            if why := unexpected or differing:
                self._give_up(entry, why, run, "engine" if differing else "")
                return self._counted(plain)
        self.breaker.worked(self.subgraph.name)
        return outputs

    def _entry(self, run: _Run) -> _Entry | None:
        """The compiled region; None if it is not ready and the run does not wait."""
        broken = None
        for sizes in run.sizes:
            entry = self._entries.peek(sizes)
            if entry is not None and not entry.broken:
                return entry
            if entry is not None and self.breaker.clock() - entry.since >= self.breaker.retry:
                self._entries.drop(sizes, entry)
            else:
                broken = broken or entry
        if broken is not None:
            return broken
        wanted, aside = run.sizes[0], run.patience is not None
        future: Future[_Entry] = self._entries.get(wanted, lambda: self._compiled(wanted, run), aside=aside)
        try:
            return future.result(run.patience)
        except TimeoutError:
            if run.patience:
                self._tell(f"has not compiled it after {run.patience:g} s, so this run does not wait", run)
            return None

    def _own(self, signature: Signature) -> Signature:
        """The signature to compile for: the run's own; only dtypes and ranks if the backend ignores sizes."""
        return signature if self.backend.specializes else _of_any_size(signature)

    def _compiled(self, sizes: Signature, run: _Run) -> _Entry:
        specific = sizes == run.signature and self.backend.specializes
        entry = _Entry(expected(self.subgraph, sizes) if specific else of_any_shape(self.subgraph))
        signature = sizes if self.backend.specializes else run.signature
        try:
            entry.compiled = restored_or_compiled(self.backend, self.subgraph, signature, self.settings.folder)
        except Exception as error:  # as above
            entry.broken, entry.since = f"did not compile it: {_said(error)}", self.breaker.clock()
        return entry

    def _asked(self, entry: _Entry, inputs: Sequence[Array]) -> Sequence[Array]:
        def call() -> Sequence[Array]:
            with self._alone:
                return list(self.backend.run(entry.compiled, inputs))

        deadline = None if self.backend.bounded else self.settings.deadline
        return call() if deadline is None else within(deadline, call)

    def _plain(self, run: _Run) -> Sequence[Array]:
        compiled = self._plainly.get(None, lambda: self.plain.compile(self.subgraph, run.signature)).result()
        return self.plain.run(compiled, run.inputs)

    def _instead(self, run: _Run, why: str = "") -> Sequence[Array]:
        """The outputs of onnxruntime. Raises EngineError with the reason instead, if there is one and the run is strict."""
        plain = self._plain(run)
        if why and run.strict:
            self._tell(why, run)
        return self._counted(plain)

    def _counted(self, plain: Sequence[Array]) -> Sequence[Array]:
        """The outputs of onnxruntime, which this run has instead of the backend's."""
        self._fallbacks += 1
        return plain

    def _give_up(self, entry: _Entry, why: str, run: _Run, grave: str = "") -> None:
        """Do not use the backend for a signature, after onnxruntime has run the same inputs. It counts once."""
        with self._lock:
            told, entry.told = entry.told, True
            first = not self._failure
            self._failure = self._failure or f"{self.backend.name} {why}"
        follows = ""
        if not told:
            entry.broken, entry.since, entry.compiled = why, self.breaker.clock(), None
            follows = self.breaker.failed(self.subgraph.name, grave=grave)
        if first or follows or run.strict:
            self._tell("; ".join(filter(None, (why, follows))), run)

    def _tell(self, why: str, run: _Run) -> None:
        given = ", ".join(
            f"{name} {dtype}[{', '.join('any' if size is None else str(size) for size in shape)}]"
            for name, (dtype, shape) in zip(self.subgraph.inputs, run.signature, strict=True)
        )
        message = f"region {self.subgraph.name}, with {given}: backend {self.backend.name} {why}"
        if run.strict:
            raise EngineError(message, hint="onnxruntime runs such a region where the settings are not strict")
        warnings.warn(f"{message}; onnxruntime runs it instead", OnnxSubgraphWarning, stacklevel=2)


def _of_any_size(signature: Signature) -> Signature:
    return tuple((dtype, (None,) * len(shape)) for dtype, shape in signature)


def _restore(inputs: Sequence[Array], kept: Sequence[Array]) -> str:
    """Give inputs their elements again; whether they had others, in words. kept: copies of them, or none."""
    changed = [(array, own) for array, own in zip(inputs, kept, strict=False) if array.tobytes() != own.tobytes()]
    for array, own in changed:
        np.copyto(array, own)
    return "wrote to its inputs" if changed else ""


def _forms(outputs: Sequence[object]) -> list[object]:
    return [(getattr(output, "dtype", None), getattr(output, "shape", None)) for output in outputs]


def _said(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {' '.join(lines[:4])}" if lines else type(error).__name__
    return text if len(text) <= 400 else f"{text[:397]}..."
