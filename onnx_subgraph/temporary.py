"""Temporary files and folders, removed even if their process was killed.

Their names contain the program, machine and process. The first use of a folder by a process removes what dead processes of this
program left there. A living process holds a lock on its files, which ends with it. The processes of another machine can't be seen
from here, so its files must also be a day old.

A file that was set aside (`.old`) is restored if a temporary file of the same process shows that its work was not complete.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import math
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

PROGRAM = "onnx-subgraph"
ABANDONED_SECONDS = 24 * 3600.0
"""The age in seconds after which files of another machine are removed: no run writes a file for so long."""
_LOOK_SECONDS = 0.02
"""Seconds between two looks whether a lock is free."""
_HAS_LOCKS = importlib.util.find_spec("fcntl") is not None
"""The age without locks, as on Windows."""
_HOST = re.sub(r"[^A-Za-z0-9]+", "_", socket.gethostname())[:40] or "unknown"
_MARK = re.compile(rf"(?:^|\.){PROGRAM}-(?P<host>\w+)-(?P<pid>\d+)-\w+(?:\.(?P<kind>tmp|old))?$")
_numbers = itertools.count()
_noted: ContextVar[set[Path]] = ContextVar("noted", default=set())  # noqa: B039 - shared by all work without a set of its own
"""The temporary files and folders that this work uses."""
_swept: set[Path] = set()
"""The folders that this process has swept."""


def beside(target: Path, kind: str = "tmp") -> Path:
    """A name for a temporary file in the folder of `target`. kind: "old" for the previous `target`."""
    return target.with_name(f".{target.name}.{_mark()}.{kind}")


class LockedError(Exception):
    """Others have a lock for longer than was to be waited."""


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder, for the block."""
    path = make_folder()
    with held(path), locked(path):
        yield path


def make_folder() -> Path:
    """A temporary folder that its user removes."""
    parent = Path(tempfile.gettempdir())
    sweep_once(parent)
    return Path(tempfile.mkdtemp(prefix=f"{_mark()}_", dir=parent))


@contextmanager
def held(*paths: Path) -> Iterator[None]:
    """Removes these temporary files and folders after the block, or `clean_up` does if the work is given up."""
    with noted(*paths):
        try:
            yield
        finally:
            for path in paths:
                remove(path)


@contextmanager
def noted(*paths: Path) -> Iterator[None]:
    """If the work is given up in the block, or leaves these files there, `clean_up` finds them."""
    mine = _noted.get()
    mine.update(paths)
    try:
        yield
    finally:
        mine.difference_update(path for path in paths if not os.path.lexists(path))


def separate() -> set[Path]:
    """Temporary files that are noted in this context from here on are in the set that is returned."""
    mine: set[Path] = set()
    _noted.set(mine)
    return mine


@contextmanager
def locked(*paths: Path) -> Iterator[None]:
    """Holds the system's locks on files and folders, if there are such locks; it does not wait for a lock of others."""
    descriptors, owner = [], os.getpid()
    try:
        for path in paths if _HAS_LOCKS else ():
            with contextlib.suppress(OSError):
                descriptors.append(os.open(path, os.O_RDONLY))
                _take_lock(descriptors[-1])
        yield
    finally:
        for descriptor in descriptors:
            _release(descriptor, owner)


@contextmanager
def alone(path: Path, seconds: float = math.inf) -> Iterator[None]:
    """Within the block no other process or thread has this lock on a file or folder. Waits for it, if the system has locks.

    Raises LockedError after so many seconds.
    """
    if not _HAS_LOCKS:
        yield
        return
    descriptor, owner = os.open(path, os.O_RDONLY), os.getpid()
    try:
        _wait_for_lock(descriptor, path, seconds)
        yield
    finally:
        _release(descriptor, owner)


