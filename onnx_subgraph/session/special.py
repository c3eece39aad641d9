"""Makes the schedules of a session: specialised models, or engines compiled for given sizes.

A maker holds the arguments of its session, not the session, which may end first.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx_subgraph.errors import EngineError, SessionError
from onnx_subgraph.forks import renew_in_forks
from onnx_subgraph.paths import several
from onnx_subgraph.session.commands import LOOK_SECONDS
from onnx_subgraph.session.engines import engines_of, holds_engines
from onnx_subgraph.session.kernels import with_kernels_for
from onnx_subgraph.session.libraries import with_libraries
from onnx_subgraph.session.prepare import Prepared, cache_of, prepare, specializing
from onnx_subgraph.session.schedule import EVERY, Buffers, Feeds, Schedule, Signature
from onnx_subgraph.session.settings import SessionSettings
from onnx_subgraph.verification.sessions import plain_session_class

if TYPE_CHECKING:
    from onnx_subgraph.engine.session import EngineSession


class _Workers:
    """The most preparations in the background at a time, over all sessions of the process."""

    def __init__(self) -> None:
        self.renew()
        renew_in_forks(self)

    def renew(self) -> None:
        """In a forked process nothing is being prepared."""
        self.free = threading.BoundedSemaphore(1)


WORKERS = _Workers()


def in_place(source: Path | bytes) -> Path | bytes:
    """The same model when the program has changed its folder."""
    return source if isinstance(source, bytes) else source.absolute()


@dataclass(frozen=True, slots=True)
class Specialised:
    """Models specialised to a signature, by `onnx-subgraph specialize`.

    source, weights: the model, and the folder of its external data if that is elsewhere. content: the digest of the model and its
    data when the session was made. inputs: what each run is fed. open: makes a session of a prepared model. reuse: bind inputs
    and outputs once. packs: its sessions may share packed weights.
    """

    source: Path | bytes
    content: str
    weights: Path | None
    inputs: frozenset[str]
    providers: tuple[str, ...]
    settings: SessionSettings
    open: Callable[[Prepared], Any]
    reuse: bool = False
    packs: bool = False
    every: int | None = None

    def __call__(self, signature: Signature, feeds: Feeds, stop: threading.Event, *, urgent: bool) -> Schedule:
        """The schedule of a signature. Raises SessionError, OnnxSubgraphError or what onnxruntime raises."""
        _check(signature)
        if weight := next((name for name, _, _ in signature if name not in self.inputs), None):
            raise SessionError(f"{weight!r} is a weight of the model, which its schedules hold")
        shapes = {name: shape for name, _, shape in signature}
        recipe = specializing(self.settings, self.providers, shapes, packs=self.packs)
        with nullcontext() if urgent else _turn(stop):
            made = partial(prepare, self.source, recipe, self.settings, cache=cache_of(self.settings), weights=self.weights)
            prepared = made(stop=stop, aside=not urgent)
        try:
            if prepared.content != self.content:
                raise SessionError("the file of the model, or of its data, was changed")
            if prepared.path is None:
                raise SessionError(prepared.reason)
            _check_random(prepared.path)
            session, warms = self.open(prepared), holds_engines(prepared)
        finally:
            if prepared.temporary is not None:
                shutil.rmtree(prepared.temporary, ignore_errors=True)
        if warms:
            session.warm(feeds)
        buffers = Buffers.bound(session, signature) if self.reuse and not prepared.engines else None
        needed = prepared.nbytes + (0 if buffers is None else buffers.nbytes)
        return Schedule(signature, session, prepared.path, needed, buffers)


def opened(
    settings: SessionSettings, options: Any, providers: Any, provider_options: Any, kwargs: dict[str, Any], prepared: Prepared
) -> Any:
    """A session of a model that was prepared for one signature. Raises SessionError where it would write the user's files."""
    engines = engines_of(prepared, settings)
    if engines is not None:
        return engines
    if options.enable_profiling or options.optimized_model_filepath:
        raise SessionError("its session options write a profile or a model, and a schedule would write it again")
    path = prepared.packed or prepared.path
    assert path is not None
    options = with_libraries(options, (*several(settings.libraries), *prepared.libraries))
    return plain_session_class()(str(path), with_kernels_for(path, options, providers), providers, provider_options, **kwargs)


@dataclass(frozen=True, slots=True)
class Compiled:
    """The engines of a model, compiled for a signature or for all sizes.

    every: the number of signatures at which they are compiled for all sizes, if their backends can do that.
    """

    engines: EngineSession
    least: int

    @property
    def every(self) -> int | None:
        """The first signature, if compilation does not depend on sizes at all."""
        if not any(engine.backend.specializes for engine in self.engines.engines):
            return 1
        return self.least if self.engines.dynamic else None

    def __call__(self, signature: Signature, feeds: Feeds, stop: threading.Event, *, urgent: bool) -> Schedule:
        """The schedule. Raises SessionError if a backend does not run these feeds."""
        _check(signature)
        try:
            self.engines.warm(feeds, every=signature == EVERY)
        except EngineError as error:
            raise SessionError(error.message) from error
        return Schedule(signature, self.engines, None, 0)


@contextmanager
def _turn(stop: threading.Event) -> Iterator[None]:
    """Waits for a turn to prepare in the background. Raises SessionError if `stop` is set first."""
    free = WORKERS.free
    while not free.acquire(timeout=LOOK_SECONDS):
        if stop.is_set():
            raise SessionError("it was not waited for")
    try:
        yield
    finally:
        free.release()


def _check(signature: Signature) -> None:
    if any(0 in shape for _, _, shape in signature):
        raise SessionError("an input is empty")


def _check_random(path: Path) -> None:
    """Raises SessionError for a model that draws random numbers: its schedule would draw those of the general model again."""
    from onnx_subgraph.files.models import load
    from onnx_subgraph.verification.randomness import random_operator

    model = load(path)
    if name := next(filter(None, (random_operator(node, model) for node in model.graph)), ""):
        raise SessionError(f"{name} draws random numbers, and a schedule would draw the same ones again")
