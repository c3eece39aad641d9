"""Whether a model was written for the library of kernels: a word in its metadata, read without reading the model.

A model of the target `function` has operators of the same domain that only its definitions know, so that the domain says nothing.
"""

from __future__ import annotations

import io
from pathlib import Path

from onnx_subgraph.protobuf import fields

KERNELS = "onnx_subgraph.kernels"
"""Key in the metadata of a model whose operators the library has kernels for: their names."""
_METADATA, _KEY = 14, 1
"""The fields of ModelProto that hold a key and its value, and of StringStringEntryProto that hold the key, in onnx.proto."""


def is_marked(model: Path | bytes) -> bool:
    """Whether a model file, or a serialized model, has the mark. What is no model has none. Raises OSError."""
    with io.BytesIO(model) if isinstance(model, bytes) else model.open("rb") as file:
        try:
            entries = [dict(fields(io.BytesIO(entry), {_KEY})) for _, entry in fields(file, {_METADATA})]
        except ValueError:
            return False
    return any(entry.get(_KEY) == KERNELS.encode() for entry in entries)
