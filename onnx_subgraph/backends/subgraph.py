"""The model of one region, for a backend: run-time values are inputs, all weights are initializers.

The weights are shared with the partitioned model. They are only copied for serialization.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from onnx_subgraph.backends.array import Array
from onnx_subgraph.files import maps

LARGE = 1 << 16
"""The least size in bytes of weights that `detached` separates."""
_DETACHABLE = frozenset({"FLOAT", "DOUBLE", "FLOAT16", "INT64", "INT32", "INT8", "UINT8"})


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A region. name: of its engine node. key: equal for regions that compute the same from the same inputs and weights.

    model: none of its nodes calls a model-local function.
    """

    name: str
    key: str
    model: ir.Model

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the run-time inputs."""
        return tuple(str(value.name) for value in self.model.graph.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the results."""
        return tuple(str(value.name) for value in self.model.graph.outputs)

    def serialized(self, *, whole: bool = False) -> bytes:
        """The model as ONNX. Weights in a data file are referred to by its absolute path, or included if `whole`."""
        return self._written({}, whole)[0]

    def detached(self) -> tuple[bytes, Mapping[str, Array]]:
        """The model as ONNX with its larger weights as external data, and those weights by name."""
        weights = {
            name: value.const_value
            for name, value in self.model.graph.initializers.items()
            if value.const_value is not None
            and value.const_value.dtype.name in _DETACHABLE
            and (isinstance(value.const_value, ir.ExternalTensor) or value.const_value.nbytes >= LARGE)
        }
        return self._written(weights, whole=False)

    @property
    def nbytes(self) -> int:
        """The bytes of all weights; a protobuf holds at most 2 GiB with everything else."""
        return sum(value.const_value.nbytes for value in self.model.graph.initializers.values() if value.const_value is not None)

    def hold(self) -> None:
        """Map the weights that are in data files now, so that they stay when the files are replaced or deleted."""
        for value in self.model.graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value.numpy()

    def opened(self) -> tuple[bytes, Mapping[str, Array]]:
        """The model as ONNX with its larger weights as inputs, and these by name, memory-mapped if they are in a file."""
        model = self.model.clone()
        weights: dict[str, Array] = {}
        for name, value in tuple(model.graph.initializers.items()):
            tensor = value.const_value
            if tensor is not None and tensor.nbytes >= LARGE and tensor.dtype.name in _DETACHABLE:
                weights[name] = tensor.numpy()
                model.graph.initializers.pop(name)
                value.const_value = None
                model.graph.inputs.append(value)
        content: bytes = ir.to_proto(model).SerializeToString(deterministic=True)
        return content, weights

    def weights_digest(self) -> bytes:
        """A digest of all weights; it reads them."""
        digest = hashlib.sha256()
        for name, value in sorted(self.model.graph.initializers.items()):
            assert value.const_value is not None
            digest.update(f"{name} {value.const_value.dtype} {value.const_value.shape}".encode())
            digest.update(value.const_value.tobytes())
        return digest.digest()

    def _written(self, apart: Mapping[str, ir.TensorProtocol], whole: bool) -> tuple[bytes, Mapping[str, Array]]:
        model = self.model.clone()  # several threads may call this at a time, and share the tensors
        for name, value in model.graph.initializers.items():
            tensor = value.const_value
            assert tensor is not None
            if name in apart:
                place, offset = Path("weights"), 0
            elif isinstance(tensor, ir.ExternalTensor):
                if whole:
                    value.const_value = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=name)
                    continue
                place, offset = Path(tensor.path).absolute(), tensor.offset or 0
            else:
                continue
            value.const_value = ir.ExternalTensor(
                str(place), offset, tensor.nbytes, tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=name
            )
        proto = ir.to_proto(model)
        maps.put_back(proto, self.model)
        content: bytes = proto.SerializeToString(deterministic=True)
        return content, {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in apart.items()}


def constant(value: ir.Value) -> ir.TensorProtocol | None:
    """The tensor of a constant value; None if it is computed or fed, such as an initializer that is also an input."""
    if value.is_graph_input():
        return None
    return ir.convenience.get_const_tensor(value)
