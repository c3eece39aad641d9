"""A shuffle of channels whose shapes are computed, as one Gather.

ShuffleNet splits the channels into groups, exchanges both axes, and joins them again. For images of any size, the shapes of both
Reshapes are computed in each run.
"""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import Constants
from onnx_subgraph.model.shapes import same_dim, same_shape
from onnx_subgraph.model.surgery import constant


def as_shuffle(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """The Gather, behind its indices, that gives the result of Reshape, Transpose, Reshape along one axis; [] for other nodes.

    Shapes must follow from the inputs (`proved_only`). With constant shapes the three nodes stay: they cost no more.
    """
    order = _before(node, "Reshape")
    split = None if order is None else _before(order, "Transpose")
    given = None if order is None else order.attributes.get("perm")
    if order is None or split is None or split.op_type != "Reshape" or split.domain or given is None or given.is_ref():
        return []
    source, apart, result = split.inputs[0], split.outputs[0].shape, node.outputs[0]
    if source is None or source.shape is None or apart is None or not same_shape(source, result):
        return []
    if all(shape is not None and constants.is_constant(shape) for shape in (split.inputs[1], node.inputs[1])):
        return []
    count, perm = len(apart) - len(source.shape) + 1, list(given.as_ints())
    for axis, size in enumerate(source.shape):
        parts = [part for part in apart[axis : axis + count] if isinstance(part, int)]
        others = [*apart[:axis], 1, *apart[axis + count :]]
        kept = [at == axis or same_dim(a, b) for at, (a, b) in enumerate(zip(source.shape, others, strict=True))]
        inner = perm[axis : axis + count]
        outer = [*range(axis), *inner, *range(axis + count, len(apart))]
        if isinstance(size, int) and len(parts) == count > 1 and prod(parts) == size and all(kept) and perm == outer:
            moved = np.arange(size).reshape(parts).transpose([at - axis for at in inner]).reshape(-1)
            made = constant(moved.astype(np.int64), f"{result.name}__channels")
            name = f"{node.name or result.name}_shuffled"
            return [made, ir.Node("", "Gather", [source, made.outputs[0]], [ir.AttrInt64("axis", axis)], name=name)]
    return []


def _before(node: ir.Node, operator: str) -> ir.Node | None:
    """The node that alone a node with this operator reads, and that nothing else reads."""
    value = node.inputs[0] if node.op_type == operator and not node.domain and node.inputs else None
    maker = None if value is None else value.producer()
    if value is None or maker is None or maker.graph is not node.graph or len(value.uses()) > 1 or value.is_graph_output():
        return None
    return maker
