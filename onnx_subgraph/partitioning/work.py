"""Estimate the work of a region: the bytes that its operators read and write, and the operations of its sums of products.

Unknown sizes count as `LIKELY`: a batch of one, and `SYMBOL` for any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import onnx_ir as ir

from onnx_subgraph.inputs.sizes import dimension, known, resolve, symbols
from onnx_subgraph.model.nested import bodies, count, reads

LIKELY = {"batch": 1}
"""The assumed size of a dimension, by its role among the inputs."""
SYMBOL = 64
"""The assumed size of a dimension without such a role."""

Sizes = Mapping[str, int]


def likely_sizes(model: ir.Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Symbolic dimension → its size: from `shapes` (input → shape), else an assumed one."""
    sizes = {name: LIKELY.get(role, SYMBOL) for name, role in symbols(list(model.graph.inputs)).items()}
    for value in model.graph.inputs:
        for axis, size in enumerate(shapes.get(str(value.name), ())[: len(value.shape or ())]):
            if isinstance(name := dimension(value, axis), str):
                sizes[name] = size
    return known(model.graph.inputs, sizes)


def nbytes(values: Iterable[ir.Value], sizes: Sizes) -> int:
    """The total bytes of these values; values of unknown rank or dtype count nothing."""
    known = ((v, _shape(v, sizes)) for v in values)
    return sum(math.ceil(math.prod(shape) * v.dtype.itemsize) for v, shape in known if shape is not None and v.dtype is not None)


Functions = Mapping[ir.OperatorIdentifier, ir.Function]


def touched(node: ir.Node, sizes: Sizes, functions: Functions) -> int:
    """The bytes that a node reads and writes; for a call, those of the function's nodes if that is more."""
    here = nbytes((*dict.fromkeys(reads(node)), *node.outputs), sizes)
    function = functions.get(node.op_identifier())
    return here if function is None else max(here, sum(touched(inner, sizes, functions) for inner in function))


def executed(node: ir.Node, functions: Functions) -> int:
    """The number of nodes that a node stands for: itself and those of its subgraphs; for a call, those of the function."""
    function = functions.get(node.op_identifier())
    return count(node) if function is None else sum(executed(inner, functions) for inner in function)


def operations(nodes: Iterable[ir.Node], sizes: Sizes, functions: Functions) -> int:
    """Multiplications and additions in the sums of products of these nodes, of their subgraphs and of called functions."""
    total = 0
    for node in nodes:
        function = functions.get(node.op_identifier())
        inner = [n for body in bodies(node) for n in body.all_nodes()] + ([] if function is None else list(function))
        total += operations(inner, sizes, functions) if inner else _operations(node, sizes)
    return total


def _operations(node: ir.Node, sizes: Sizes) -> int:
    terms = _TERMS.get(node.op_type)
    if terms is None or not node.outputs:
        return 0
    shapes = [None if value is None else _shape(value, sizes) for value in node.inputs]
    result = _shape(node.outputs[0], sizes)
    try:
        return 2 * terms(node, shapes, result)  # type: ignore[arg-type]
    except (TypeError, IndexError):  # a rank is unknown
        return 0


Shapes = Sequence[Sequence[int]]
Terms = Callable[[ir.Node, Shapes, Sequence[int]], int]
"""The number of products that an operator sums, from the shapes of its inputs and of its first result."""


def _gemm(node: ir.Node, shapes: Shapes, result: Sequence[int]) -> int:
    transposed = node.attributes.get_int("transA", 0)
    return math.prod(result) * shapes[0][0 if transposed else -1]


def _attention(node: ir.Node, shapes: Shapes, result: Sequence[int]) -> int:
    """Scores and their product with the values. Without known keys, their length is assumed to be that of the queries."""
    keys = shapes[1] if len(shapes) > 1 and len(shapes[1]) > 2 else shapes[0]
    return 2 * math.prod(result) * keys[-2]


_TERMS: dict[str, Terms] = {
    "MatMul": lambda node, shapes, result: math.prod(result) * shapes[0][-1],
    "FusedMatMul": lambda node, shapes, result: math.prod(result) * shapes[0][-1],
    "Einsum": lambda node, shapes, result: math.prod(result) * shapes[0][-1],
    "Gemm": _gemm,
    "FusedGemm": _gemm,
    "Conv": lambda node, shapes, result: math.prod(result) * math.prod(shapes[1][1:]),
    "FusedConv": lambda node, shapes, result: math.prod(result) * math.prod(shapes[1][1:]),
    "ConvTranspose": lambda node, shapes, result: math.prod(shapes[0]) * math.prod(shapes[1][1:]),
    **dict.fromkeys(
        ("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"),
        lambda node, shapes, result: math.prod(shapes[0][:2]) * (math.prod(shapes[1]) + math.prod(shapes[2])),
    ),
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention"), _attention),
}


def _shape(value: ir.Value, sizes: Sizes) -> tuple[int, ...] | None:
    if value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else _size(dim, sizes) for dim in value.shape)


def _size(dim: ir.SymbolicDim, sizes: Sizes) -> int:
    found = None if dim.value is None else resolve(sizes, dim.value)
    return SYMBOL if found is None or found < 0 else found
