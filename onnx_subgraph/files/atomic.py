"""Write files atomically: a file appears complete or not at all.

A file is written under a temporary name in the target's folder, flushed to disk, and renamed to the target. On any failure (a
full disk, ^C) the temporary file is removed and the target is unchanged. If the process is killed, the next process that writes
to the folder removes what is left (`temporary`). A model never ends up beside the data file of another model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from onnx_subgraph import temporary
from onnx_subgraph.errors import ModelError, UsageError


@contextmanager
def written_whole(*targets: Path) -> Iterator[tuple[BinaryIO, ...]]:
    """Open one file per target for writing. After the block they are renamed to their targets, in the given order.

    With several targets, the old files are moved away first, so that old and new files are never mixed.

    Raises ModelError when the system refuses (no space, no permission); nothing is left behind then.
    """
    for folder in {target.parent for target in targets}:
        temporary.sweep_once(folder)
    paths = [temporary.beside(target) for target in targets]
    with temporary.held(*paths):
        try:
            with ExitStack() as opened:
                files = tuple(opened.enter_context(path.open("xb")) for path in paths)
                with temporary.locked(*paths):
                    yield files
                    for file in files:
                        file.flush()
                        os.fsync(file.fileno())
                        file.close()
                    with _set_aside(targets if len(targets) > 1 else ()):
                        for path, target in zip(paths, targets, strict=True):
                            path.replace(target)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ModelError(
                f"{targets[-1]}: cannot be written: {reason}", hint="nothing was left behind; free space or choose another output"
            ) from error


@contextmanager
def _set_aside(targets: Sequence[Path]) -> Iterator[None]:
    """Move the targets away for the duration of the block, last one first. They are restored if the block fails, else deleted."""
    new = [target for target in targets if not target.exists()]
    aside = {target: temporary.beside(target, "old") for target in reversed(targets) if target.is_file()}
    with temporary.noted(*aside.values()):
        try:
            with temporary.locked(*aside):
                for target, path in aside.items():
                    target.replace(path)
                yield
        except BaseException:
            for target in new:
                target.unlink(missing_ok=True)
            for target, path in reversed(aside.items()):
                if path.exists():
                    path.replace(target)
            raise
        for path in aside.values():
            path.unlink(missing_ok=True)


def copy_whole(source: Path, target: Path) -> None:
    """Copy `source` to `target` byte for byte, without reading it into memory."""
    with written_whole(target) as (file,), source.open("rb") as original:
        copy_bytes(original, file, source.stat().st_size)


def copy_bytes(source: BinaryIO, target: BinaryIO, count: int) -> None:
    """Copy `count` bytes between the current positions of two files, inside the kernel where possible."""
    target.flush()
    start, goal = source.tell(), target.tell()
    done = 0
    try:
        while done < count:
            copied = os.copy_file_range(source.fileno(), target.fileno(), count - done, start + done, goal + done)
            if not copied:
                break
            done += copied
    except (AttributeError, OSError):  # Unsupported by the system, or across file systems: copy the rest through a buffer.
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
    """Raise UsageError where `path` cannot be an output: not a regular file, or one of the input's files (`never`)."""
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}", hint="make the folder, or choose another output")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: is not a regular file", hint="choose a file name for the output")
    for source in never:
        if path == source or (path.exists() and source.exists() and path.samefile(source)):
            raise UsageError(
                f"{path}: is the input (or its data), which is never overwritten", hint="choose another output with -o"
            )
