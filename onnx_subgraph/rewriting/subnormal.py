"""Replace subnormal weights by zeros, because processors multiply subnormal numbers many times more slowly.

Weight decay makes weights subnormal: smaller than 1.2e-38 in float32, 2.2e-308 in float64. In a sum of products such a weight has
no visible effect, unless it is multiplied by a number near the type's maximum. Only weights of products, convolutions and
recurrent networks are changed: elsewhere a small number may be a divisor or be compared. External data is not read, and is left
as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.nested import within
from onnx_subgraph.operators.names import OWN_DOMAIN

_BLOCK = 1 << 18
"""The number of elements processed together; they stay in the cache."""
_WEIGHTS = {
    **dict.fromkeys(("MatMul", "FusedMatMul", "Gemm", "FusedGemm"), (0, 1)),
    **dict.fromkeys(("Conv", "FusedConv", "ConvTranspose"), (1,)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2)),
    "Linear": (1,),
}
"""Operator → the inputs that are multiplied and summed."""
_DOMAINS = frozenset({"", "com.microsoft", OWN_DOMAIN})


@dataclass(frozen=True, slots=True)
class Flushed:
    """A weight in which subnormal numbers became zeros. count: how many. elements: the size of the weight."""

    weight: str
    count: int
    elements: int


Counts = dict[ir.TensorProtocol, int]
"""Weight → the number of its subnormal elements."""


def flush(model: ir.Model, counts: Counts | None = None) -> tuple[Flushed, ...]:
    """Replace subnormal weights by zeros. Changes `model`; returns the changed weights.

    counts: known counts, of this model or of another one with the same weights; new counts are added to it.
    """
    counts = {} if counts is None else counts
    found = []
    for value in dict.fromkeys(_weights(model)):
        tensor = value.const_value
        assert tensor is not None
        if tensor not in counts:
            counts[tensor] = _subnormal(np.ascontiguousarray(tensor.numpy()))
        if count := counts[tensor]:
            array = np.ascontiguousarray(tensor.numpy())
            cleared = array.copy()
            cleared[(np.abs(array) < np.finfo(array.dtype).tiny) & (array != 0)] = 0
            value.const_value = ir.tensor(cleared, name=value.name)
            found.append(Flushed(str(value.name), count, array.size))
    return tuple(found)


def _weights(model: ir.Model) -> Iterator[ir.Value]:
    """The constants that are read only as weights of products."""
    inputs = {value for graph in within(model.graph) for value in graph.inputs}
    for node in model.graph.all_nodes():
        for value in (node.inputs[index] for index in _positions(node) if index < len(node.inputs)):
            if value is None or value in inputs or value.is_graph_output() or not _is_stored(value):
                continue
            if all(index in _positions(user) for user, index in value.uses()):
                yield value


def _positions(node: ir.Node) -> tuple[int, ...]:
    return _WEIGHTS.get(node.op_type, ()) if node.domain in _DOMAINS else ()


def _is_stored(value: ir.Value) -> bool:
    """Whether the value is a floating initializer whose data is in the model's own file or in memory."""
    tensor = value.const_value
    return (
        value.is_initializer()
        and tensor is not None
        and not isinstance(tensor, ir.ExternalTensor)
        and tensor.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)
    )


def _subnormal(array: np.ndarray) -> int:
    """The number of subnormal elements: their exponent bits are zero, and their fraction is not."""
    bits, unsigned = (array.view(np.uint32), np.uint32) if array.dtype == np.float32 else (array.view(np.uint64), np.uint64)
    sign = unsigned(np.iinfo(unsigned).max >> 1)
    fraction = unsigned((1 << np.finfo(array.dtype).nmant) - 1)
    flat = bits.reshape(-1)
    # zero minus one wraps around to the largest number, so zeros are not counted
    blocks = (flat[start : start + _BLOCK] & sign for start in range(0, flat.size, _BLOCK))
    return sum(int(np.count_nonzero(block - unsigned(1) < fraction)) for block in blocks)
