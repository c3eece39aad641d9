"""Whether a model was written for the library of kernels: a word in its metadata, read without reading the model.

A model of the target `function` has operators of the same domain that only its definitions know, so that the domain says nothing.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

KERNELS = "onnx_subgraph.kernels"
"""Key in the metadata of a model whose operators the library has kernels for: their names."""
_METADATA = 14
"""The field of a ModelProto that holds one key and its value, in onnx.proto."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""How protobuf says the length of a field."""


def is_marked(model: Path | bytes) -> bool:
    """Whether a model file, or a serialized model, has the mark. What is no model has none. Raises OSError.

    All fields but those of metadata are passed over, so that it takes the same time however large the model is.
    """
    with io.BytesIO(model) if isinstance(model, bytes) else model.open("rb") as file:
        try:
            return any(_key(entry) == KERNELS.encode() for entry in _fields(file, _METADATA))
        except EOFError:
            return False


def _key(entry: bytes) -> bytes:
    """The key of a StringStringEntryProto."""
    return next(_fields(io.BytesIO(entry), 1), b"")


def _fields(file: BinaryIO, wanted: int) -> Iterator[bytes]:
    """What the fields of this number hold. Raises EOFError where the message is cut off, or none."""
    while (tag := _number(file, ends=True)) is not None:
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            _number(file)
        elif kind in (_FIXED64, _FIXED32):
            file.seek(8 if kind == _FIXED64 else 4, io.SEEK_CUR)
        elif kind == _BYTES:
            length = _number(file) or 0
            if number == wanted:
                yield file.read(length)
            else:
                file.seek(length, io.SEEK_CUR)
        else:
            raise EOFError


def _number(file: BinaryIO, *, ends: bool = False) -> int | None:
    """A number of seven bits a byte, the lowest first; None at the end of the message where it may end."""
    value = shift = 0
    while byte := file.read(1):
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
        shift += 7
        if shift > 63:
            raise EOFError
    if ends and not shift:
        return None
    raise EOFError
