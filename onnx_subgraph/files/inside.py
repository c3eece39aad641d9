"""Weights inside a model file: they are read when their elements are first needed, and only once.

The file stays open as long as one of its weights exists, so it may be renamed or removed meanwhile. Two models of one file share
the data that was read.
"""

from __future__ import annotations

import os
import sys
import weakref
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_subgraph.errors import ModelError
from onnx_subgraph.files.wire import Extent, MalformedError, outlined

_Array = npt.NDArray[Any]
_read: weakref.WeakValueDictionary[tuple[object, ...], _Array] = weakref.WeakValueDictionary()
"""The data in memory: (file, extent) → bytes."""


class ModelFile:
    """A model file that is open for reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
        self._close = weakref.finalize(self, os.close, self._number)
        self._identity = self._state()

    def stream(self) -> BinaryIO:
        """The file, positioned at its start. Closing the stream leaves the file open.

        Raises ModelError where the file was changed.
        """
        if self._state() != self._identity:
            raise ModelError(f"{self.path}: was changed while it was read", hint="run it again, on a file that does not change")
        stream = open(self._number, "rb", closefd=False)  # noqa: SIM115 - a number, and the caller closes it
        stream.seek(0)
        return stream

    def outlined(self) -> tuple[bytes, dict[int, Extent]]:
        """The file without its large weights, and their extents (`wire.outlined`).

        A file that is not a protobuf is returned whole.
        """
        with self.stream() as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as content:
            try:
                return outlined(content)
            except MalformedError:
                return content[:], {}

    def bytes_of(self, extent: Extent) -> _Array:
        """The bytes of a part of the file, read-only, shape (length,), uint8. Raises ModelError."""
        key = (self._identity, extent)
        known = _read.get(key)
        if known is None:
            known = np.empty(extent.length, np.uint8)
            with self.stream() as stream:
                stream.seek(extent.offset)
                if stream.readinto(known.data) != extent.length:  # type: ignore[attr-defined]
                    raise ModelError(f"{self.path}: ended early", hint="run it again, on a file that does not change")
            known.flags.writeable = False
            _read[key] = known
        return known

    def array(self, extent: Extent, dtype: ir.DataType, shape: tuple[int, ...]) -> _Array:
        """The weight in a part of the file, read-only. Raises ModelError."""
        array = self.bytes_of(extent).view(dtype.numpy()).reshape(shape)
        return array if sys.byteorder == "little" else array.byteswap()

    def _state(self) -> tuple[int, ...]:
        found = os.fstat(self._number)
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class FileTensor(ir.LazyTensor):
    """A weight whose data is in a model file."""

    __slots__ = ("extent", "file")

    def __init__(self, file: ModelFile, extent: Extent, tensor: ir.TensorProtocol) -> None:
        """tensor: the weight without its data."""
        dtype, shape = tensor.dtype, tuple(map(int, tensor.shape.numpy()))
        super().__init__(
            lambda: ir.Tensor(file.array(extent, dtype, shape), dtype),
            dtype,
            ir.Shape(shape),
            cache=True,
            name=tensor.name,
            doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
        )
        self.file = file
        self.extent = extent
