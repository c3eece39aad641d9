"""Digests of the inputs of a prepared model: the model and its weights, our version, the patterns.

Hashing gigabytes of weights at every start would cost as much as loading them. So the digest of a file is remembered under its
path, size and times, as git does in its index. A file that changed in the last seconds is read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from onnx_subgraph.errors import ModelError
from onnx_subgraph.late import late_imports

PACKAGE = Path(__file__).parents[1]
RACY_SECONDS = 2.0
"""A file younger than this many seconds may change again with the same time."""
MOST_REMEMBERED = 4096
"""The most remembered files; the oldest are forgotten first."""


class Memory:
    """Remembered data in a folder (None: nothing is stored), mostly digests of files."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def model(self, source: Path | bytes, weights: Path | None = None) -> str:
        """The digest of a model (a file, or serialized with its data in `weights`) and of its data files.

        Raises OSError, and ModelError for what is no model.
        """
        if isinstance(source, bytes):
            digest, folder = hashlib.sha256(source).hexdigest(), weights or Path.cwd()
        else:
            digest, folder = self.file(source), weights or source.parent
        parts = [digest]
        for location in self._locations(source, digest):
            data = folder / location
            if Path(location).is_absolute() or ".." in Path(location).parts or not data.is_file():
                raise ModelError(f"its data '{location}' is no file in {folder}", hint="export the model again")
            parts += [location, self.file(data)]
        return digest_of(parts)

    def locations(self, source: Path | bytes) -> list[str]:
        """The data files that a model names, relative to its folder. Raises as `model` does."""
        return self._locations(source, hashlib.sha256(source).hexdigest() if isinstance(source, bytes) else self.file(source))

    def _locations(self, source: Path | bytes, digest: str) -> list[str]:
        if isinstance(locations := self.recall("locations", digest).get("locations"), list):
            return [str(location) for location in locations]
        locations = _locations(source)
        self.remember("locations", digest, {"locations": locations})
        return locations

    def file(self, path: Path) -> str:
        """The digest of a file; it is read only if it has changed. Raises OSError."""
        state = stamp(path)
        known = self.recall("file", str(path.resolve()))
        if known.get("stamp") == state and isinstance(digest := known.get("digest"), str):
            return digest
        digest = file_digest(path)
        if time.time_ns() - state[1] > RACY_SECONDS * 1e9:
            self.remember("file", str(path.resolve()), {"stamp": state, "digest": digest})
        return digest

    def recall(self, kind: str, name: str) -> dict[str, object]:
        """The data remembered under a key; {} if there is none."""
        return {} if self._folder is None else _read(self._folder / digest_of([kind, name]))

    def remember(self, kind: str, name: str, content: dict[str, object]) -> None:
        """Remember data under a key, if there is a folder and it can be written."""
        if self._folder is None:
            return
        note = self._folder / digest_of([kind, name])
        with contextlib.suppress(OSError):  # a failed write only costs time later
            note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = note.with_name(f".{note.name}.{os.getpid()}.{time.monotonic_ns()}")
            try:
                temporary.write_text(sealed(content), encoding="utf-8")
                temporary.replace(note)
            finally:
                temporary.unlink(missing_ok=True)
            notes = list(note.parent.iterdir())
            if len(notes) > MOST_REMEMBERED:
                notes.sort(key=lambda other: other.stat().st_mtime)
                for old in notes[: MOST_REMEMBERED // 4]:
                    old.unlink(missing_ok=True)


def stamp(path: Path) -> list[int]:
    """Size, times of change in ns, and inode of a file: what changes when its content does.

    The time of the content can be set, as by `cp -p`; that of the inode can't.
    """
    state = path.stat()
    return [state.st_size, state.st_mtime_ns, state.st_ino, state.st_ctime_ns]


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(parts: Iterable[str]) -> str:
    """SHA-256 of several texts, unique for the sequence."""
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()


def sealed(content: object) -> str:
    """Data as JSON behind its own digest, so that damage is found."""
    text = json.dumps(content)
    return f"{digest_of([text])}\n{text}"


def unsealed(written: str) -> Any:
    """The data of `sealed`. Raises ValueError if it is damaged."""
    digest, _, text = written.partition("\n")
    if digest != digest_of([text]):
        raise ValueError("the data is not what was written")
    return json.loads(text)


@cache
def versions() -> str:
    """A digest of what makes prepared models: our code, the built-in patterns, the libraries. They are read once a process."""
    built_in = PACKAGE / "patterns" if (PACKAGE / "patterns").is_dir() else PACKAGE.parent / "patterns"
    parts = [f"{name}={_version(name)}" for name in ("onnxruntime", "onnx", "onnx-ir", "onnx-shape-inference", "openvino")]
    for place in (PACKAGE, built_in):
        for path in sources(place):
            parts += [path.name, hashlib.sha256(path.read_bytes()).hexdigest()]
    return digest_of(parts)


def sources(place: Path) -> list[Path]:
    """The files of code, patterns and data in a folder, or the file itself."""
    if place.is_file():
        return [place]
    return sorted(path for path in place.rglob("*") if path.suffix in {".py", ".json", ".yaml", ".yml"} and path.is_file())


def _version(distribution: str) -> str:
    import onnxruntime

    if distribution == "onnxruntime":  # several distributions contain it
        return str(onnxruntime.__version__)
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _locations(source: Path | bytes) -> list[str]:
    with late_imports():  # the first start of a program with a model; later ones know the digest
        import onnx

        from onnx_subgraph.files import stored
        from onnx_subgraph.files.models import read
        from onnx_subgraph.files.protobuf import tensors
    if isinstance(source, bytes):
        try:
            proto = onnx.ModelProto.FromString(source)
        except Exception as error:  # protobuf's own error; onnxruntime reports what is wrong with the bytes
            raise ModelError("it is no ONNX model") from error
    else:
        proto = read(source)
    external = (t for t in tensors(proto) if t.data_location == onnx.TensorProto.EXTERNAL)
    return sorted({stored.external_place(tensor)[0] for tensor in external})


def _read(note: Path) -> dict[str, object]:
    try:
        content = unsealed(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    with contextlib.suppress(OSError):
        os.utime(note)
    return content if isinstance(content, dict) else {}
