"""Prepared models on disk: folders that appear whole, are checked when they are found, and leave by least recent use.

Several processes may share the folder. An entry is made in a temporary folder and renamed into place; whoever wants the same one
waits for its maker; an entry whose files are not what was written is thrown away and made again.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx_subgraph import temporary
from onnx_subgraph.session.digest import Memory, file_digest, stamp

MANIFEST = "entry.json"
MODEL, PACKED = "model.onnx", "packed.onnx"
"""The files of an entry: the model, and the same with packed weights."""
WEIGHTS = ".weights"
"""What the files of packed weights end in: entries of one source share them, by hard links."""
ABANDONED_SECONDS = 24 * 3600.0
"""The age at which a temporary folder is taken for that of a process that died."""
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Entry:
    """A prepared model. folder: where it is. note: what its maker wrote about it. found: it was there.

    nbytes: of its files, without the packed weights that it shares with others.
    """

    folder: Path
    note: dict[str, Any]
    nbytes: int
    found: bool

    @property
    def model(self) -> Path | None:
        """The model file; None where the note is all there is."""
        path = self.folder / MODEL
        return path if path.exists() else None


Fill = Callable[[Path], dict[str, Any]]
"""Puts the files of an entry into a folder and gives the note about them."""


class Cache:
    """Entries under `folder`, together at most `most_bytes` large; the one just made or found stays whatever its size."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder = folder
        self.most_bytes = most_bytes
        self.memory = Memory(folder / "files")
        self._entries = folder / "entries"

    def get(self, key: str, fill: Fill, *, lasting: bool = False) -> Entry:
        """The entry of `key`, made by `fill` where there is none that is whole and still valid.

        A note may say `until` when, in seconds since 1970. lasting: an entry that is valid for a while only does not count.
        Raises what `fill` raises, and OSError.
        """
        if (entry := self._find(key, lasting=lasting)) is not None:
            return entry
        with self._lock(key[:2]):
            if (entry := self._find(key, lasting=lasting)) is not None:  # another process made it while this one waited
                return entry
            entry = self._make(key, fill)
        self._trim(keep=entry.folder)
        return entry

    def weights(self, source: str) -> Path:
        """The folder of the packed weights that the models of one source share. source: a digest."""
        return self.folder / "weights" / source

    def entries(self) -> list[Path]:
        """The folders of all entries, the least recently used first."""
        with contextlib.suppress(OSError):
            return sorted((path for path in self._entries.iterdir() if not path.name.startswith(".")), key=_used)
        return []

    def _find(self, key: str, *, lasting: bool) -> Entry | None:
        folder = self._entries / key
        manifest = folder / MANIFEST
        try:
            content = json.loads(manifest.read_text(encoding="utf-8"))
            files, note = dict(content["files"]), dict(content["note"])
            whole = all(_is_whole(folder / name, known) for name, known in files.items())
            whole = whole and time.time() < (-math.inf if lasting and "until" in note else float(note.get("until", math.inf)))
            os.utime(manifest)
        except FileNotFoundError:
            if folder.exists():
                self._drop(folder)
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            whole = False
        if not whole:
            self._drop(folder)
            return None
        own = (known["stamp"][0] for name, known in files.items() if not name.endswith(WEIGHTS))
        return Entry(folder, note, sum(own), found=True)

    def _make(self, key: str, fill: Fill) -> Entry:
        self._entries.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self._temporary(key)
        temporary.mkdir(mode=0o700)
        try:
            note = fill(temporary)
            files = {
                path.name: {"stamp": stamp(path), "digest": file_digest(path)}
                for path in sorted(temporary.iterdir())
                if path.is_file()
            }
            (temporary / MANIFEST).write_text(json.dumps({"files": files, "note": note}), encoding="utf-8")
            folder = self._entries / key
            self._drop(folder)
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        own = (path.stat().st_size for path in folder.iterdir() if path.suffix != WEIGHTS)
        return Entry(folder, note, sum(own), found=False)

    def _drop(self, folder: Path) -> None:
        """Take an entry away: out of sight by a rename first, so that nobody sees a half of it."""
        doomed = self._temporary(folder.name)
        with contextlib.suppress(OSError):
            folder.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)

    def _trim(self, *, keep: Path) -> None:
        sizes = {folder: _size(folder) for folder in self.entries()}
        total = sum(sizes.values())
        for folder, size in sizes.items():
            if total <= self.most_bytes:
                break
            if folder != keep:
                self._drop(folder)
                total -= size
        for path in self._entries.glob(".*"):
            if time.time() - _used(path) > ABANDONED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
        for path in (self.folder / "weights").glob(f"*/*{WEIGHTS}"):
            with contextlib.suppress(OSError):
                if path.stat().st_nlink == 1:  # no entry has it any more
                    path.with_suffix(".index").unlink(missing_ok=True)
                    path.unlink()

    def _temporary(self, key: str) -> Path:
        return self._entries / f".{key}.{os.getpid()}.{next(_numbers)}.{time.monotonic_ns()}"

    @contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        """One maker at a time, of all processes; where the system has no such locks, the last one to finish is kept."""
        try:
            import fcntl
        except ImportError:
            yield
            return
        folder = self.folder / "locks"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (folder / name).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class NoCache:
    """What stands for a cache where there is none: every entry is made, in a temporary folder that its user removes."""

    def __init__(self) -> None:
        self.memory = Memory(None)

    def get(self, key: str, fill: Fill, *, lasting: bool = False) -> Entry:
        """An entry that is made now. Raises what `fill` raises, and OSError."""
        folder = temporary.make_folder()
        try:
            note = fill(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return Entry(folder, note, _size(folder), found=False)


def _is_whole(path: Path, known: dict[str, Any]) -> bool:
    state = stamp(path)
    if state == known["stamp"]:
        return True
    return bool(state[0] == known["stamp"][0] and file_digest(path) == known["digest"])


def _size(folder: Path) -> int:
    total = 0
    with contextlib.suppress(OSError):
        for path in folder.rglob("*"):
            state = path.stat()
            total += state.st_size // state.st_nlink
    return total


def _used(folder: Path) -> float:
    """When an entry was used last; a folder without a manifest counts as of its own time."""
    for path in (folder / MANIFEST, folder):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
    return 0.0
