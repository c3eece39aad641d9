"""The libraries of custom operators of this run: those that the user named, and no others.

Whoever makes a session of onnxruntime registers them (`register`), so that a model that holds their operators loads everywhere:
in a probe, for the reference, for a site, when it is timed. They belong to the context, and go with it into the threads of a
run; a process that is started for a run is told of them by whoever starts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from onnx_subgraph.paths import StrPath, several

_NAMED: ContextVar[tuple[Path, ...]] = ContextVar("custom_op_libraries", default=())


def libraries() -> tuple[Path, ...]:
    """Those of this run, in the order in which they were named."""
    return _NAMED.get()


@contextmanager
def using(paths: StrPath | Sequence[StrPath]) -> Iterator[None]:
    """Within the block sessions have these libraries, and those that they have already; each is registered once."""
    named = {path.resolve(): path.absolute() for path in (*libraries(), *several(paths))}
    token = _NAMED.set(tuple(named.values()))
    try:
        yield
    finally:
        _NAMED.reset(token)


def register(options: Any, also: Sequence[Path] = ()) -> None:
    """Let a session with these `SessionOptions` have the libraries of this run, and `also` others.

    Raises what onnxruntime raises for a file that is no such library.
    """
    known = {path.resolve() for path in libraries()}
    for path in (*libraries(), *(path for path in also if path.resolve() not in known)):
        options.register_custom_ops_library(str(path))
