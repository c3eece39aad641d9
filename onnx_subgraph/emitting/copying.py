"""Count the copies of data that a replacement makes: in its own nodes, and to transpose its operands."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from onnx_subgraph.emitting.fragment import Fragment
from onnx_subgraph.matching.equalities import REARRANGING

COPIES = frozenset({"Concat", "Expand", "Gather", "Pad", "Slice", "Split", "Tile", "Transpose"})
"""Operators that only copy data."""


def copying_nodes(nodes: Iterable[ir.Node]) -> int:
    """The number of nodes that only copy data."""
    return sum(n.op_type in COPIES and not n.domain for n in nodes)


def copies(fragment: Fragment) -> int:
    """The number of copies that a replacement makes: by its own nodes, and by the Transposes in front of its operands."""
    copied = copying_nodes(n for n in fragment.nodes if not is_of_shapes(n))
    return copied + sum(_transposed(value) for value in fragment.read.values())


def _transposed(value: ir.Value) -> int:
    """The number of Transposes in the chain of layout operators that ends in `value`."""
    count, node = 0, value.producer()
    while node is not None and not node.domain and node.op_type in (*REARRANGING, "Identity") and node.inputs[0] is not None:
        count += node.op_type == "Transpose"
        node = node.inputs[0].producer()
    return count


def is_of_shapes(node: ir.Node) -> bool:
    """Whether a node of the fragment only assembles a shape."""
    return node.op_type == "Shape" or (node.op_type in ("Concat", "Gather") and node.outputs[0].dtype == ir.DataType.INT64)
