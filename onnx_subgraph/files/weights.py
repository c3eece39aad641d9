"""Where the weights of a model are stored, and where they go when it is written.

External weights are mapped from their file and stay there as long as possible. `placed` decides for each initializer whether it
stays inside the model file, stays in its data file, or moves to a new data file. Afterwards it restores the model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import onnx_ir as ir

from onnx_subgraph.files.atomic import copy_bytes, written_whole
from onnx_subgraph.files.inside import FileTensor
from onnx_subgraph.files.texts import file_name, readable
from onnx_subgraph.files.wire import LARGE, WHOLE_BYTES
from onnx_subgraph.model.constants import STRIPPED

OUTSIDE = 1 << 20
"""In a model with external data, new weights of at least this many bytes go outside the model file."""
Piece = bytes | ir.TensorProtocol
"""A part of a file: bytes, or the data of a weight."""

_ROOM = 2**31 - (1 << 26)
"""Maximum total size in bytes of the weights in a protobuf; leaves room for the graph."""


class DataFileTensor(ir.ExternalTensor):
    """External data whose path was checked on loading, by onnxruntime's rules.

    onnx-ir's own check also refuses files with several hard links and the links of a download cache; onnxruntime reads both.
    """

    __slots__ = ()

    @classmethod
    def of(cls, tensor: ir.TensorProtocol | None, model: Path) -> DataFileTensor:
        """The external data of a tensor in the file `model`."""
        assert isinstance(tensor, ir.ExternalTensor)
        location, folder = place(model, str(tensor.location))
        return cls(
            location,
            tensor.offset,
            tensor.length,
            tensor.dtype,
            shape=ir.Shape(tensor.shape.numpy()),
            name=tensor.name,
            doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
            base_dir=folder,
        )

    @property
    def path(self) -> str:
        """The path of the data file, with its original name."""
        return os.path.join(self.base_dir, file_name(str(self.location)))  # noqa: PTH118 - onnx-ir's type

    def _check_path_containment(self) -> None:
        return None


def place(model: Path, location: str) -> tuple[str, Path]:
    """Where the data at `location` of the file `model` is: its location in a folder, and the folder.

    A download cache links a model and its data to files that are together and have other names. There the place is that of the
    file: a candidate elsewhere, which has no links, is given this folder.
    """
    if not is_linked(model):
        return location, model.parent
    folder, file = model.resolve().parent, (model.parent / file_name(location)).resolve()
    return readable(os.fsencode(file.relative_to(folder).as_posix())), folder


def is_linked(model: Path) -> bool:
    """Whether a model is a link to a file in another folder, so that its data may have another name there."""
    return model.parent.resolve() != model.resolve().parent


def sources(model: ir.Model) -> tuple[Path, ...]:
    """The data files of the model's weights."""
    found = {
        Path(value.const_value.path): None
        for graph in model.graphs()
        for value in graph.initializers.values()
        if isinstance(value.const_value, ir.ExternalTensor)
    }
    return tuple(found)


@dataclass(slots=True)
class Placement:
    """The files that a model is written to. moved: the weights for the new data file, with their offsets in it."""

    path: Path
    data: Path
    moved: list[tuple[ir.TensorProtocol, int]] = field(default_factory=list)

    def write(self, model: Callable[[], Iterable[Piece]]) -> None:
        """Write the model file, and the data file if any: both or neither. model: gives the contents of the model file."""
        content = model()
        if not self.moved:
            with written_whole(self.path) as (file,):
                for piece in content:
                    _write(piece, file)
            return
        with written_whole(self.data, self.path) as (data, file):
            for tensor, offset in self.moved:
                data.write(b"\0" * (offset - data.tell()))
                _write(tensor, data)
            for piece in content:
                _write(piece, file)


