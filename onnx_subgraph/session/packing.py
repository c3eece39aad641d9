"""Weights in the layout of onnxruntime's kernels, in files that all schedules of a model share.

Each session packs the weights of its products into its own memory. onnxruntime can write the packed form to a file and map it:
several sessions that map one file use the memory once. The models of two signatures differ in sizes and rarely in weights. So
each model reads the weights that others before it wrote, and writes the new ones.

(onnxruntime, `session.save_external_prepacked_constant_initializers` in onnxruntime_session_options_config_keys.h. It packs in
any case, and uses the file only if the contents are equal.)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO

import onnx

from onnx_subgraph import temporary
from onnx_subgraph.files import stored
from onnx_subgraph.files.protobuf import tensors
from onnx_subgraph.session.cache import PACKED, WEIGHTS
from onnx_subgraph.session.digest import file_digest
from onnx_subgraph.verification.reference import Reference
from onnx_subgraph.verification.sessions import Failure, plain_session_class
from onnx_subgraph.verification.trial import CPU

LEAST = 1 << 16
"""The size in bytes from which a weight is stored outside its model."""
ALIGNED = 64
"""The alignment of weights, in bytes."""
_WRITTEN = "written"
_PREPACKED = "prepacked_"
_KEYS = {
    "session.optimized_model_external_initializers_file_name": _WRITTEN,
    "session.optimized_model_external_initializers_min_size_in_bytes": str(LEAST),
    "session.save_external_prepacked_constant_initializers": "1",
}


class UnpackedError(Exception):
    """The reason why the packed model is not used."""


def pack(source: Path, target: Path, store: Path) -> int:
    """Write `source` as onnxruntime optimises it, with packed weights; the bytes of the files that it shares.

    target: in a folder of its own, that has links to its weights afterwards. store: the folder of the weights, in the same file
    system; it is created if missing. Raises UnpackedError if there is nothing to share, or the written model does not compute the
    same, bit by bit.
    """
    cases = Reference(source).cases(CPU)
    if isinstance(cases, Failure):
        raise UnpackedError(cases.message)
    feeds = cases[0].feeds
    with temporary.folder() as folder:
        expected = _session(source, folder / PACKED).run(None, feeds)
        if not (folder / _WRITTEN).exists():
            raise UnpackedError("it has no large weights")
        made = _sharing(folder, store, target.parent)
    names = {stored.external_place(tensor)[0] for tensor in _outside(made)}
    for unused in {path for path in target.parent.glob(f"*{WEIGHTS}") if path.name not in names}:
        unused.unlink()
    target.write_bytes(made.SerializeToString())
    found = _session(target).run(None, feeds)
    if any(mine.tobytes() != theirs.tobytes() for mine, theirs in zip(found, expected, strict=True)):
        raise UnpackedError("with packed weights it computes something else")
    return sum(target.with_name(name).stat().st_size for name in names)


def _session(model: Path, written: Path | None = None) -> Any:
    """A session. written: the path for the optimised model, with its weights beside it."""
    from onnxruntime import SessionOptions

    options = SessionOptions()
    options.log_severity_level = 3
    if written is not None:
        options.optimized_model_filepath = str(written)
        for key, value in _KEYS.items():
            options.add_session_config_entry(key, value)
    return plain_session_class()(str(model), options, providers=["CPUExecutionProvider"])


def _sharing(folder: Path, store: Path, own: Path) -> onnx.ModelProto:
    """The model in `folder`, with all its weights in files of the store; missing files are added.

    own: gets a link to each file of the store before it is read, and to each that is added. Files that nothing links to may be
    removed from the store at any time.
    """
    made = onnx.load(folder / PACKED, load_external_data=False)
    store.mkdir(parents=True, exist_ok=True, mode=0o700)
    added, fresh = onnx.GraphProto(), own / "fresh"
    with ExitStack() as stack:
        known: dict[str, list[tuple[onnx.TensorProto, mmap]]] = {}
        for index in sorted(store.glob("*.index")):
            with suppress(FileNotFoundError):  # it was removed meanwhile
                os.link(index.with_suffix(WEIGHTS), weights := own / f"{index.stem}{WEIGHTS}")
                data = stack.enter_context(_mapped(weights))
                for tensor in onnx.GraphProto.FromString(index.read_bytes()).initializer:
                    known.setdefault(tensor.name, []).append((tensor, data))
        written, file = stack.enter_context(_mapped(folder / _WRITTEN)), stack.enter_context(fresh.open("wb"))
        for tensor in _outside(made):
            pieces = _pieces(tensor, written)
            same = next((other for other, data in known.get(tensor.name, ()) if _pieces(other, data) == pieces), None)
            if same is None:
                _write(tensor, pieces, file)
                added.initializer.append(tensor)
            else:
                _place(tensor, same.external_data)
    if added.initializer:
        name = file_digest(fresh)[:16]
        for tensor in (*added.initializer, *_outside(made)):
            for entry in tensor.external_data:
                entry.value = f"{name}{WEIGHTS}" if entry.key == "location" and not entry.value else entry.value
        weights, index = own / f"{name}{WEIGHTS}", own / f"{name}.index"
        _publish(fresh.replace(weights), store)
        index.write_bytes(added.SerializeToString())
        _publish(index, store)
        index.unlink()
    fresh.unlink(missing_ok=True)
    return made


def _publish(made: Path, store: Path) -> None:
    """Link a file into the store, whole. An existing one of its name is equal, or damaged."""
    staging = store / f".{made.name}.{os.getpid()}"
    staging.unlink(missing_ok=True)
    os.link(made, staging)
    staging.replace(store / made.name)


def _outside(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    return (tensor for tensor in tensors(model) if tensor.data_location == onnx.TensorProto.EXTERNAL)


@contextmanager
def _mapped(path: Path) -> Iterator[mmap]:
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        yield data


def _pieces(tensor: onnx.TensorProto, data: mmap) -> list[tuple[str, list[bytes]]]:
    """The data of a tensor, and its packed forms: for which kernel, and the bytes.

    An entry has a key such as prepacked_0 and the value `kernel+hash|offset;length;checksum`; several pieces have several places.
    """
    _, offset, length = stored.external_place(tensor)
    pieces = [("", [data[offset : offset + (length or 0)]])]
    for entry in tensor.external_data:
        if entry.key.startswith(_PREPACKED):
            kernel, *places = entry.value.split("|")
            extents = (tuple(map(int, place.split(";")[:2])) for place in places)
            pieces.append((kernel, [data[begin : begin + count] for begin, count in extents]))
    return pieces


def _write(tensor: onnx.TensorProto, pieces: Sequence[tuple[str, Sequence[bytes]]], file: BinaryIO) -> None:
    """Write the pieces of a tensor to a file with a provisional name, and return their places."""
    entries = {"location": ""}
    for number, (kernel, parts) in enumerate(pieces):
        places = []
        for part in parts:
            file.write(bytes(-file.tell() % ALIGNED))
            places.append((file.tell(), len(part)))
            file.write(part)
        if kernel:
            entries[f"{_PREPACKED}{number - 1}"] = "|".join((kernel, *(f"{begin};{count};0" for begin, count in places)))
        else:
            entries |= {"offset": str(places[0][0]), "length": str(places[0][1])}
    _place(tensor, [onnx.StringStringEntryProto(key=key, value=value) for key, value in entries.items()])


def _place(tensor: onnx.TensorProto, entries: Iterable[onnx.StringStringEntryProto]) -> None:
    del tensor.external_data[:]
    tensor.external_data.extend(entries)
