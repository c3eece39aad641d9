"""The inputs of a preparation besides the model and the settings: code, patterns, packages, libraries, the machine.

The key of the cache covers all of them, by content. Unchanged files are not read again.
"""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from onnx_subgraph.backends.names import is_file_name, names_in
from onnx_subgraph.paths import several
from onnx_subgraph.session.digest import Memory, digest_of, sources, versions
from onnx_subgraph.session.settings import SessionSettings

GROUPS = "onnx_subgraph."
"""The prefix of our entry point groups: patterns, selectors, backends."""
MOST_FILES = 1000
"""The most source files of a package that are hashed; for a larger package only its version counts."""
ISA, KERNELS = "ONNX_SUBGRAPH_ISA", "ONNX_SUBGRAPH_KERNELS"
"""Environment variables that select kernels, and so affect measurements and verification."""


def ingredients(settings: SessionSettings, memory: Memory) -> str:
    """A digest of all these inputs, except the model and the commands."""
    patterns = several(settings.patterns)
    parts = [versions(), *_files((file for place in patterns for file in sources(place)), memory)]
    parts += [part for point in _plugins() for part in _plugin(point, memory)]
    parts += _files((Path(name) for name in names_in(settings.backend or "") if is_file_name(name)), memory)
    parts += _files(several(settings.libraries), memory)
    parts += _files((file for place in patterns for file in _binaries(place)), memory)
    if settings.target == "native":
        from onnx_subgraph.kernels.build import source_folder

        parts += [os.environ.get(ISA, ""), os.environ.get(KERNELS, "")]
        parts += _files(sorted(source_folder().glob("*.[ch]")), memory)
    if settings.target == "native" or settings.measure:
        parts += machine()
    return digest_of(parts)


def _plugins() -> list[EntryPoint]:
    found = entry_points()
    groups = [group for group in found.groups if group.startswith(GROUPS)]
    points = {(group, point.name, point.value): point for group in groups for point in found.select(group=group)}
    return [points[key] for key in sorted(points)]


def _plugin(point: EntryPoint, memory: Memory) -> Iterator[str]:
    """A package's registrations, version and code. The code may change without the version during development."""
    yield from (point.group, point.name, point.value, "" if point.dist is None else point.dist.version)
    try:
        spec = importlib.util.find_spec(point.module.partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = [file for folder in folders for file in sources(folder)] if folders else [Path(spec.origin or "")]
    if len(files) <= MOST_FILES:
        yield from _files(files, memory)


def _files(paths: Iterable[Path], memory: Memory) -> Iterator[str]:
    for path in paths:
        try:
            yield from (path.name, memory.file(path))
        except OSError:  # the code that uses it reports the error
            yield from (path.name, "")


def _binaries(place: Path) -> list[Path]:
    """The libraries that may lie in a pack."""
    return sorted(path for path in place.rglob("*") if path.suffix in {".so", ".dll", ".dylib"}) if place.is_dir() else []


def machine() -> list[str]:
    """The machine of a measurement: the processor and the number of cores."""
    told = [platform.machine(), platform.processor(), str(os.cpu_count())]
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return told
    return told + sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
