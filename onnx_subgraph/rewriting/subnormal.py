"""Subnormal weights become zeros: processors multiply them many times more slowly than other numbers.

Weight decay lets weights shrink until they are subnormal: smaller than 1.2e-38 in float32, 2.2e-308 in float64. In a sum of
products no such weight can be seen, unless what it is multiplied with is as large as numbers get. Weights of products,
convolutions and recurrent networks are looked at, and those alone: elsewhere a small number may be divided by, or compared.
Data outside of the model's file is left alone, so that it need not be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_subgraph.operators.names import OWN_DOMAIN

_BLOCK = 1 << 18
"""Elements that are looked at together; they stay in the cache."""
_WEIGHTS = {
    **dict.fromkeys(("MatMul", "FusedMatMul", "Gemm", "FusedGemm"), (0, 1)),
    **dict.fromkeys(("Conv", "FusedConv", "ConvTranspose"), (1,)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2)),
    "Linear": (1,),
}
"""Operator → the inputs that are multiplied, and whose products are added up."""
_DOMAINS = frozenset({"", "com.microsoft", OWN_DOMAIN})


@dataclass(frozen=True, slots=True)
class Flushed:
    """A weight in which subnormal numbers were made zeros. count: of them; elements: of all."""

    weight: str
    count: int
    elements: int


Counts = dict[ir.TensorProtocol, int]
"""Weight → how many of its elements are subnormal."""


def flush(model: ir.Model, counts: Counts | None = None) -> tuple[Flushed, ...]:
    """Makes subnormal weights zeros; says which. Changes `model`.

    counts: what was counted before, in this model or in another one that has the same weights; what is counted is added.
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
    """The constants that nothing reads but products, as weights."""
    inputs = {value for graph in (model.graph, *model.graph.subgraphs()) for value in graph.inputs}
    for node in model.graph.all_nodes():
        for value in (node.inputs[index] for index in _positions(node) if index < len(node.inputs)):
            if value is None or value in inputs or value.is_graph_output() or not _is_stored(value):
                continue
            if all(index in _positions(user) for user, index in value.uses()):
                yield value


def _positions(node: ir.Node) -> tuple[int, ...]:
    return _WEIGHTS.get(node.op_type, ()) if node.domain in _DOMAINS else ()


def _is_stored(value: ir.Value) -> bool:
    """Whether the value is an initializer of floats whose data is in the model's own file, or was made here."""
    tensor = value.const_value
    return (
        value.is_initializer()
        and tensor is not None
        and not isinstance(tensor, ir.ExternalTensor)
        and tensor.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)
    )


def _subnormal(array: np.ndarray) -> int:
    """How many elements are subnormal. Zeros have no bit but the sign's; subnormal numbers have none in the exponent."""
    bits, unsigned = (array.view(np.uint32), np.uint32) if array.dtype == np.float32 else (array.view(np.uint64), np.uint64)
    sign = unsigned(np.iinfo(unsigned).max >> 1)
    fraction = unsigned((1 << np.finfo(array.dtype).nmant) - 1)
    flat = bits.reshape(-1)
    # less one, a zero is the largest number that there is
    blocks = (flat[start : start + _BLOCK] & sign for start in range(0, flat.size, _BLOCK))
    return sum(int(np.count_nonzero(block - unsigned(1) < fraction)) for block in blocks)
