"""Messages between a session and the process of an isolated backend: a JSON header, arrays as raw memory, bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, BinaryIO

import numpy as np

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import plain_array

_LENGTH = Struct("<Q")


@dataclass(frozen=True, slots=True)
class Message:
    """head: the JSON part. content: bytes that belong to it, such as a model."""

    head: Mapping[str, Any]
    arrays: Sequence[Array] = ()
    content: bytes = b""


def send(stream: BinaryIO, message: Message) -> None:
    """Write one message and flush. Raises TypeError for what is no array of numbers, before anything is written.

    Raises OSError if the reader is gone.
    """
    arrays = [_plain(array) for array in message.arrays]
    forms = [(array.dtype.name, array.shape) for array in arrays]
    head = json.dumps({"head": message.head, "arrays": forms, "content": len(message.content)}).encode()
    stream.write(_LENGTH.pack(len(head)) + head)
    stream.writelines(array.reshape(-1).view(np.uint8).data for array in arrays)
    stream.write(message.content)
    stream.flush()


def receive(stream: BinaryIO) -> Message:
    """The next message. Raises EOFError if the other side is gone."""
    outer = json.loads(_exactly(stream, _LENGTH.unpack(_exactly(stream, _LENGTH.size))[0]))
    arrays = []
    for dtype, shape in outer["arrays"]:
        array = np.empty(shape, np.dtype(dtype))
        view = array.reshape(-1).view(np.uint8).data  # the memory of the array, which is contiguous
        if stream.readinto(view) != view.nbytes:  # type: ignore[attr-defined]
            raise EOFError
        arrays.append(array)
    return Message(outer["head"], arrays, _exactly(stream, outer["content"]))


def _plain(array: object) -> Array:
    if isinstance(array, np.ndarray | np.generic) and not array.dtype.hasobject:
        return plain_array(np.asarray(array))
    kind = f"array of {array.dtype.name}" if isinstance(array, np.ndarray) else type(array).__name__
    raise TypeError(f"only arrays of numbers go from one process to another, and this is of type {kind}")


def _exactly(stream: BinaryIO, size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return content
