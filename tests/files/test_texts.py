"""Strings that are not UTF-8 are readable text inside the program and are written as the original bytes."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_subgraph.files.models import load, read, save
from onnx_subgraph.files.texts import MARK, make_readable, original, put_back, readable

LATIN = "é".encode("latin-1")
EVERYWHERE = """
<ir_version: 10, opset_import: ["" : 17, "local" : 1], producer_name: "Z_producer", doc_string: "Z_model",
 metadata_props: ["Z_key": "Z_value"]>
g (float[Z_batch, 8] x) => (float[Z_batch, 8] y)
<float[1] Z_weight = {2.0}>
{
  [Z_node] Z_hidden = Mul (x, Z_weight)
  Z_called = local.Z_function <Z_attribute: string = "Z_text"> (Z_hidden)
  y = Abs (Z_called)
}
<domain: "local", opset_import: ["" : 17]>
Z_function <Z_attribute> (Z_a) => (Z_b) { [Z_inner] Z_b = Neg (Z_a) }
"""
"""Each `Z_` is made one byte that is not UTF-8, and `_`: protobuf counts bytes, so there are as many as before."""


def save_text(text: str, path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def latin(text: str, path: Path) -> Path:
    """A model of `text` in which every `Z` before `_` is a byte that is not UTF-8."""
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString().replace(b"Z_", LATIN + b"_"))
    return path


@given(st.binary())
def test_any_bytes_survive_a_round_trip(raw: bytes) -> None:
    text = readable(raw)
    assert original(text) == raw
    assert text.encode().decode() == text


@given(st.text())
def test_text_without_the_escape_is_unchanged(text: str) -> None:
    raw = text.encode(errors="replace")
    assert (readable(raw) == raw.decode()) == (MARK not in text)


@given(st.lists(st.one_of(st.binary(), st.just(MARK.encode()))))
def test_parts_may_be_joined(parts: list[bytes]) -> None:
    """A name made by joining escaped names has the bytes of the joined originals."""
    assert original("_".join(map(readable, parts))) == b"_".join(parts)


def test_a_byte_is_shown_by_its_number() -> None:
    assert readable(b"caf" + LATIN) == f"caf{MARK}e9"
    assert readable(f"a{MARK}".encode()) == f"a{MARK}{MARK}"


def test_no_string_of_a_read_model_is_bytes(tmp_path: Path) -> None:
    proto = read(latin(EVERYWHERE, tmp_path / "m.onnx"))
    assert proto.graph.node[0].name == f"{MARK}e9_node"
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == f"{MARK}e9_batch"
    assert proto.graph.node[1].attribute[0].s.decode() == f"{MARK}e9_text"
    assert LATIN not in proto.SerializeToString()


def test_all_strings_are_written_as_the_original_bytes(tmp_path: Path) -> None:
    path = latin(EVERYWHERE, tmp_path / "m.onnx")
    proto = onnx.load(path)
    content = proto.SerializeToString(deterministic=True)
    make_readable(proto)
    assert proto.SerializeToString(deterministic=True) != content
    put_back(proto)
    assert proto.SerializeToString(deterministic=True) == content


def test_a_model_is_saved_like_the_same_model_in_utf_8(tmp_path: Path) -> None:
    twin = save_text(EVERYWHERE, tmp_path / "twin.onnx")
    path = latin(EVERYWHERE, tmp_path / "m.onnx")
    for source in (twin, path):
        save(load(source), source.with_suffix(".out"), source)
    written = twin.with_suffix(".out").read_bytes()
    assert written.count(b"Z_") > 15
    assert path.with_suffix(".out").read_bytes() == written.replace(b"Z_", LATIN + b"_")


@pytest.mark.parametrize("text", [MARK, f"{MARK}e9", f"a{MARK}{MARK}"])
def test_a_name_that_looks_escaped_is_unchanged(tmp_path: Path, text: str) -> None:
    model = onnx.parser.parse_model(EVERYWHERE)
    model.graph.node[0].name = text
    onnx.save(model, tmp_path / "m.onnx")
    save(load(tmp_path / "m.onnx"), tmp_path / "out.onnx", tmp_path / "m.onnx")
    assert onnx.load(tmp_path / "out.onnx").graph.node[0].name == text


def test_the_data_of_a_file_with_such_a_name_is_found(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) <float[1] w = {2}> { y = Mul(x, w) }'
    )
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="Z_data")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString().replace(b"Z_", LATIN + b"_"))
    try:
        (tmp_path / os.fsdecode(LATIN + b"_data")).write_bytes(b"\0\0\x80\x3f")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    loaded = load(tmp_path / "m.onnx")
    assert loaded.graph.initializers["w"].const_value.numpy() == 1.0
