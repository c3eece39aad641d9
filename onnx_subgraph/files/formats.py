"""Identify a file that is not an ONNX model by its first bytes, and say which file to use instead."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_START = 4096
"""Number of bytes that are inspected. For a zip archive the list of members is inspected, too."""
_EXPORT = "export the model to ONNX from the framework that made it, and give the .onnx file"
_TORCH = "load it in PyTorch, and write an .onnx file with torch.onnx.export"
_TENSORFLOW = "convert it with `python -m tf2onnx.convert`, and give the .onnx file"
_UNPACK = "unpack it, and give the .onnx file inside"
_AGAIN = "export or download the model again"
_BEGINNINGS: Sequence[tuple[int, bytes, str, str]] = (
    (4, b"ORTM", "is in onnxruntime's own format (.ort), not an ONNX model", "give the .onnx file that it was made from"),
    (4, b"TFL3", "is a TensorFlow Lite model, not an ONNX model", "convert it with `python -m tf2onnx.convert --tflite`"),
    (0, b"GGUF", "is a GGUF file of llama.cpp, not an ONNX model", _EXPORT),
    (0, b"\x89HDF\r\n\x1a\n", "is an HDF5 file, as Keras writes, not an ONNX model", _TENSORFLOW),
    (0, b"\x93NUMPY", "is a NumPy array, not an ONNX model", "give the .onnx file"),
    (0, b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "is a PyTorch file of weights, not an ONNX model", _TORCH),
    (0, b"version https://git-lfs", "is a Git LFS pointer, not the model itself", "fetch it with `git lfs pull`"),
    (0, b"\x1f\x8b", "is a gzip archive, not an ONNX model", _UNPACK),
    (0, b"BZh", "is a bzip2 archive, not an ONNX model", _UNPACK),
    (0, b"\xfd7zXZ\0", "is an xz archive, not an ONNX model", _UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "is a zstd archive, not an ONNX model", _UNPACK),
    (0, b"7z\xbc\xaf\x27\x1c", "is a 7z archive, not an ONNX model", _UNPACK),
    (257, b"ustar", "is a tar archive, not an ONNX model", _UNPACK),
)
"""Offset, the bytes at this offset, what the file is, and what to do."""
_MEMBERS: Sequence[tuple[str, str, str]] = (
    (r"(^|/)data\.pkl$|(^|/)constants\.pkl$", "is a PyTorch file, not an ONNX model", _TORCH),
    (r"(^|/)serialized_exported_program\.json$|(^|/)archive_format$", "is a program of torch.export, not an ONNX model", _TORCH),
    (r"^model\.weights\.h5$", "is a Keras model, not an ONNX model", _TENSORFLOW),
    (r"\.npy$", "is an archive of NumPy arrays (.npz), not an ONNX model", "give the .onnx file; feeds go to --inputs"),
)
"""Regular expression for a member of a zip archive, what the archive is, and what to do."""
_DATA_OF = re.compile(r"[._]data$|\.bin$|\.weights$", re.IGNORECASE)


class Kind(NamedTuple):
    """What a file is and what to do. `what` continues a sentence that begins with the file's name."""

    what: str
    hint: str


def kind_of(data: bytes, path: Path) -> Kind:
    """What a file is that could not be read as a model. data: its bytes."""
    return recognised(data, path) or Kind("is not an ONNX model, or is cut off", _AGAIN)


def recognised(data: bytes, path: Path) -> Kind | None:
    """What a file is, if its bytes or its name show that it is not a model; else None."""
    start = data[:_START]
    for offset, magic, what, hint in _BEGINNINGS:
        if start[offset : offset + len(magic)] == magic:
            return Kind(what, hint)
    if start.startswith(b"PK\x03\x04"):
        return _archive(data)
    if re.match(rb"\x80[\x02-\x05]", start) and data.endswith(b"."):
        return Kind("is a Python pickle, not an ONNX model", _TORCH)
    if re.match(rb".{6}\0\0\{\s*\"", start, re.DOTALL):
        return Kind("is a safetensors file: weights without a graph, not an ONNX model", _EXPORT)
    if _is_graph_def(start) or (start.startswith(b"\x08\x01\x12") and path.name == "saved_model.pb"):
        return Kind("is a TensorFlow model, not an ONNX model", _TENSORFLOW)
    return _text(start) or _data_file(path)


def _archive(data: bytes) -> Kind:
    try:
        names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    except zipfile.BadZipFile:
        names = []
    for pattern, what, hint in _MEMBERS:
        if any(re.search(pattern, name) for name in names):
            return Kind(what, hint)
    return Kind("is a zip archive, not an ONNX model", _UNPACK)


def _text(start: bytes) -> Kind | None:
    """Identify a text file by its beginning. One byte in 16 may be no UTF-8: the text has another encoding, or is cut off."""
    text = start.decode(errors="ignore")
    if len(start) - len(text.encode()) > len(start) // 16:
        return None
    text = text.lstrip("\ufeff \n\r\t")
    if not all(char.isprintable() or char in "\n\r\t" for char in text):
        return None
    beginning = text[:200].lower()
    if beginning.startswith(("<!doctype html", "<html")):
        return Kind(
            "is a web page, not an ONNX model", "download the file itself; on Hugging Face its link says /resolve/, not /blob/"
        )
    if re.match(r"<\s*(ir_version|opset_import|producer_name)\s*:", beginning):
        hint = "make a file of it: onnx.save(onnx.parser.parse_model(text), path)"
        return Kind("is an ONNX model in its text form, which is not read", hint)
    if beginning.startswith("<"):
        return Kind("is XML, not an ONNX model", "give the .onnx file" if "<net" not in text else _EXPORT)
    return Kind("is a text file, not an ONNX model", _AGAIN)


def _data_file(path: Path) -> Kind | None:
    """Identify the external data of a model beside it, by its name."""
    name = _DATA_OF.sub("", path.name)
    model = path.with_name(name if name.endswith(".onnx") else f"{name}.onnx")
    if name == path.name or not model.is_file():
        return None
    return Kind("is not an ONNX model; by its name it is the data of one", f"give the model itself, {model}")


def _is_graph_def(start: bytes) -> bool:
    """Whether a file begins as TensorFlow's GraphDef: field 1 is a node, which begins with a name (1) and an operator (2)."""
    found = re.match(rb"\n[\x80-\xff]*[\0-\x7f]\n([\0-\x7f])", start)
    if found is None:
        return False
    end = found.end() + found[1][0]
    name, rest = start[found.end() : end], start[end:]
    operator = rest[2 : 2 + rest[1]] if len(rest) > 1 and rest[:1] == b"\x12" else b""
    return bool(re.fullmatch(rb"[\w./:-]+", name) and re.fullmatch(rb"[A-Z_]\w*", operator))
