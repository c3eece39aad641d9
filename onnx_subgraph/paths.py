"""Paths from a caller, names of files beside a model, names of models in stored files, and cache folders."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from onnx_subgraph.errors import UsageError

StrPath = str | os.PathLike[str]
"""A path in any form that `pathlib.Path` takes."""


def path_of(given: object, what: str = "a model") -> Path:
    """A file that a caller gives. what: for the message. Raises UsageError for an object in memory."""
    if not isinstance(given, str | os.PathLike):
        hint = "save it first, and give the path of the file"
        raise UsageError(f"{what} is given as a path, and this is of type {type(given).__name__}", hint=hint)
    return Path(given)


def several(paths: StrPath | Iterable[StrPath], what: str = "a file") -> tuple[Path, ...]:
    """One path or many, as a tuple of paths: a `str` is one path. what: for the message. Raises UsageError as `path_of`."""
    given = paths if isinstance(paths, Iterable) and not isinstance(paths, str | bytes | os.PathLike) else (paths,)
    return tuple(path_of(path, what) for path in given)


def beside(model: Path, what: str) -> Path:
    """`model.<what>.onnx`, in the folder of `model.onnx`. Raises UsageError if `model` names no file, such as `.` and `/`."""
    if not model.name:
        raise UsageError(f"{model}: is a folder, not a model file", hint=f"name the files in it, for example {model / '*.onnx'}")
    return model.with_name(f"{model.stem}.{what}{model.suffix or '.onnx'}")


def short_names(models: Iterable[Path]) -> dict[Path, str]:
    """Model → its name in a file that works in any checkout: the shortest end of its path that no other model has."""
    listed = list(models)
    return {model: _shortest(model, [_parts(other) for other in listed if other != model]) for model in listed}


def _shortest(model: Path, others: Sequence[tuple[str, ...]]) -> str:
    # The path above the working folder differs on other machines.
    parts = _parts(model) if model.is_absolute() or ".." in model.parts else model.parts
    length = next((n for n in range(1, len(parts)) if all(other[-n:] != parts[-n:] for other in others)), len(parts))
    return PurePosixPath(*parts[-length:]).as_posix()


def name_for(model: Path, names: Iterable[str]) -> str | None:
    """The name from such a file that is for a model: its path as it is given, or the longest that its path ends with."""
    fitting = [name for name in names if _ends_with(model, PurePosixPath(name).parts)]
    as_given = PurePosixPath(*model.parts).as_posix()
    return as_given if as_given in fitting else max(fitting, key=lambda name: len(PurePosixPath(name).parts), default=None)


def _ends_with(model: Path, wanted: tuple[str, ...]) -> bool:
    return _parts(model)[-len(wanted) :] == wanted


def _parts(model: Path) -> tuple[str, ...]:
    return Path(os.path.abspath(model)).parts  # noqa: PTH100  (a link keeps its own name: in a cache it leads to a checksum)


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The platform's folder for caches: `$XDG_CACHE_HOME` or `~/.cache`, `~/Library/Caches`, `%LOCALAPPDATA%`."""
    if sys.platform == "win32":
        base = Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        given = environment.get("XDG_CACHE_HOME", "")
        base = Path(given) if os.path.isabs(given) else Path.home() / ".cache"  # noqa: PTH117 - the rule of the XDG standard
    return base / "onnx-subgraph"
