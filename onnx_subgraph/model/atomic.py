"""Files that appear whole or not at all.

A file is written under a temporary name in the target's folder, flushed to the disk and renamed over the target. Whatever goes
wrong on the way (a full disk, ^C), the temporary file is removed and the target is as it was.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from onnx_subgraph.errors import ModelError, UsageError

_numbers = itertools.count()


@contextmanager
def written_whole(*targets: Path) -> Iterator[tuple[BinaryIO, ...]]:
    """Files open for writing, one for each target. After the block they are renamed into place, in the order given.

    Raises ModelError when the system refuses (no space, no permission), and leaves nothing behind then.
    """
    temporary = [target.with_name(f".{target.name}.{os.getpid()}.{next(_numbers)}.tmp") for target in targets]
    files: list[BinaryIO] = []
    try:
        try:
            files.extend(path.open("xb") for path in temporary)
            yield tuple(files)
            for file in files:
                file.flush()
                os.fsync(file.fileno())
        finally:
            for file in files:
                file.close()
        for path, target in zip(temporary, targets, strict=True):
            path.replace(target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(
            f"{targets[-1]}: cannot be written: {reason}", hint="nothing was left behind; free space or choose another output"
        ) from error
    finally:
        for path in temporary:
            path.unlink(missing_ok=True)


def copy_whole(source: Path, target: Path) -> None:
    """A copy of `source` at `target`, byte for byte, without reading it into memory."""
    with written_whole(target) as (file,), source.open("rb") as original:
        copy_bytes(original, file, source.stat().st_size)


def copy_bytes(source: BinaryIO, target: BinaryIO, count: int) -> None:
    """Copy `count` bytes from where `source` stands to where `target` stands, inside the kernel where it can."""
    target.flush()
    start, goal = source.tell(), target.tell()
    done = 0
    try:
        while done < count:
            copied = os.copy_file_range(source.fileno(), target.fileno(), count - done, start + done, goal + done)
            if not copied:
                break
            done += copied
    except (AttributeError, OSError):  # Another system, or another file system: the rest goes through a buffer.
        pass
    source.seek(start + done)
    target.seek(goal + done)
    _copy_through(source, target, count - done)


def _copy_through(source: BinaryIO, target: BinaryIO, count: int) -> None:
    while count:
        block = source.read(min(count, 1 << 20))
        if not block:
            raise OSError(f"{source.name} ended {count} bytes early")
        target.write(block)
        count -= len(block)


def check_target(path: Path, *, never: tuple[Path, ...]) -> None:
    """Raise UsageError where `path` cannot be an output: no regular file, or one of the input's own files (`never`)."""
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}", hint="make the folder, or choose another output")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: is not a regular file", hint="choose a file name for the output")
    for source in never:
        if path == source or (path.exists() and source.exists() and path.samefile(source)):
            raise UsageError(
                f"{path}: is the input (or its data), which is never overwritten", hint="choose another output with -o"
            )
