"""The functions that a model file carries, read without its graph: what holds the weights is skipped, and nothing is imported.

A protobuf is a row of fields, each a number, a kind and, for what holds others, its length (protobuf's *Encoding*). Field 25 of
ModelProto holds a function, 1 of FunctionProto its name, and 10 its domain (onnx.proto).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_FUNCTIONS, _NAME, _DOMAIN = 25, 1, 10
_FIXED = {1: 8, 5: 4}
"""Kind → the bytes that such a field has."""


def carried_functions(source: Path | bytes) -> frozenset[tuple[str, str]]:
    """Domain and name of each; none of what is no model. Raises OSError where the file can't be read."""
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        try:
            functions = [dict(_fields(io.BytesIO(content), {_NAME, _DOMAIN})) for _, content in _fields(file, {_FUNCTIONS})]
        except ValueError:
            return frozenset()
    texts = ({number: text.decode(errors="replace") for number, text in one.items()} for one in functions)
    return frozenset((text.get(_DOMAIN, ""), text.get(_NAME, "")) for text in texts)


def _fields(file: BinaryIO, wanted: set[int]) -> Iterator[tuple[int, bytes]]:
    """The fields of these numbers that have a length. Raises ValueError where it is no protobuf."""
    while (tag := _number(file)) is not None:
        kind = tag & 7
        if kind == 0:
            _number(file)
        elif kind == 2 and (length := _number(file)) is not None:
            if tag >> 3 in wanted:
                yield tag >> 3, file.read(length)
            else:
                file.seek(length, io.SEEK_CUR)
        elif kind in _FIXED:
            file.seek(_FIXED[kind], io.SEEK_CUR)
        else:
            raise ValueError(f"a field has the kind {kind}")


def _number(file: BinaryIO) -> int | None:
    """The next number, seven bits a byte; None at the end. Raises ValueError where it does not end."""
    number, shift = 0, 0
    while byte := file.read(1):
        number |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            return number
        if shift > 63:
            raise ValueError("a number has more than 64 bits")
    return None
