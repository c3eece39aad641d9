"""Paths as a caller gives them, the names of files that are made beside a model, and where caches are."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from onnx_subgraph.errors import UsageError

StrPath = str | os.PathLike[str]
"""A path in any form that `pathlib.Path` takes."""


def several(paths: StrPath | Iterable[StrPath]) -> tuple[Path, ...]:
    """One path or many, as paths: a `str` is one, not many of one letter."""
    return (Path(paths),) if isinstance(paths, str | os.PathLike) else tuple(map(Path, paths))


def beside(model: Path, what: str) -> Path:
    """`model.<what>.onnx`, in the folder of `model.onnx`. Raises UsageError where `model` names no file, as `.` and `/` don't."""
    if not model.name:
        raise UsageError(f"{model}: is a folder, not a model file", hint=f"name the files in it, for example {model / '*.onnx'}")
    return model.with_name(f"{model.stem}.{what}{model.suffix or '.onnx'}")


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the platform wants caches: `$XDG_CACHE_HOME` or `~/.cache`, `~/Library/Caches`, `%LOCALAPPDATA%`."""
    if sys.platform == "win32":
        base = Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        given = environment.get("XDG_CACHE_HOME", "")
        base = Path(given) if os.path.isabs(given) else Path.home() / ".cache"  # noqa: PTH117 - the rule of the XDG standard
    return base / "onnx-subgraph"
