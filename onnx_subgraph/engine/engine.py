"""One region at run time: compiled once for each signature of its inputs, checked, run by onnxruntime where its backend fails.

A backend may raise, answer wrongly, be slow or hang. Whatever it does, the run yields what the region computes, and an
`OnnxSubgraphWarning` says which region did not run as it should, and why.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Backend, Signature, signature_of
from onnx_subgraph.backends.subgraph import Subgraph
from onnx_subgraph.engine.cache import Cache, Usage
from onnx_subgraph.engine.disk import restored_or_compiled
from onnx_subgraph.engine.expectation import Expectation, expected
from onnx_subgraph.errors import EngineError, OnnxSubgraphWarning
from onnx_subgraph.paths import StrPath

FAILURES = 3
"""A backend that failed as often in a region, and never ran it, is not asked there again."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How engines behave. signatures: how many are held compiled, for each engine. folder: of the cache on disk, None for none.

    patience: seconds to wait for a backend to compile; the run then goes by onnxruntime, and later ones by the backend once it
    is ready. deadline: seconds that a run of a backend may take, after which it is given up for that signature. None: for ever.
    strict: raise EngineError where onnxruntime would take over. isolated: run backends in processes of their own, which may end.
    """

    signatures: int = 8
    folder: StrPath | None = None
    patience: float | None = None
    deadline: float | None = None
    strict: bool = False
    isolated: bool = False


@dataclass(slots=True)
class _Entry:
    """What became of one signature. broken: why its backend isn't asked any more, "" while it is."""

    expected: tuple[Expectation, ...]
    compiled: Any = None
    broken: str = ""


class Engine:
    """A region with its backend. plain: what runs the region when that does not. May be used by several threads."""

    def __init__(self, subgraph: Subgraph, backend: Backend, plain: Backend, settings: EngineSettings) -> None:
        self.subgraph = subgraph
        self.backend = backend
        self.plain = plain
        self.settings = settings
        self._entries: Cache[Signature, _Entry] = Cache(settings.signatures)
        self._plainly: Cache[None, Any] = Cache(1)
        self._alone = threading.Lock()
        self._failures = 0
        self._failure = ""
        self._runs = self._fallbacks = 0

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """The outputs for these inputs, both in the order of the region.

        Raises EngineError where the backend fails and the settings are strict, else only what onnxruntime raises.
        """
        signature = signature_of(inputs)
        entry = self._entry(signature)
        if entry is None or entry.broken:
            return self._run_plainly(inputs, signature)
        try:
            outputs = list(self._run(entry, inputs))
        except Exception as error:  # a backend may raise whatever it likes
            self._give_up(entry, f"did not run it: {_said(error)}", signature)
            return self._run_plainly(inputs, signature)
        wrong = _wrong(entry, outputs)
        if wrong:
            return self._judged(entry, outputs, wrong, inputs, signature)
        self._runs += 1
        return outputs

    @property
    def usage(self) -> Usage:
        """What the cache of compiled signatures has done."""
        return self._entries.usage

    @property
    def failure(self) -> str:
        """Why the backend was given up for a signature, the first time; "" where it never was."""
        return self._failure

    @property
    def fallbacks(self) -> int:
        """How many runs went by onnxruntime instead of the backend."""
        return self._fallbacks

    def _entry(self, signature: Signature) -> _Entry | None:
        """The compiled region; None where it is not there yet and nobody is to wait for it."""
        key = signature if self.backend.specializes else tuple((dtype, (len(shape),)) for dtype, shape in signature)
        aside = self.settings.patience is not None
        future: Future[_Entry] = self._entries.get(key, lambda: self._compiled(signature), aside=aside)
        try:
            return future.result(self.settings.patience)
        except TimeoutError:
            self._tell(f"has not compiled it after {self.settings.patience:g} s, so this run does not wait", signature)
            return None

    def _compiled(self, signature: Signature) -> _Entry:
        entry = _Entry(expected(self.subgraph, signature) if self.backend.specializes else _of_any_shape(self.subgraph))
        if self._failures >= FAILURES and not self._runs:
            entry.broken = "failed before"
            return entry
        try:
            entry.compiled = restored_or_compiled(self.backend, self.subgraph, signature, self.settings.folder)
        except Exception as error:  # as above
            self._give_up(entry, f"did not compile it: {_said(error)}", signature)
        return entry

    def _run(self, entry: _Entry, inputs: Sequence[Array]) -> Sequence[Array]:
        if self.settings.deadline is not None:
            return _within(self.settings.deadline, lambda: self._run_now(entry, inputs))
        return self._run_now(entry, inputs)

    def _run_now(self, entry: _Entry, inputs: Sequence[Array]) -> Sequence[Array]:
        if self.backend.concurrent:
            return self.backend.run(entry.compiled, inputs)
        with self._alone:
            return self.backend.run(entry.compiled, inputs)

    def _run_plainly(self, inputs: Sequence[Array], signature: Signature) -> Sequence[Array]:
        self._fallbacks += 1
        compiled = self._plainly.get(None, lambda: self.plain.compile(self.subgraph, signature)).result()
        return self.plain.run(compiled, inputs)

    def _judged(
        self, entry: _Entry, outputs: Sequence[Array], wrong: str, inputs: Sequence[Array], signature: Signature
    ) -> Sequence[Array]:
        """Outputs that are not as declared: onnxruntime's say whether the backend is wrong, or the declaration."""
        plain = self._run_plainly(inputs, signature)
        if [_form(output) for output in outputs] == [_form(output) for output in plain]:
            entry.expected = _of_any_shape(self.subgraph)
        else:
            self._give_up(entry, wrong, signature)
        return plain

    def _give_up(self, entry: _Entry, why: str, signature: Signature) -> None:
        entry.broken = why
        entry.compiled = None
        self._failures += 1
        self._failure = self._failure or f"{self.backend.name} {why}"
        self._tell(why, signature)

    def _tell(self, why: str, signature: Signature) -> None:
        given = ", ".join(f"{n} {d}{list(s)}" for n, (d, s) in zip(self.subgraph.inputs, signature, strict=True))
        message = f"region {self.subgraph.name}, with {given}: backend {self.backend.name} {why}"
        if self.settings.strict:
            raise EngineError(message, hint="onnxruntime runs such a region where the settings are not strict")
        warnings.warn(f"{message}; onnxruntime runs it instead", OnnxSubgraphWarning, stacklevel=2)


def _of_any_shape(subgraph: Subgraph) -> tuple[Expectation, ...]:
    return tuple(Expectation(name) for name in subgraph.outputs)


def _wrong(entry: _Entry, outputs: Sequence[Array]) -> str:
    if len(outputs) != len(entry.expected):
        return f"gave {len(outputs)} outputs, the region has {len(entry.expected)}"
    return next((wrong for e, output in zip(entry.expected, outputs, strict=True) if (wrong := e.problem(output))), "")


def _form(output: object) -> object:
    return getattr(output, "dtype", None), getattr(output, "shape", None)


def _said(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {' '.join(lines[:4])}" if lines else type(error).__name__
    return text if len(text) <= 400 else f"{text[:397]}..."


def _within(seconds: float, run: Callable[[], Sequence[Array]]) -> Sequence[Array]:
    """What `run` gives, in a thread of its own. Raises TimeoutError after `seconds`; the thread is left to itself."""
    future: Future[Sequence[Array]] = Cache[None, Sequence[Array]](1).get(None, run, aside=True)
    try:
        return future.result(seconds)
    except TimeoutError:
        raise TimeoutError(f"it takes more than {seconds:g} s") from None
