"""What the results of a fragment's node are, where that is known before the model runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.folding import ARITHMETIC, evaluate, is_evaluated
from onnx_subgraph.model.nested import has_bodies

SMALL_BYTES = 4096
"""Constants up to this size are computed at once, and equal ones are shared. Larger ones are computed at serialization."""


def sizes_of(node: ir.Node) -> list[int] | None:
    """The result of a Shape node, or of a Gather from one, if all requested sizes are known, else None."""
    dims = dims_of(node)
    if node.op_type == "Gather" and not (node.domain or node.attributes):
        whole, indices = node.inputs[0], node.inputs[1]
        shape = None if whole is None else whole.producer()
        at = None if indices is None else indices.const_value
        if shape is not None and at is not None and len(at.shape) == 1 and (every := dims_of(shape)) is not None:
            dims = [every[index] for index in at.numpy()] if all(abs(index) < len(every) for index in at.numpy()) else None
    known = [size for size in dims or () if isinstance(size, int)]
    return known if dims is not None and len(known) == len(dims) else None


def dims_of(node: ir.Node) -> list[int | ir.SymbolicDim] | None:
    """The dimensions that a Shape node returns; None if it is another node, or they are unknown."""
    source = node.inputs[0] if node.inputs else None
    if node.op_type != "Shape" or node.domain or source is None or source.shape is None:
        return None
    start, end = (node.attributes[name].as_int() if name in node.attributes else None for name in ("start", "end"))
    return list(source.shape)[start:end]


def is_foldable(node: ir.Node) -> bool:
    """Whether a node reads only constants."""
    if node.domain or not node.inputs or has_bodies(node):
        return False
    return all(v is None or v.const_value is not None for v in node.inputs)


def folded(node: ir.Node, output: ir.Value, index: int, opset_imports: Mapping[str, int]) -> ir.TensorProtocol | None:
    """A result of a node as a constant: computed now if all is small, else lazily; None where it can't be folded."""
    if output.dtype is None or output.shape is None or not output.shape.is_static():
        return None
    dtype, shape = output.dtype, ir.Shape(output.shape)
    tensors = [None if v is None else v.const_value for v in node.inputs]
    attributes = tuple(node.attributes.values())
    operator_name, count, opset = node.op_type, len(node.outputs), opset_imports.get("", 1)

    def compute() -> ir.TensorProtocol:
        arrays = [None if t is None else t.numpy() for t in tensors]
        results = evaluate(operator_name, arrays, attributes, count, opset)
        return ir.Tensor(np.asarray(results[index]), dtype=dtype)

    size = int(np.prod(shape.numpy(), dtype=np.int64)) * dtype.itemsize
    if size <= SMALL_BYTES and all(t is None or t.nbytes <= SMALL_BYTES for t in tensors):
        try:
            return compute()
        except Exception:  # an operator that the reference does not implement stays a node
            return None
    if operator_name not in ARITHMETIC and not is_evaluated(operator_name, opset):
        return None
    return ir.LazyTensor(compute, dtype=dtype, shape=shape)
