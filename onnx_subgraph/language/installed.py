"""Installed packs: a package registers the folder of its `pack.yaml` under a name, and `--patterns NAME` selects it.

The package itself is not imported, only its parent packages. A pack is used only if the user names it, because it may load
libraries.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from onnx_subgraph.errors import PatternError
from onnx_subgraph.paths import StrPath, several

GROUP = "onnx_subgraph.packs"
"""The entry point group: name of the pack → the dotted name of the Python package whose folder has its `pack.yaml`."""


def installed_packs() -> Mapping[str, EntryPoint]:
    """The installed packs, by name."""
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def pack_folder(point: EntryPoint) -> Path:
    """The folder of an installed pack. Raises PatternError where its package is missing."""
    try:
        spec = find_spec(point.module)
    except ImportError:
        spec = None
    folder = next(iter(spec.submodule_search_locations or ()), None) if spec is not None else None
    if folder is None:
        hint = "install it again; the entry point names a Python package, whose folder has the pack.yaml"
        raise PatternError(f"the pack {point.name} is registered as {point.value}, which is not there", hint=hint)
    return Path(folder)


def with_names_resolved(paths: StrPath | Iterable[StrPath]) -> tuple[Path, ...]:
    """The paths, with the name of an installed pack replaced by its folder. An existing file or folder takes precedence."""
    return tuple(_resolved(path) for path in several(paths))


def _resolved(path: Path) -> Path:
    if os.sep in str(path) or path.exists():
        return path
    point = installed_packs().get(str(path))
    return path if point is None else pack_folder(point)
