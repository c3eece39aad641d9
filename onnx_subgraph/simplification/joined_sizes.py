"""A Where that chooses between sizes whose comparison is known is the Concat of these sizes.

torch.expand has -1 for an axis that stays. TorchScript writes `Where(Equal(shape, -1), 1, shape)`. Only constants are -1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import Constants, small
from onnx_subgraph.model.dimension_names import Dim
from onnx_subgraph.model.shapes import SHAPE_DATA, same_dim
from onnx_subgraph.model.surgery import constant


def as_concat(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """The Concat, behind its constants, that gives the result of a Where of vectors of sizes; [] for other nodes.

    The sizes are those that an operand joins, except constants. They must follow from the inputs (`proved_only`).
    """
    if node.op_type != "Where" or node.domain or node.outputs[0].dtype != ir.DataType.INT64:
        return []
    sizes = _elements(constants, node.outputs[0])
    for operand in node.inputs[1:] if sizes else ():
        joined = None if operand is None else operand.producer()
        is_join = joined is not None and joined.op_type == "Concat" and not joined.domain
        if joined is not None and is_join and (parts := _parts(constants, joined, sizes)):
            return _concat(parts, node)
    return []


def _elements(constants: Constants, value: ir.Value | None) -> Sequence[Dim]:
    """The elements of a vector; () where they are not known."""
    if value is None or value.shape is None or len(value.shape) != 1:
        return ()
    array = small(constants, value)
    data: Sequence[Dim] = value.meta.get(SHAPE_DATA, ()) if array is None else array.tolist()
    return data if value.shape[0] == len(data) else ()


def _parts(constants: Constants, joined: ir.Node, sizes: Sequence[Dim]) -> list[ir.Value | list[int]]:
    """What a Concat must join to give these sizes: operands of `joined`, and numbers; [] if there is something else."""
    parts, at = list[ir.Value | list[int]](), 0
    for operand in joined.inputs:
        own = _elements(constants, operand)
        wanted = sizes[at : at + len(own)]
        numbers = [size for size in wanted if isinstance(size, int)]
        if not own or len(wanted) < len(own):
            return []
        if len(numbers) == len(own):
            last = parts[-1] if parts else None
            parts += [] if isinstance(last, list) else [[]]
            parts[-1] += numbers
        elif operand is not None and all(map(same_dim, own, wanted)):
            parts.append(operand)
        else:
            return []
        at += len(own)
    return parts if at == len(sizes) else []


def _concat(parts: Sequence[ir.Value | list[int]], node: ir.Node) -> list[ir.Node]:
    result = node.outputs[0].name
    made = [constant(np.array(part, np.int64), f"{result}__sizes_{i}") for i, part in enumerate(parts) if isinstance(part, list)]
    numbers = iter(made)
    operands = [next(numbers).outputs[0] if isinstance(part, list) else part for part in parts]
    return [*made, ir.Node("", "Concat", operands, [ir.AttrInt64("axis", 0)], name=f"{node.name or result}_joined")]
