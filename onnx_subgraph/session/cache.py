"""Prepared models on disk: folders that appear whole, are checked when found, and go least recently used first.

Several processes may share the folder. An entry is made in a temporary folder and renamed into place. A process that needs an
entry waits for the one that makes it. An entry whose files have changed is made again.
"""

from __future__ import annotations

import contextlib
import itertools
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
from onnx_subgraph.session.digest import Memory, file_digest, sealed, stamp, unsealed

MANIFEST = "entry.json"
MODEL, PACKED = "model.onnx", "packed.onnx"
"""The files of an entry: the model, and a copy with packed weights."""
WEIGHTS = ".weights"
"""The suffix of files with packed weights: entries of one source share them, by hard links."""
ABANDONED_SECONDS = 24 * 3600.0
"""The age in seconds after which a temporary folder must belong to a process that died."""
IN_USE_SECONDS = 600.0
"""The seconds after its last use in which an entry is not evicted: another session, or process, may still load it."""
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Entry:
    """A prepared model. folder: its path. note: data from its maker. found: whether it was in the cache.

    nbytes: of its files, without the packed weights that it shares with others.
    """

    folder: Path
    note: dict[str, Any]
    nbytes: int
    found: bool

    @property
    def model(self) -> Path | None:
        """The model file; None if the entry is only a note."""
        path = self.folder / MODEL
        return path if path.exists() else None


Fill = Callable[[Path], dict[str, Any]]
"""Writes the files of an entry into a folder and returns its note."""


class Cache:
    """Entries under `folder`, together at most `most_bytes`. Those that may still be loaded stay, whatever their size.

    These are the entries that this object gave, and those that anyone used a short time ago.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder = folder
        self.most_bytes = most_bytes
        self.memory = Memory(folder / "files")
        self._entries = folder / "entries"
        self._given: set[Path] = set()

    def get(self, key: str, fill: Fill, *, lasting: bool = False, patience: float = math.inf) -> Entry:
        """The entry of `key`, made by `fill` if there is no complete and valid one.

        A note may have a time of expiry, `until`, in seconds since 1970. lasting: ignore entries that expire. patience: how many
        seconds to wait for another maker; then LockedError is raised. Raises what `fill` raises, and OSError.
        """
        self._given.add(self._entries / key)
        if (entry := self._find(key, lasting=lasting)) is not None:
            return entry
        with self._lock(key[:2], patience):
            if (entry := self._find(key, lasting=lasting)) is not None:  # another process made it meanwhile
                return entry
            self._drop(self._entries / key)  # it is no longer valid, even if it can't be made again
            entry = self._make(key, fill)
        self._trim()
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
        """The entry of `key`, if it is complete and valid. Any other stays: outside the lock another process may renew it now."""
        folder = self._entries / key
        manifest = folder / MANIFEST
        try:
            content = unsealed(manifest.read_text(encoding="utf-8"))
            files, note = dict(content["files"]), dict(content["note"])
            whole = all(_is_whole(folder / name, known) for name, known in files.items())
            whole = whole and time.time() < (-math.inf if lasting and "until" in note else float(note.get("until", math.inf)))
            with contextlib.suppress(OSError):  # a cache that was filled elsewhere may be read-only
                os.utime(manifest)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            whole = False
        if not whole:
            return None
        own = (known["stamp"][0] for name, known in files.items() if not name.endswith(WEIGHTS))
        return Entry(folder, note, sum(own), found=True)

    def _make(self, key: str, fill: Fill) -> Entry:
        _make_folder(self._entries)
        temporary = self._temporary(key)
        temporary.mkdir(mode=0o700)
        try:
            note = fill(temporary)
            files = {
                path.name: {"stamp": stamp(path), "digest": file_digest(path)}
                for path in sorted(temporary.iterdir())
                if path.is_file()
            }
            (temporary / MANIFEST).write_text(sealed({"files": files, "note": note}), encoding="utf-8")
            folder = self._entries / key
            self._drop(folder)
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        own = (path.stat().st_size for path in folder.iterdir() if path.suffix != WEIGHTS)
        return Entry(folder, note, sum(own), found=False)

    def _drop(self, folder: Path) -> None:
        """Delete an entry: rename it first, so that nobody sees half of it."""
        doomed = self._temporary(folder.name)
        with contextlib.suppress(OSError):
            folder.rename(doomed)
            temporary.remove(doomed)

    def _trim(self) -> None:
        sizes = {folder: _size(folder) for folder in self.entries()}
        total = sum(sizes.values())
        for folder, size in sizes.items():
            if total <= self.most_bytes:
                break
            if folder not in self._given and time.time() - _used(folder) > IN_USE_SECONDS:
                self._drop(folder)
                total -= size
        for path in self._entries.glob(".*"):
            if time.time() - _used(path) > ABANDONED_SECONDS:
                temporary.remove(path)
        for path in (self.folder / "weights").glob(f"*/*{WEIGHTS}"):
            with contextlib.suppress(OSError):
                if path.stat().st_nlink == 1:  # no entry uses it any more
                    path.with_suffix(".index").unlink(missing_ok=True)
                    path.unlink()

    def _temporary(self, key: str) -> Path:
        return self._entries / f".{key}.{os.getpid()}.{next(_numbers)}.{time.monotonic_ns()}"

    @contextmanager
    def _lock(self, name: str, patience: float) -> Iterator[None]:
        """One maker at a time, over all processes; if the system has no such locks, the last one to finish is kept."""
        folder = self.folder / "locks"
        _make_folder(folder)
        _create(folder / name)
        with temporary.alone(folder / name, patience):
            yield


class NoCache:
    """Replaces the cache if there is none: every entry is made, in a temporary folder that its user removes."""

    def __init__(self) -> None:
        self.memory = Memory(None)

    def get(self, key: str, fill: Fill, *, lasting: bool = False, patience: float = math.inf) -> Entry:
        """A new entry. Raises what `fill` raises, and OSError."""
        folder = temporary.make_folder()
        try:
            note = fill(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return Entry(folder, note, _size(folder), found=False)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise _said(error, "the cache folder can't be made", folder) from None


def _create(path: Path) -> None:
    try:
        path.open("a").close()
    except OSError as error:
        raise _said(error, "the cache folder can't be written to", path) from None


def _said(error: OSError, what: str, path: Path) -> OSError:
    return OSError(error.errno, f"{what} ({error.strerror}); ONNX_SUBGRAPH_CACHE names another one, or off", str(path))


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
    """The time of an entry's last use; a folder without a manifest has its own time."""
    for path in (folder / MANIFEST, folder):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
    return 0.0
