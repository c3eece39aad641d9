"""Detects changed files by polling."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

SECONDS = 0.3
"""Seconds between two polls: long enough for an editor that writes a file in pieces."""
SUFFIXES = frozenset({".yaml", ".yml"})

Stamps = dict[Path, tuple[int, int]]
"""File → its time of modification, in ns, and its size."""


def changes(paths: Sequence[Path]) -> Iterator[frozenset[Path]]:
    """All files under `paths` first, then the changed and new ones, each time that there are some; endless.

    A change of a shared formula or a `pack.yaml` counts as a change of all files in its folder and below.
    """
    seen = _stamps(paths)
    yield frozenset(seen)
    while True:
        time.sleep(SECONDS)
        now = _stamps(paths)
        changed = {path for path, stamp in now.items() if seen.get(path) != stamp}
        seen = now
        if changed:
            shared = [path.parent for path in changed if path.name in ("formulas.yaml", "pack.yaml")]
            yield frozenset(path for path in now if path in changed or any(folder in path.parents for folder in shared))


def _stamps(paths: Sequence[Path]) -> Stamps:
    files = (file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*"))))
    found: Stamps = {}
    for file in files:
        if file.suffix in SUFFIXES:
            try:
                state = file.stat()
            except OSError:  # it was deleted meanwhile
                continue
            found[file.resolve()] = state.st_mtime_ns, state.st_size
    return found
