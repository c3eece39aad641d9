"""The files that a command writes: none that it reads, and none twice. This is checked before the first model is read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from onnx_subgraph.cli.models import Models
from onnx_subgraph.cli.streams import WrittenPath
from onnx_subgraph.errors import ModelError, UsageError

MODEL = "a model"
"""What a model is called in a message, in place of an option."""


def check_written(others: Iterable[Path] = ()) -> None:
    """Raises UsageError if the running command would write a file that it reads, or a file twice.

    others: files that it writes besides those that its options name; -o and --report may name the same ones.
    """
    context = click.get_current_context()
    read: dict[Path, str] = {}
    models: list[Path] = []
    written: list[tuple[str, Path]] = []
    for parameter in context.command.params:
        kind = parameter.type
        if isinstance(kind, click.Path) and not kind.file_okay:
            continue
        paths = list(_paths(context.params.get(str(parameter.name))))
        is_option = isinstance(parameter, click.Option)
        name = max(parameter.opts, key=len) if is_option else MODEL
        if isinstance(kind, WrittenPath) and (not kind.with_flag or context.params[kind.with_flag]):
            written += [(name, path) for path in paths]
            continue
        read |= {path.resolve(): name for path in paths}
        models += [] if is_option else paths
    uses = read | {path.resolve(): MODEL for path in others}
    for option, path in written:
        known = read if option in ("--output", "--report") else uses
        other = known.get(path.resolve()) or (MODEL if _is_data(path, models) else "")
        if other:
            raise UsageError(f"{option}: {path} is also the file of {other}", hint="name another file")
        uses[path.resolve()] = option


def check_writable(option: str, path: Path) -> None:
    """Raises UsageError if the file that an option names can't be written, so that the user learns it before any work."""
    folder = path.parent
    if path.exists() and not path.is_file():
        raise UsageError(f"{option}: {path} is not a regular file", hint="name a file to write")
    if not folder.is_dir():
        raise UsageError(f"{option}: there is no folder {folder}", hint="make the folder, or name another file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{option}: the folder {folder} can't be written to", hint="name another file")


def _paths(value: object) -> Iterator[Path]:
    """The paths in the value of a parameter."""
    match value:
        case Path():
            yield value
        case Models():
            yield from value.paths
        case tuple() | list():
            for one in value:
                yield from _paths(one)


def _is_data(path: Path, models: Iterable[Path]) -> bool:
    """Whether a file holds data of one of the models. Only files below the folder of a model can."""
    if not path.is_file():
        return False
    near = [model for model in models if path.resolve().is_relative_to(model.parent.resolve())]
    if not near:
        return False
    from onnx_subgraph.files.models import data_files

    for model in near:
        with contextlib.suppress(ModelError):
            if any(file.exists() and file.samefile(path) for file in data_files(model)):
                return True
    return False
