"""Read and write model files without their large weights, on the level of protobuf's wire format.

A model of 400 MB is 300 KB of graph with weights in between. `outlined` omits the data of large weights and returns where it is,
without reading it. `filled` is the inverse. In between, such a weight has an empty `raw_data`, or a word as a placeholder. Both
parse only fields, numbers and lengths (https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from mmap import mmap
from typing import NamedTuple

import onnx

LARGE = 1 << 16
"""Minimum size in bytes of a weight that is omitted."""
_GRAPH = onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number
_INITIALIZER = onnx.GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
_NUMBERS = {name: field.number for name, field in onnx.TensorProto.DESCRIPTOR.fields_by_name.items()}
_RAW, _TYPE, _LOCATION = (_NUMBERS[name] for name in ("raw_data", "data_type", "data_location"))
_PLAIN = frozenset(
    _NUMBERS[name] for name in ("dims", "data_type", "name", "raw_data", "doc_string", "metadata_props", "data_location")
)
"""The fields that a tensor may have if all its data is in `raw_data`."""
WHOLE_BYTES = frozenset(
    onnx.TensorProto.DataType.Value(name)
    for name in (
        *("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "BOOL"),
        *("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
    )
)
"""ONNX's numbers of the types whose elements are whole bytes. Only weights of these types are omitted."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LENGTHS = {_FIXED64: 8, _FIXED32: 4}

Buffer = bytes | mmap


class MalformedError(ValueError):
    """The bytes are not a protobuf message. protobuf's own parser gives the details."""


class Extent(NamedTuple):
    """The place of a weight's data in a file: offset and length in bytes."""

    offset: int
    length: int


class Gap(NamedTuple):
    """The place of a weight's data between pieces of a file. word: its placeholder; length: size of the data in bytes."""

    word: bytes
    length: int


Piece = bytes | Gap


class _Field(NamedTuple):
    """A field of a message, as positions. start: its tag. value: its contents, after the length. end: the first byte after it."""

    number: int
    kind: int
    start: int
    value: int
    end: int


def outlined(data: Buffer) -> tuple[bytes, dict[int, Extent]]:
    """A serialized model without its large weights, and their extents by position among the graph's initializers.

    Raises MalformedError where the bytes are not a message.
    """
    extents: dict[int, Extent] = {}

    def emptied(position: int, tensor: _Field) -> list[Piece] | None:
        raw = _data(data, tensor) if tensor.end - tensor.value >= LARGE else None
        if raw is None or raw.end - raw.value < LARGE:
            return None
        extents[position] = Extent(raw.value, raw.end - raw.value)
        return [data[tensor.value : raw.start], _head(_RAW, 0), data[raw.end : tensor.end]]

    pieces = _rewritten(data, emptied)
    return b"".join(piece for piece in pieces if isinstance(piece, bytes)), extents


def filled(content: bytes, lengths: Mapping[bytes, int]) -> list[Piece]:
    """The pieces of a serialized model, with gaps for initializers whose `raw_data` is a placeholder.

    lengths: placeholder → size of the data in bytes. The pieces, with the data in the gaps, are the file.
    """

    def gapped(position: int, tensor: _Field) -> list[Piece] | None:
        raw = _data(content, tensor)
        word = b"" if raw is None else content[raw.value : raw.end]
        if raw is None or word not in lengths:
            return None
        gap = Gap(word, lengths[word])
        return [content[tensor.value : raw.start] + _head(_RAW, gap.length), gap, content[raw.end : tensor.end]]

    return _rewritten(content, gapped)


def size(piece: Piece) -> int:
    """The size of a piece in bytes."""
    return piece.length if isinstance(piece, Gap) else len(piece)


def _rewritten(data: Buffer, change: Callable[[int, _Field], list[Piece] | None]) -> list[Piece]:
    """The pieces of a model after a change. change: the new contents of the initializer at a position; None keeps it."""
    made: list[Piece] = []
    position = 0
    for field in _fields(data, 0, len(data)):
        if field.number != _GRAPH or field.kind != _BYTES:
            made.append(data[field.start : field.end])
            continue
        graph: list[Piece] = []
        kept = field.value  # the start of what is not yet copied
        for inner in _fields(data, field.value, field.end):
            if inner.number != _INITIALIZER or inner.kind != _BYTES:
                continue
            tensor = change(position, inner)
            position += 1
            if tensor is not None:
                graph += [data[kept : inner.start], _head(_INITIALIZER, sum(map(size, tensor))), *tensor]
                kept = inner.end
        graph.append(data[kept : field.end])
        made += [_head(_GRAPH, sum(map(size, graph))), *graph]
    return made


def _data(content: Buffer, tensor: _Field) -> _Field | None:
    """The `raw_data` field of a tensor that has all its data there, in elements of whole bytes; else None."""
    fields = list(_fields(content, tensor.value, tensor.end))
    raw = [field for field in fields if field.number == _RAW and field.kind == _BYTES]
    types = [_varint(content, field.value)[0] for field in fields if field.number == _TYPE and field.kind == _VARINT]
    elsewhere = [_varint(content, field.value)[0] for field in fields if field.number == _LOCATION and field.kind == _VARINT]
    plain = all(field.number in _PLAIN for field in fields) and not any(elsewhere)
    return raw[0] if plain and len(raw) == 1 and len(types) == 1 and types[0] in WHOLE_BYTES else None


def _fields(data: Buffer, start: int, end: int) -> Iterator[_Field]:
    """The fields of the message between two positions. Raises MalformedError."""
    while start < end:
        tag, place = _varint(data, start)
        kind = tag & 7
        if kind == _VARINT:
            value, after = place, _varint(data, place)[1]
        elif kind == _BYTES:
            length, value = _varint(data, place)
            after = value + length
        elif kind in _LENGTHS:
            value, after = place, place + _LENGTHS[kind]
        else:
            raise MalformedError
        if after > end:
            raise MalformedError
        yield _Field(tag >> 3, kind, start, value, after)
        start = after


def _varint(data: Buffer, place: int) -> tuple[int, int]:
    """Read a number of 7 bits per byte, lowest first, and the position after it. Raises MalformedError."""
    number = shift = 0
    while shift < 70:
        if place >= len(data):
            raise MalformedError
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
    raise MalformedError


def varint(number: int) -> bytes:
    """A number in protobuf's encoding: 7 bits per byte, lowest first."""
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*parts, number))


def _head(number: int, length: int) -> bytes:
    """The tag and the length of a bytes field."""
    return varint(number << 3 | _BYTES) + varint(length)
