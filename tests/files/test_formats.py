"""Files that are not ONNX models are recognised, and the message says what to give instead."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from onnx_subgraph.errors import ModelError
from onnx_subgraph.files.models import load

TEXT = '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 8] x) => (float[N, 8] y) { y = Abs (x) }'


def ort_format(path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(onnx.parser.parse_model(TEXT).SerializeToString(), options, providers=["CPUExecutionProvider"])


def zipped(*members: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name in members:
                archive.writestr(name, b"0")

    return make


def tarred(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        archive.add(__file__)


def arrays(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, x=np.zeros(2))


def array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(2))


def safetensors(path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0\0\0\0")


def content(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


GRAPH = onnx.parser.parse_model(TEXT).graph
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
GRAPH_DEF = b"\n\x1b\n\x05input\x12\x0bPlaceholder*\x05dtype"

KINDS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "onnxruntime's": (ort_format, "onnxruntime's own format (.ort)", "the .onnx file that it was made from"),
    "tflite": (content(b"\x1c\0\0\0TFL3" + bytes(64)), "TensorFlow Lite", "tf2onnx.convert --tflite"),
    "gguf": (content(b"GGUF\x03" + bytes(64)), "GGUF", "export the model to ONNX"),
    "safetensors": (safetensors, "safetensors file: weights without a graph", "export the model to ONNX"),
    "torch": (zipped("model/data.pkl", "model/data/0"), "PyTorch", "torch.onnx.export"),
    "torch.export": (zipped("m/archive_format", "m/models/model.json"), "torch.export", "torch.onnx.export"),
    "keras": (zipped("metadata.json", "model.weights.h5"), "Keras", "tf2onnx"),
    "hdf5": (content(b"\x89HDF\r\n\x1a\n" + bytes(64)), "HDF5", "tf2onnx"),
    "pickle": (lambda path: path.write_bytes(pickle.dumps({"w": 1})), "Python pickle", "torch.onnx.export"),
    "a graph of TensorFlow": (content(GRAPH_DEF), "TensorFlow model", "tf2onnx"),
    "npz": (arrays, ".npz", "--inputs"),
    "npy": (array, "NumPy array", ".onnx"),
    "a pointer": (content(LFS), "Git LFS pointer", "git lfs pull"),
    "a zip": (zipped("model.onnx"), "zip archive", "unpack it"),
    "a zip that is cut off": (content(b"PK\x03\x04" + bytes(64)), "zip archive", "unpack it"),
    "gzip": (lambda path: path.write_bytes(gzip.compress(TEXT.encode())), "gzip archive", "unpack it"),
    "tar": (tarred, "tar archive", "unpack it"),
    "a page": (content(b"<!DOCTYPE html>\n<html><head>"), "a web page", "/resolve/"),
    "a page with a mark": (content("\ufeff<!DOCTYPE html>".encode()), "a web page", "/resolve/"),
    "a page in French": (content(b"<html>" + "é".encode() * 4000), "a web page", "/resolve/"),
    "OpenVINO's": (content(b'<?xml version="1.0"?>\n<net name="m" version="11">'), "is XML", "export the model to ONNX"),
    "the text form": (content(TEXT.encode()), "an ONNX model in its text form", "onnx.parser.parse_model"),
    "a script": (content(b"import torch\n" * 500), "a text file", "export or download"),
    "a graph alone": (content(GRAPH.SerializeToString()), "is not an ONNX model, or is cut off", "export or download"),
    "bytes as a pickle begins": (content(b"\x80\x04" + bytes(64)), "is not an ONNX model, or is cut off", "export or download"),
    "bytes": (content(bytes(range(1, 255)) * 9), "is not an ONNX model, or is cut off", "export or download"),
}


@pytest.mark.parametrize(("make", "what", "hint"), KINDS.values(), ids=KINDS.keys())
def test_the_format_of_a_file_is_named(tmp_path: Path, make: Callable[[Path], object], what: str, hint: str) -> None:
    path = tmp_path / "model.onnx"
    make(path)
    with pytest.raises(ModelError) as caught:
        load(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert what in caught.value.message
    assert hint in (caught.value.hint or "")


def test_a_saved_model_is_known_by_its_name(tmp_path: Path) -> None:
    """Its first field is a number, and an ONNX model may begin with one too."""
    path = tmp_path / "saved_model.pb"
    path.write_bytes(b"\x08\x01\x12\x04\n\x02\x12\x00")
    with pytest.raises(ModelError, match="is a TensorFlow model"):
        load(path)
    path.write_bytes(b"\xff" * 64)
    with pytest.raises(ModelError, match="is not an ONNX model, or is cut off"):
        load(path)


@pytest.mark.parametrize("name", ["model.onnx.data", "model.onnx_data", "model.bin", "model.weights"])
def test_the_data_of_a_model_names_the_model(tmp_path: Path, name: str) -> None:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "model.onnx")
    (tmp_path / name).write_bytes(bytes(range(200, 255)) * 9)
    with pytest.raises(ModelError, match="by its name it is the data of one") as caught:
        load(tmp_path / name)
    assert caught.value.hint == f"give the model itself, {tmp_path / 'model.onnx'}"
