"""Models from standard input and to standard output: the argument `-`, and the option `-o -`.

Commands work on files, so the input and the output are temporary files. Reports call both `-`. If the model goes to standard
output, the report goes to standard error.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any

import click

from onnx_subgraph import paths
from onnx_subgraph.errors import UsageError

DASH = "-"
_FOLDER, _RECEIVED, _SENT = (f"onnx_subgraph.{name}" for name in ("folder", "received", "sent"))
"""Keys in `Context.meta`: the temporary folder, and the two files."""


class ModelPath(click.Path):
    """The path of a model file, given as an argument. An empty one is an error: probably an unset shell variable."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path as a `Path`; for `-`, that of the temporary file. Raises click.BadParameter if there is nothing to read."""
        if not os.fspath(value):
            self.fail("the path is empty; is a variable not set?", param, ctx)
        if os.fspath(value) != DASH or ctx is None or ctx.resilient_parsing:
            return super().convert(value, param, ctx)
        if sys.stdin.isatty():
            self.fail("nothing is piped into standard input", param, ctx)
        return _received(ctx)


class WrittenPath(click.Path):
    """The path of a file to write. An empty one is an error: probably an unset shell variable.

    with_flag: the name of the flag without which the file is read instead.
    """

    def __init__(self, with_flag: str = "", **options: Any) -> None:
        super().__init__(path_type=Path, **options)
        self.with_flag = with_flag

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path as a `Path`. Raises click.BadParameter for an empty one."""
        if not os.fspath(value):
            self.fail("the path is empty; is a variable not set?", param, ctx)
        return super().convert(value, param, ctx)


class OutputPath(WrittenPath):
    """The path of a model to write."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path as a `Path`; for `-`, that of the temporary file. Raises click.BadParameter for a terminal."""
        if os.fspath(value) != DASH or ctx is None or ctx.resilient_parsing:
            return super().convert(value, param, ctx)
        if sys.stdout.isatty():
            self.fail("a model is not written to a terminal; redirect standard output", param, ctx)
        path = _folder(ctx) / "sent" / "stdout.onnx"
        path.parent.mkdir(exist_ok=True)
        ctx.meta[_SENT] = path
        ctx.call_on_close(partial(_send, path))
        return path


MODEL = ModelPath()
OUTPUT = OutputPath()


def default_output(model: Path, what: str) -> Path:
    """`model.<what>.onnx` beside the model. Raises UsageError if the model comes from standard input."""
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(_RECEIVED) == model and not context.params.get("dry_run"):
        raise UsageError("a model from standard input has no folder to write to", hint="name the output: -o FILE, or -o -")
    return paths.beside(model, what)


def is_sent() -> bool:
    """Whether the model goes to standard output, so that nothing else may."""
    context = click.get_current_context(silent=True)
    return context is not None and _SENT in context.meta


def naming() -> Callable[[str], str]:
    """A function that replaces the temporary paths by `-` in a message; it also works in threads without this context."""
    context = click.get_current_context(silent=True)
    found = [] if context is None else [str(context.meta[key]) for key in (_RECEIVED, _SENT) if key in context.meta]
    return lambda text: reduce(lambda said, path: said.replace(path, DASH), found, text)


def _folder(context: click.Context) -> Path:
    if _FOLDER not in context.meta:
        from onnx_subgraph import temporary

        context.meta[_FOLDER] = context.with_resource(temporary.folder())
    folder = context.meta[_FOLDER]
    assert isinstance(folder, Path)
    return folder


def _received(context: click.Context) -> Path:
    path = _folder(context) / "stdin.onnx"
    if _RECEIVED not in context.meta:
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
        context.meta[_RECEIVED] = path
    return path


def _send(path: Path) -> None:
    """Writes the finished model to standard output. Raises UsageError if it is more than one file."""
    if not path.exists():
        return
    if len(list(path.parent.iterdir())) > 1:
        raise UsageError("the model has external data, which can't go to standard output", hint="name the output: -o FILE")
    with path.open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer, 1 << 20)
    sys.stdout.buffer.flush()
