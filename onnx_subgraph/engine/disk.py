"""Compiled regions on disk, so that the next process need not compile them again.

The file name depends on everything that the content depends on. The file begins with a digest of the content: a truncated or
damaged file is compiled again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from onnx_subgraph.backends.backend import Backend, Signature
from onnx_subgraph.backends.subgraph import Subgraph
from onnx_subgraph.errors import ModelError
from onnx_subgraph.files.atomic import written_whole
from onnx_subgraph.paths import StrPath

SUFFIX = ".engine"
"""The suffix of the files in the folder."""


def restored_or_compiled(backend: Backend, subgraph: Subgraph, signature: Signature, folder: StrPath | None) -> Any:
    """The region compiled by `backend`: read from `folder` if it is there, else compiled and written to it.

    folder: created if missing; None to compile without a cache. A folder that can't be read or written has no effect. Raises what
    `compile` raises.
    """
    if folder is None:
        return backend.compile(subgraph, signature)
    file = Path(folder) / f"{_name(backend, subgraph, signature)}{SUFFIX}"
    content = _read(file)
    if content is not None:
        try:
            return backend.restore(content, subgraph, signature)
        except Exception:  # a backend may raise any exception; a file that it can't read is written again
            content = None
    compiled = backend.compile(subgraph, signature)
    saved = backend.save(compiled)
    if saved is not None:
        _write(file, saved)
    return compiled


def _name(backend: Backend, subgraph: Subgraph, signature: Signature) -> str:
    digest = hashlib.sha256(repr((backend.name, backend.version, subgraph.key, signature)).encode())
    digest.update(subgraph.weights_digest())
    return digest.hexdigest()[:40]


def _read(file: Path) -> bytes | None:
    try:
        content = file.read_bytes()
    except OSError:
        return None
    digest, body = content[:32], content[32:]
    return body if hashlib.sha256(body).digest() == digest else None


def _write(file: Path, content: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(file) as (target,):
            target.write(hashlib.sha256(content).digest())
            target.write(content)
    except (OSError, ModelError):  # a full disk costs time, not the result
        return
