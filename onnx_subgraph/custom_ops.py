"""The libraries of custom operators of this run: those that the user named.

Every session of onnxruntime registers them (`register`), so that a model with their operators loads everywhere: in a probe, as a
reference, for a site, for timing. They are a context variable, which the threads of a run inherit; a child process gets them from
its parent.
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
    """The libraries of this run, in the order in which they were named."""
    return _NAMED.get()


@contextmanager
def using(paths: StrPath | Sequence[StrPath]) -> Iterator[None]:
    """Within the block sessions also have these libraries; each is registered once."""
    named = {path.resolve(): path.absolute() for path in (*libraries(), *several(paths))}
    token = _NAMED.set(tuple(named.values()))
    try:
        yield
    finally:
        _NAMED.reset(token)


def register(options: Any, also: Sequence[Path] = ()) -> None:
    """Register the libraries of this run, and `also` others, in these `SessionOptions`.

    Raises what onnxruntime raises for a bad file.
    """
    known = {path.resolve() for path in libraries()}
    for path in (*libraries(), *(path for path in also if path.resolve() not in known)):
        options.register_custom_ops_library(str(path))