@contextmanager
def placed(model: ir.Model, path: Path, *, keep: bool, never: tuple[Path, ...], inline: bool = False) -> Iterator[Placement]:
    """Within the block the initializers refer to where their data will be when the file `path` is written.

    keep: external weights stay in their files. inline: new weights stay inside the model file as long as they fit.
    never: data files that may not be overwritten. Weights without data are skipped.
    """
    values = [v for graph in model.graphs() for v in graph.initializers.values() if STRIPPED not in v.meta]
    placement = Placement(path, _data_file(path, never))
    before = [(value, value.const_value) for value in values if value.const_value is not None]
    external = any(isinstance(tensor, ir.ExternalTensor) for _, tensor in before)
    crowded = sum(int(tensor.nbytes) for _, tensor in before if not isinstance(tensor, ir.ExternalTensor)) > _ROOM
    offsets: dict[object, int] = {}
    end = 0
    try:
        for value, tensor in before:
            stays = keep if isinstance(tensor, ir.ExternalTensor) else not _moves(tensor, external, crowded, inline)
            if stays:
                continue
            # The same bytes of a file, or the same array, under several names are written once.
            key = (tensor.path, tensor.offset, tensor.nbytes) if isinstance(tensor, ir.ExternalTensor) else id(tensor)
            if key not in offsets:
                end = -(-end // 4096) * 4096 if tensor.nbytes >= OUTSIDE else end
                offsets[key] = end
                placement.moved.append((tensor, end))
                end += tensor.nbytes
            value.const_value = ir.ExternalTensor(
                placement.data.name,
                offsets[key],
                tensor.nbytes,
                tensor.dtype,
                shape=ir.Shape(tensor.shape.numpy()),
                name=value.name or "",
                doc_string=tensor.doc_string,
                metadata_props=dict(tensor.metadata_props),
                base_dir=path.parent,
            )
        yield placement
    finally:
        for value, tensor in before:
            value.const_value = tensor


def _moves(tensor: ir.TensorProtocol, external: bool, crowded: bool, inline: bool) -> bool:
    if tensor.dtype == ir.DataType.STRING:
        return False
    if crowded:
        return tensor.nbytes >= 1024
    return external and not inline and tensor.nbytes >= OUTSIDE


def _data_file(path: Path, never: tuple[Path, ...]) -> Path:
    """`<path>.data`, with a number if the model reads from a file of this name."""
    taken = {file.resolve() for file in never}
    data = path.with_name(f"{path.name}.data")
    number = 1
    while data.resolve() in taken:
        data = path.with_name(f"{path.name}.{number}.data")
        number += 1
    return data


@contextmanager
def words(model: ir.Model) -> Iterator[dict[bytes, ir.TensorProtocol]]:
    """Within the block the data of each large weight inside the model is a unique short word. Gives word → weight."""
    taken: dict[bytes, ir.TensorProtocol] = {}
    start = os.urandom(16)
    before = [(v, v.const_value) for v in model.graph.initializers.values() if v.const_value is not None]
    try:
        for value, tensor in before:
            if isinstance(tensor, ir.ExternalTensor) or tensor.nbytes < LARGE or not _is_plain(tensor):
                continue
            word = start + len(taken).to_bytes(4)
            taken[word] = tensor
            value.const_value = _Word(word, tensor)
        yield taken
    finally:
        for value, tensor in before:
            value.const_value = tensor


class _Word(ir.LazyTensor):
    """A weight with a short word for its data."""

    __slots__ = ("_word",)

    def __init__(self, word: bytes, tensor: ir.TensorProtocol) -> None:
        super().__init__(
            lambda: tensor,
            tensor.dtype,
            ir.Shape(tensor.shape.numpy()),
            name=tensor.name,
            doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
        )
        self._word = word

    def tobytes(self) -> bytes:
        """The word, as serialized data."""
        return self._word


def _is_plain(tensor: ir.TensorProtocol) -> bool:
    """Whether a tensor is serialized as raw bytes, not as numbers in a typed field."""
    return tensor.dtype.value in WHOLE_BYTES and (isinstance(tensor, FileTensor) or type(tensor) is ir.Tensor)


def length(piece: Piece) -> int:
    """The size of a piece in bytes."""
    return len(piece) if isinstance(piece, bytes) else int(piece.nbytes)


def _write(piece: Piece, target: BinaryIO) -> None:
    match piece:
        case bytes():
            target.write(piece)
        case ir.ExternalTensor():
            with Path(piece.path).open("rb") as source:
                source.seek(piece.offset or 0)
                copy_bytes(source, target, piece.nbytes)
        case FileTensor():
            with piece.file.stream() as source:
                source.seek(piece.extent.offset)
                copy_bytes(source, target, piece.extent.length)
        case _:
            target.write(piece.tobytes())
