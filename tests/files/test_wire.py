"""Reading model files without their large weights: the place of omitted data is known, and nothing else differs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnx_subgraph.errors import ModelError
from onnx_subgraph.files.inside import FileTensor
from onnx_subgraph.files.models import load, save
from onnx_subgraph.files.wire import LARGE, Gap, MalformedError, filled, outlined

TYPES = (np.float32, np.float64, np.float16, np.int8, np.int64, np.bool_)


def _tensor(size: int, dtype: type, raw: bool, note: str) -> TensorProto:
    numbers = np.random.default_rng(size).integers(0, 2, size).astype(dtype)
    if raw:
        tensor = numpy_helper.from_array(numbers)
    else:
        tensor = helper.make_tensor("", helper.np_dtype_to_tensor_dtype(numbers.dtype), [size], numbers)
    tensor.doc_string = note
    return tensor


tensors = st.builds(
    _tensor,
    st.sampled_from([0, 1, 7, LARGE // 8, LARGE, LARGE + 5]),
    st.sampled_from(TYPES),
    st.booleans(),
    st.sampled_from(["", "a note", "ä" * 200]),
)


def _model(weights: list[TensorProto]) -> onnx.ModelProto:
    for number, tensor in enumerate(weights):
        tensor.name = f"w{number}"
    node = helper.make_node("Identity", ["x"], ["y"])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([node], "g", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="p" * 300)


@given(st.lists(tensors, max_size=6))
def test_the_outline_is_the_model_without_its_large_weights(weights: list[TensorProto]) -> None:
    """Only the data of large weights is missing, and it is at the place in the file that the index gives."""
    model = _model(weights)
    data = model.SerializeToString()
    content, extents = outlined(data)
    rest = onnx.ModelProto.FromString(content)
    for position, extent in extents.items():
        raw = data[extent.offset : extent.offset + extent.length]
        assert len(raw) >= LARGE
        assert not rest.graph.initializer[position].raw_data
        rest.graph.initializer[position].raw_data = raw
    assert rest == model
    large = [i for i, tensor in enumerate(weights) if len(tensor.raw_data) >= LARGE]
    assert list(extents) == large


@given(st.lists(tensors, max_size=6), st.randoms(use_true_random=False))
def test_filling_inserts_data_in_place_of_placeholders(weights: list[TensorProto], random: object) -> None:
    """A file with placeholders, filled, equals byte for byte the file of the model with the data."""
    model = _model(weights)
    whole = model.SerializeToString(deterministic=True)
    data: dict[bytes, bytes] = {}
    for number, tensor in enumerate(model.graph.initializer):
        if tensor.HasField("raw_data") and random.random() < 0.7:  # type: ignore[attr-defined]
            word = b"word" + bytes([number])
            data[word], tensor.raw_data = tensor.raw_data, word
    pieces = filled(model.SerializeToString(deterministic=True), {word: len(raw) for word, raw in data.items()})
    assert b"".join(data[piece.word] if isinstance(piece, Gap) else piece for piece in pieces) == whole


@given(st.binary(max_size=400), st.integers(0, 300))
def test_protobuf_reads_the_same_from_the_index_as_from_the_file(noise: bytes, cut: int) -> None:
    """Damaged files that are not refused are included."""
    damaged = _model([_tensor(3, np.float32, True, "")]).SerializeToString()[:cut] + noise
    try:
        content, extents = outlined(damaged)
    except MalformedError:
        return
    assert not extents
    assert _parsed(content) == _parsed(damaged)


def _parsed(data: bytes) -> onnx.ModelProto | None:
    try:
        return onnx.ModelProto.FromString(data)
    except DecodeError:
        return None


def test_a_loaded_model_can_be_written_after_its_file_is_gone(tmp_path: Path) -> None:
    """After its file was replaced or removed, a loaded model is written as before."""
    weight = numpy_helper.from_array(np.arange(LARGE, dtype=np.float32))
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    onnx.save(_model([weight]), first)
    model = load(first)
    assert isinstance(model.graph.initializers["w0"].const_value, FileTensor)
    first.unlink()
    save(model, second, None)
    assert np.array_equal(numpy_helper.to_array(onnx.load(second).graph.initializer[0]), np.arange(LARGE, dtype=np.float32))


def test_two_models_of_a_file_share_their_weights(tmp_path: Path) -> None:
    """The weights of a file are in memory once, however often it is loaded, and they are read-only."""
    path = tmp_path / "model.onnx"
    onnx.save(_model([numpy_helper.from_array(np.ones(LARGE, np.float32))]), path)
    arrays = [load(path).graph.initializers["w0"].const_value.numpy() for _ in range(2)]
    assert np.shares_memory(*arrays)
    with pytest.raises(ValueError, match="read-only"):
        arrays[0][0] = 2


def test_a_changed_file_is_an_error(tmp_path: Path) -> None:
    """The weights of the changed file would be wrong for the loaded model."""
    path = tmp_path / "model.onnx"
    onnx.save(_model([numpy_helper.from_array(np.ones(LARGE, np.float32))]), path)
    model = load(path)
    with path.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(ModelError, match="was changed while it was read"):
        model.graph.initializers["w0"].const_value.numpy()


def test_of_two_weights_of_one_name_the_last_counts(tmp_path: Path) -> None:
    """onnxruntime does the same, whether the last one is large or small."""
    weights = [numpy_helper.from_array(np.full(LARGE, value, np.float32)) for value in (1, 2)]
    model = _model(weights)
    for tensor in model.graph.initializer:
        tensor.name = "w"
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    assert load(path).graph.initializers["w"].const_value.numpy()[0] == 2


@pytest.mark.parametrize("change", ["fewer", "more"])
def test_large_weights_have_the_number_of_bytes_of_their_shape(tmp_path: Path, change: str) -> None:
    """The size of an omitted weight is checked too."""
    model = _model([numpy_helper.from_array(np.ones(LARGE, np.float32))])
    model.graph.initializer[0].dims[0] += 1 if change == "fewer" else -1
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    with pytest.raises(ModelError, match=f"has {change}"):
        load(path)
