"""Tell whether a model was written for our library of kernels, from a metadata key, without reading the whole model.

The operators' domain does not tell: a model for the target `function` has operators of the same domain, for which there may be no
kernels.
"""

from __future__ import annotations

import io
from pathlib import Path

from onnx_subgraph.protobuf import fields

KERNELS = "onnx_subgraph.kernels"
"""Metadata key of a model written for the library; its value lists the operators with kernels."""
_METADATA, _KEY = 14, 1
"""Field numbers in onnx.proto: metadata_props in ModelProto, and key in StringStringEntryProto."""


def is_marked(model: Path | bytes) -> bool:
    """Whether a model file, or a serialized model, has the key. False for anything that is not a model. Raises OSError."""
    with io.BytesIO(model) if isinstance(model, bytes) else model.open("rb") as file:
        try:
            entries = [dict(fields(io.BytesIO(entry), {_KEY})) for _, entry in fields(file, {_METADATA})]
        except ValueError:
            return False
    return any(entry.get(_KEY) == KERNELS.encode() for entry in entries)
