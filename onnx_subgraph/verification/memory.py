"""Open sessions that share a model's large weights: they are passed by reference, neither serialized nor copied."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import external_data_helper

from onnx_subgraph.files.inside import ModelFile
from onnx_subgraph.files.models import serialized, size_on_disk
from onnx_subgraph.files.protobuf import tensors
from onnx_subgraph.files.weights import is_linked
from onnx_subgraph.verification.blocks import Array
from onnx_subgraph.verification.sessions import Failure, Session, open_session

LARGE = 1 << 20
"""Weights of at least this many bytes are passed by reference."""
_PLAIN = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.INT64, ir.DataType.INT32)


def open_model(
    model: ir.Model,
    home: Path,
    provider: str,
    *,
    optimised: bool = False,
    inferred: bool = False,
    libraries: Sequence[Path] = (),
    placing: bool = False,
    profile: Path | None = None,
) -> Session | Failure:
    """A session for a model in memory. home: the folder of its external data.

    inferred: declare inferred shapes too, not only those in the file. onnxruntime then opens the model several times faster, but
    refuses it if it infers other shapes. The other arguments are those of `open_session`.
    """
    try:
        with _without_large_weights(model) as weights:
            content = _with_inferred_shapes(model) if inferred else serialized(model, home / "model.onnx")
    except Exception as error:  # the model can't be serialized: errors of protobuf and onnx_ir
        return Failure(str(error))
    return open_session(
        content,
        provider,
        optimised=optimised,
        folder=home,
        libraries=libraries,
        weights=weights,
        placing=placing,
        profile=profile,
    )


def open_file(path: Path, provider: str, *, optimised: bool) -> Session | Failure:
    """A session for a model file. Its large weights are shared with other sessions of the file.

    The arguments are those of `open_session`.
    """
    try:
        content, weights = _with_shared_weights(path)
    except (OSError, ValueError, DecodeError):  # onnxruntime reports what is wrong with it
        weights = {}
    if not weights:
        return open_session(path, provider, optimised=optimised)
    folder = path.resolve().parent
    return open_session(content, provider, optimised=optimised, folder=folder, weights=weights)


def _with_shared_weights(path: Path) -> tuple[bytes, dict[str, Array]]:
    """The serialized model with its large weights declared as external data, and these weights by name."""
    file = ModelFile(path)
    content, extents = file.outlined()
    proto = onnx.ModelProto.FromString(content)
    if is_linked(path) and any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in tensors(proto)):
        return content, {}  # onnxruntime finds the data by the names of the links
    names = Counter(value.name for part in (proto.graph.input, proto.graph.initializer) for value in part)
    weights: dict[str, Array] = {}
    for position, extent in extents.items():
        tensor = proto.graph.initializer[position]
        dtype = ir.DataType(tensor.data_type)
        if extent.length >= LARGE and dtype in _PLAIN and names[tensor.name] == 1:
            weights[tensor.name] = file.array(extent, dtype, tuple(tensor.dims))
            external_data_helper.set_external_data(tensor, "weights", 0, extent.length)
            tensor.ClearField("raw_data")
        else:
            tensor.raw_data = file.bytes_of(extent).tobytes()
    return proto.SerializeToString(), weights


def _with_inferred_shapes(model: ir.Model) -> bytes:
    content: bytes = ir.serde.serialize_model(model).SerializeToString()
    return content


def physical_memory() -> int | None:
    """The bytes of memory of this machine; None where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def too_large(path: Path) -> str:
    """Why a model can't be run on this machine, with a next step: it is larger than the memory; "" if it is not."""
    memory, size = physical_memory(), size_on_disk(path)
    if memory is None or size <= memory:
        return ""
    return (
        f"it has {size / 1e9:.3g} GB, and this machine {memory / 1e9:.3g} GB of memory; "
        "`fuse --sites-only` checks each fusion and does not run the model"
    )


@contextmanager
def _without_large_weights(model: ir.Model) -> Iterator[dict[str, Array]]:
    """Within the block the large weights in the model are declared as external data; yields their arrays by name."""
    taken: dict[str, Array] = {}
    before: list[tuple[ir.Value, ir.TensorProtocol]] = []
    try:
        for name, value in model.graph.initializers.items():
            tensor = value.const_value
            if tensor is None or isinstance(tensor, ir.ExternalTensor) or value.is_graph_input() or tensor.dtype not in _PLAIN:
                continue
            if tensor.nbytes >= LARGE:
                taken[name] = np.ascontiguousarray(tensor.numpy())
                before.append((value, tensor))
                value.const_value = ir.ExternalTensor(
                    "weights", 0, tensor.nbytes, tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=name
                )
        yield taken
    finally:
        for value, tensor in before:
            value.const_value = tensor
