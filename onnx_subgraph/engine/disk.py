"""Compiled regions on disk, so that the next process need not compile them again.

A file is named by everything that its content depends on, and begins with a digest of the content: one that is cut off or
damaged is compiled anew, not read.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from onnx_subgraph.backends.backend import Backend, Signature
from onnx_subgraph.backends.subgraph import Subgraph
from onnx_subgraph.errors import ModelError
from onnx_subgraph.model.atomic import written_whole
from onnx_subgraph.paths import StrPath

SUFFIX = ".engine"
"""Of the files in the folder."""


def restored_or_compiled(backend: Backend, subgraph: Subgraph, signature: Signature, folder: StrPath | None) -> Any:
    """The region compiled by `backend`, from `folder` where it lies there, and put there where it does not.

    folder: made if it is missing; None to compile without looking. A folder that can't be read or written is as good as none.
    Raises what `compile` raises.
    """
    if folder is None:
        return backend.compile(subgraph, signature)
    file = Path(folder) / f"{_name(backend, subgraph, signature)}{SUFFIX}"
    content = _read(file)
    if content is not None:
        try:
            return backend.restore(content, subgraph, signature)
        except Exception:  # a backend may raise whatever it likes; what it can't read it shall write again
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
    except (OSError, ModelError):  # a full disk costs time, not the answer
        return
