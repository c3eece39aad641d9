"""A Split that takes the first part of a Concat apart again, behind operators on single elements.

Networks with rotary embeddings join the angles with themselves and take the cosines; a fused operator needs those of one half.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_subgraph.model.repetition import ELEMENTWISE
from onnx_subgraph.model.shapes import same_dim


def as_part(node: ir.Node) -> list[ir.Node]:
    """The operators on the first operand of the Concat that give the first result of a Split; [] for other nodes.

    Nothing may read the other results of the Split, or what stands between.
    """
    if node.domain or node.op_type != "Split" or any(o.uses() or o.is_graph_output() for o in node.outputs[1:]):
        return []
    between: list[ir.Node] = []
    joined = _producer(node)
    while joined is not None and joined.op_type in ELEMENTWISE:
        if len(joined.outputs[0].uses()) > 1 or joined.outputs[0].is_graph_output():
            return []
        between.append(joined)
        joined = _producer(joined)
    part = None if joined is None or joined.op_type != "Concat" else joined.inputs[0]
    if joined is None or part is None or not _is_first(joined, part, node):
        return []
    made = [ir.Node("", "Identity", [part], name=f"{node.name or node.outputs[0].name}_part")] if not between else []
    for old in reversed(between):
        made.append(
            ir.Node("", old.op_type, [part], list(old.attributes.values()), name=f"{old.name or old.outputs[0].name}_part")
        )
        part = made[-1].outputs[0]
        part.name = f"{old.outputs[0].name}__part"
    return made


def _producer(node: ir.Node) -> ir.Node | None:
    maker = None if node.inputs[0] is None else node.inputs[0].producer()
    return None if maker is None or maker.domain else maker


def _is_first(joined: ir.Node, part: ir.Value, split: ir.Node) -> bool:
    """Whether the first result of a Split has the size of the first operand of a Concat, along the same axis."""
    result = split.outputs[0].shape
    if part.shape is None or result is None or len(part.shape) != len(result) or not len(result):
        return False
    axes = {node.attributes.get_int("axis", 0) % len(result) for node in (joined, split)}
    return all(same_dim(part.shape[axis], result[axis]) for axis in axes)
