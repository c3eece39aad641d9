"""Reads single fields of a serialized message from a file, without the rest: the graph, and its weights.

A message is a sequence of fields. Each has a number, a kind and, for some kinds, a length
(https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import io
from collections.abc import Container, Iterator
from typing import BinaryIO

_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}
"""Kind → the size of such a field in bytes."""
MOST_BYTES = (1 << 31) - 1
"""The largest size of a message in bytes."""


def fields(file: BinaryIO, wanted: Container[int]) -> Iterator[tuple[int, bytes]]:
    """Number and content of the length-delimited fields with these numbers. Raises ValueError for bytes that are no message."""
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
    """A varint: seven bits a byte, the lowest first; None at the end of the message, if it may end there."""
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
