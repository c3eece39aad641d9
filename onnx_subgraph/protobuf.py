"""The fields of a serialized message, read off a file without reading what is not wanted: the graph, and the weights in it.

A message is a row of fields, each a number, a kind and, for what holds others, its length
(https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import io
from collections.abc import Container, Iterator
from typing import BinaryIO

_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}
"""Kind → the bytes that such a field has."""
MOST_BYTES = (1 << 31) - 1
"""The bytes that a message can have."""


def fields(file: BinaryIO, wanted: Container[int]) -> Iterator[tuple[int, bytes]]:
    """Number and content of the fields of these numbers that have a length. Raises ValueError where the bytes are no message."""
    while (tag := _number(file, ends=True)) is not None:
        kind = tag & 7
        if kind == _VARINT:
            _number(file)
        elif kind == _BYTES:
            length = _number(file) or 0
            if length > MOST_BYTES:
                raise ValueError("a field is longer than a message can be")
            if tag >> 3 in wanted:
                yield tag >> 3, file.read(length)
            else:
                file.seek(length, io.SEEK_CUR)
        elif kind in _FIXED:
            file.seek(_FIXED[kind], io.SEEK_CUR)
        else:
            raise ValueError(f"a field has the kind {kind}")


def _number(file: BinaryIO, *, ends: bool = False) -> int | None:
    """A number of seven bits a byte, the lowest first; None at the end of the message where it may end."""
    value = shift = 0
    while byte := file.read(1):
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")
    if ends and not shift:
        return None
    raise ValueError("a number is cut off")
