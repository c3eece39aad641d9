"""The bytes that nodes move: what a unit costs, where nothing is run."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from onnx_subgraph.model.nested import reads
from onnx_subgraph.partitioning.work import Sizes, nbytes


def weight(values: Iterable[ir.Value], sizes: Sizes) -> int:
    """The bytes of values together; texts, whose length nobody knows, count nothing."""
    return nbytes((v for v in values if v.dtype != ir.DataType.STRING), sizes)


def traffic(node: ir.Node, sizes: Sizes) -> int:
    """The bytes that a node reads and writes."""
    return weight((*dict.fromkeys(reads(node)), *node.outputs), sizes)
