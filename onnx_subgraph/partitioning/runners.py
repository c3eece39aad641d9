"""The backends of a partition: one object answers what is supported, one runs regions during verification and timing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx_subgraph.backends.backend import Backend
from onnx_subgraph.backends.names import SHIPPED, is_file_name
from onnx_subgraph.backends.registry import find_backend
from onnx_subgraph.engine.isolated import Isolated
from onnx_subgraph.errors import UsageError
from onnx_subgraph.language.capability import read_capability


@dataclass(frozen=True, slots=True)
class Runner:
    """A backend. asked: answers what it supports. running: runs the engines; the same object, or one in a separate process."""

    asked: Backend
    running: Backend


def runners_of(names: Sequence[str], *, isolated: bool | None, runs: bool) -> tuple[Runner, ...]:
    """The backends of these names, in order. isolated: run them in separate processes; None for those of other packages only.

    runs: whether they will run anything. Raises UsageError for one that does not exist, or is named twice.
    """
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(
            f"the backend {twice} is named twice", hint="name each once, the one that is asked first before the others"
        )
    return tuple(_runner(name, isolated=isolated, runs=runs) for name in names)


def _runner(name: str, *, isolated: bool | None, runs: bool) -> Runner:
    base = read_capability(Path(name)).runs if is_file_name(name) else name
    trusted = base.partition(":")[0] in SHIPPED if isolated is None else not isolated
    apart = None if trusted or not runs else Isolated(name)  # before `find_backend`, because the backend may crash when it starts
    asked = find_backend(name)
    if apart is not None:
        apart.name = asked.name  # the name in its engines
    return Runner(asked, apart or asked)
