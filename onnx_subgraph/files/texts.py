"""Strings of a model that are not UTF-8: readable in memory, and unchanged byte for byte in the written file.

protobuf does not check the strings of ONNX files, and onnxruntime loads names of any bytes. In memory such a byte is `␛` and two
hexadecimal digits: `caf␛e9` for Latin-1's "café". An original `␛` is doubled. So every string has one readable form, parts of it
can be used in new names, and the bytes can be restored without a record.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import onnx
from google.protobuf.descriptor import Descriptor, FieldDescriptor  # type: ignore[import-untyped]

from onnx_subgraph.files.wire import varint

MARK = "␛"
MARK_BYTES = MARK.encode()
_TEXTS_IN_BYTES = {"onnx.AttributeProto": ("s", "strings")}
"""Fields of type bytes that hold text: message → field names. Such fields of tensors hold data."""
_SMALL = 1 << 12
"""Maximum size in bytes of a message that is serialized to test it for ASCII."""
_MARKED = re.compile(f"{MARK}(?:{MARK}|([0-9a-f]{{2}}))".encode())


def readable(raw: bytes) -> str:
    """The readable form of any bytes; UTF-8 without `␛` is unchanged."""
    return "".join(_readable(part) for part in re.split(f"({MARK})".encode(), raw))


def _readable(part: bytes) -> str:
    if part == MARK_BYTES:
        return MARK * 2
    text = part.decode(errors="surrogateescape")
    return re.sub("[\udc80-\udcff]", lambda found: f"{MARK}{ord(found[0]) - 0xDC00:02x}", text)


def original(text: str) -> bytes:
    """The bytes whose readable form is `text`."""
    return _MARKED.sub(lambda found: bytes.fromhex(found[1].decode()) if found[1] else MARK_BYTES, text.encode())


def file_name(text: str) -> str:
    """A file name in a model, as the file system expects it."""
    return os.fsdecode(original(text)) if MARK in text else text


def make_readable(proto: onnx.ModelProto) -> None:
    """Replace every string of a model by its readable form, in place."""
    for message, name, value in _texts(proto):
        raw = value.encode() if isinstance(value, str) else value
        if MARK_BYTES in raw or not _is_utf8(raw):
            _set(message, name, raw, readable(raw).encode())


def put_back(proto: onnx.ModelProto) -> None:
    """Restore the original bytes of every string of a model, in place."""
    for message, name, value in _texts(proto):
        text = value if isinstance(value, str) else value.decode(errors="replace")
        if MARK in text:
            _set(message, name, text.encode(), original(text))


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _set(message: Any, name: str, old: bytes, new: bytes) -> None:
    """Replace `old` by `new` in a string field. protobuf refuses to set a string that is not UTF-8, but can parse one."""
    field = message.DESCRIPTOR.fields_by_name[name]
    values = getattr(message, name) if field.is_repeated else (getattr(message, name),)
    held = [value.encode() if isinstance(value, str) else value for value in values]
    message.ClearField(name)
    tag = varint(field.number << 3 | 2)
    for raw in held:
        raw = new if raw == old else raw
        message.MergeFromString(tag + varint(len(raw)) + raw)


class _Plan(NamedTuple):
    """The names of a message type's fields that hold strings, or messages that may contain strings."""

    one: tuple[str, ...]
    many: tuple[str, ...]
    message: tuple[str, ...]
    messages: tuple[str, ...]


@cache
def _plan(kind: Descriptor) -> _Plan:
    as_bytes = _TEXTS_IN_BYTES.get(kind.full_name, ())
    texts = [f for f in kind.fields if f.type == FieldDescriptor.TYPE_STRING or f.name in as_bytes]
    inner = [f for f in kind.fields if f.message_type is not None and _holds_text(f.message_type, frozenset())]
    return _Plan(
        tuple(f.name for f in texts if not f.is_repeated),
        tuple(f.name for f in texts if f.is_repeated),
        tuple(f.name for f in inner if not f.is_repeated),
        tuple(f.name for f in inner if f.is_repeated),
    )


def _holds_text(kind: Descriptor, above: frozenset[str]) -> bool:
    if kind.full_name in above:
        return False
    inner = above | {kind.full_name}
    return any(
        f.type == FieldDescriptor.TYPE_STRING or (f.message_type is not None and _holds_text(f.message_type, inner))
        for f in kind.fields
    )


def _texts(proto: onnx.ModelProto) -> Iterator[tuple[Any, str, str | bytes]]:
    """Every string of a model that is not ASCII: its message, field and value. protobuf gives bytes where it is not UTF-8."""
    for message in _messages(proto):
        plan = _plan(message.DESCRIPTOR)
        found = [(name, getattr(message, name)) for name in plan.one]
        found += [(name, value) for name in plan.many for value in getattr(message, name)]
        yield from ((message, name, value) for name, value in found if not value.isascii())


def _messages(message: Any) -> Iterator[Any]:
    """A message and all messages inside it."""
    stack = [message]
    while stack:
        message = stack.pop()
        yield message
        plan = _plan(message.DESCRIPTOR)
        stack.extend(getattr(message, name) for name in plan.message if message.HasField(name))
        for name in plan.messages:
            stack.extend(inner for inner in getattr(message, name) if not _is_ascii(inner))


def _is_ascii(message: Any) -> bool:
    """Whether a small message is all ASCII, as most are; then its strings need no visit."""
    return bool(message.ByteSize() < _SMALL and message.SerializeToString().isascii())