def remove(path: Path) -> None:
    """Removes a file, a folder with its content, or a link, if that is possible."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def clean_up(paths: Collection[Path]) -> None:
    """Removes or restores the noted files of work that was given up, as `sweep` does after the end of a process.

    The work may have been interrupted while it removed them itself, or may still use them in native code.
    """
    left = [one for path in tuple(paths) if (one := _Left.of(path)) is not None]
    for place in {one.path.parent for one in left}:
        _settle([one for one in left if one.path.parent == place])


def sweep_once(place: Path) -> None:
    """Sweeps a folder the first time that this process asks for it: a folder may hold very many files."""
    known = place.absolute()
    if known not in _swept:
        _swept.add(known)
        sweep(place)


def sweep(place: Path) -> None:
    """Removes what dead processes left in a folder, and restores what they had set aside. Files that can't be removed stay."""
    left = [one for one in _all_in(place) if one.is_abandoned()]
    for owner in {one.owner for one in left}:
        _settle([one for one in left if one.owner == owner])


def _mark() -> str:
    return f"{PROGRAM}-{_HOST}-{os.getpid()}-{next(_numbers)}"


class _Left(NamedTuple):
    """A file or folder with a name of ours. owner: machine and process. kind: "tmp", "old", or "" for a folder."""

    path: Path
    owner: tuple[str, int]
    kind: str

    @classmethod
    def of(cls, path: Path) -> _Left | None:
        found = _MARK.search(path.name)
        if found is None or (found["kind"] is None) != path.is_dir():
            return None
        return cls(path, (found["host"], int(found["pid"])), found["kind"] or "")

    def is_abandoned(self) -> bool:
        """Whether its process has certainly ended."""
        host, pid = self.owner
        gone = _HAS_LOCKS and host == _HOST and not _is_running(pid)
        with contextlib.suppress(OSError):
            return (gone or time.time() - self.path.lstat().st_mtime > ABANDONED_SECONDS) and not _is_locked(self.path)
        return False

    def settle(self, *, complete: bool) -> None:
        """Removes it, or restores it if the work of its process was not complete."""
        with contextlib.suppress(OSError):
            if self.kind == "old" and not complete:
                self.path.replace(self.path.with_name(_MARK.sub("", self.path.name).removeprefix(".")))
            else:
                remove(self.path)


def _all_in(place: Path) -> list[_Left]:
    """All files in a folder with a name of ours."""
    try:
        return [one for path in place.iterdir() if (one := _Left.of(path)) is not None]
    except OSError:
        return []


def _settle(left: Sequence[_Left]) -> None:
    """Removes what one process left. A temporary file shows that not all files had their final names yet."""
    complete = not any(one.kind == "tmp" for one in left)
    for one in sorted(left, key=lambda one: one.kind != "old"):
        one.settle(complete=complete)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it runs, and belongs to another user
        return True
    return True


def _is_locked(path: Path) -> bool:
    """Whether another process holds the lock; True if that can't be determined."""
    if not _HAS_LOCKS:
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return True
    try:
        _take_lock(descriptor)
    except OSError:
        return True
    finally:
        _release(descriptor, os.getpid())
    return False


def _take_lock(descriptor: int) -> None:
    """Raises OSError if another process holds it."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _wait_for_lock(descriptor: int, path: Path, seconds: float) -> None:
    """Takes a lock, if the file system has locks. Raises LockedError if others have it for so many seconds."""
    ends = time.monotonic() + seconds
    while True:
        try:
            _take_lock(descriptor)
        except BlockingIOError:
            if time.monotonic() >= ends:
                raise LockedError(f"another process has had the lock {path} for {seconds:g} s") from None
            time.sleep(_LOOK_SECONDS)
        except OSError:  # a file system without locks
            return
        else:
            return


def _release(descriptor: int, owner: int) -> None:
    """Lets go of a lock, and closes the file. owner: the process that took the lock.

    A process that was forked meanwhile has the same lock. It would hold it until it ends, and must not let go of it.
    """
    import fcntl

    with contextlib.suppress(OSError):
        if os.getpid() == owner:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
