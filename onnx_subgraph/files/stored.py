"""Check that tensors have the data that their shapes and types need. Reports the first problem, with what to do."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod
from pathlib import Path

import onnx
import onnx_ir as ir

from onnx_subgraph.errors import ModelError
from onnx_subgraph.files.texts import file_name

_PER_ELEMENT: Mapping[int, float] = {
    **dict.fromkeys((onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128), 2.0),
    **dict.fromkeys((onnx.TensorProto.UINT4, onnx.TensorProto.INT4, onnx.TensorProto.FLOAT4E2M1), 0.5),
}
"""Numbers in a typed field per element, where it is not 1."""
_TYPED_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


def external_place(tensor: onnx.TensorProto) -> tuple[str, int, int | None]:
    """Location, offset and length (None: to the end) of a tensor's external data. Raises ValueError for other text."""
    place = {entry.key: entry.value for entry in tensor.external_data}
    length = place.get("length")
    return place.get("location", ""), int(place.get("offset", 0)), None if length is None else int(length)


def is_stripped(tensor: onnx.TensorProto) -> bool:
    """Whether the data of a tensor was removed, as is done to share a graph without its weights."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.HasField("raw_data") or 0 in tensor.dims:
        return False
    return not any(getattr(tensor, field) for field in _TYPED_FIELDS)


def check(tensor: onnx.TensorProto, path: Path, files: dict[str, int], stored: int | None) -> None:
    """Raise ModelError where the data of a tensor does not fit it.

    files: the sizes of the data files seen so far. stored: the size of raw data in bytes that was omitted.
    """
    needed = _bytes(tensor, path)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        _check_external(tensor, path, needed, files)
    elif tensor.HasField("raw_data") and tensor.data_type != onnx.TensorProto.STRING:
        _check_raw(tensor, path, needed, len(tensor.raw_data) if stored is None else stored)
    else:
        _check_elements(tensor, path)


def _check_raw(tensor: onnx.TensorProto, path: Path, needed: int, stored: int) -> None:
    """Raise ModelError where the size of the raw data does not fit the shape."""
    if stored != needed:
        raise ModelError(
            f"{path}: tensor '{tensor.name}' of shape {list(tensor.dims)} needs {needed} bytes "
            f"and has {'fewer' if stored < needed else 'more'}",
            hint="the file is damaged; export or download it again",
        )


def _check_elements(tensor: onnx.TensorProto, path: Path) -> None:
    """Raise ModelError where the number of stored elements does not fit the shape.

    No elements at all are allowed (`is_stripped`).
    """
    held = {field: len(getattr(tensor, field)) for field in _TYPED_FIELDS if getattr(tensor, field)}
    held |= {"raw_data": len(tensor.raw_data)} if tensor.HasField("raw_data") else {}  # strings are never there
    if held and [*held] != [onnx.helper.tensor_dtype_to_field(tensor.data_type)]:
        kind = onnx.TensorProto.DataType.Name(tensor.data_type)
        raise ModelError(
            f"{path}: tensor '{tensor.name}' of type {kind} has its data in {' and '.join(held)}",
            hint="the file is damaged; export or download it again",
        )
    count = prod(tensor.dims)
    wanted = ceil(count * _PER_ELEMENT.get(tensor.data_type, 1.0))
    if held and list(held.values()) != [wanted]:
        raise ModelError(
            f"{path}: tensor '{tensor.name}' of shape {list(tensor.dims)} needs {count} elements and has another number of them",
            hint="the file is damaged; export or download it again",
        )


def _bytes(tensor: onnx.TensorProto, path: Path) -> int:
    """The size of the elements in bytes; 0 for strings."""
    if tensor.data_type == onnx.TensorProto.UNDEFINED:
        raise ModelError(f"{path}: tensor '{tensor.name}' has no element type", hint="the file is damaged; export it again")
    count = 1
    for dim in tensor.dims:
        if dim < 0:
            raise ModelError(f"{path}: tensor '{tensor.name}' has the size {dim}", hint="the file is damaged; export it again")
        count *= dim
    try:
        dtype = ir.DataType(tensor.data_type)
    except ValueError:
        hint = "the file is damaged, or needs a newer onnx"
        raise ModelError(f"{path}: tensor '{tensor.name}' has the unknown element type {tensor.data_type}", hint=hint) from None
    return 0 if dtype == ir.DataType.STRING else (count * dtype.bitwidth + 7) // 8


def _check_external(tensor: onnx.TensorProto, path: Path, needed: int, files: dict[str, int]) -> None:
    if tensor.data_type == onnx.TensorProto.STRING:
        raise ModelError(
            f"{path}: tensor '{tensor.name}' of type STRING has its data in another file",
            hint="strings must be in the model; export it again",
        )
    try:
        location, offset, length = external_place(tensor)
    except ValueError:
        raise ModelError(f"{path}: tensor '{tensor.name}': the place of its data is no number", hint="export it again") from None
    if location not in files:
        files[location] = _size(tensor, path, location)
    size = files[location]
    if offset < 0 or (length is not None and length < 0):
        raise ModelError(f"{path}: tensor '{tensor.name}': the place of its data is negative", hint="export the model again")
    if length is not None and 0 <= length < needed and 0 <= offset <= size - needed:
        raise ModelError(
            f"{path}: tensor '{tensor.name}' needs {needed} bytes of '{location}', and the model states a length of {length}",
            hint="the data file is long enough, but the stated length is wrong; export the model again",
        )
    end = offset + (needed if length is None else length)
    if end > size or (length is not None and length < needed):
        raise ModelError(
            f"{path}: tensor '{tensor.name}' needs {needed} bytes at {offset} of '{location}', which has {size}"
            + (f" (it claims {length})" if length is not None else ""),
            hint="the data file is cut off or belongs to another model; download or export both again",
        )


def _size(tensor: onnx.TensorProto, path: Path, location: str) -> int:
    """The size of a data file. onnxruntime's rule for its place: the folder of the model, or below it."""
    if not location or Path(location).is_absolute() or "\0" in location:
        raise ModelError(
            f"{path}: tensor '{tensor.name}' has its data at '{location}', which is no relative path",
            hint="export the model again with its data beside it",
        )
    file = path.parent / file_name(location)
    folder, inside = path.resolve().parent, file.resolve()
    if not inside.is_relative_to(folder):
        # onnxruntime resolves a linked model first, so it can read a cache of links to files that are together.
        if not file.exists() and (folder / file_name(location)).is_file():
            raise ModelError(
                f"{path}: is a link, and the data file '{location}' of tensor '{tensor.name}' is not beside the link",
                hint=f"name the file itself, {path.resolve()}, or put a link to the data beside this one",
            )
        raise ModelError(
            f"{path}: tensor '{tensor.name}' has its data at '{location}', which leaves the folder of the model",
            hint=f"put the data into {folder} and export the model again",
        )
    if not file.is_file():
        raise ModelError(
            f"{path}: the data file '{location}' of tensor '{tensor.name}' is missing",
            hint=f"a model with external data is more than one file, named by its path and not piped; put '{location}' beside it",
        )
    return file.stat().st_size
