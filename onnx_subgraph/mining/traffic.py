"""The bytes that nodes read and write: the estimate of what a unit costs where nothing is run."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from onnx_subgraph.matching.remembered import remembered
from onnx_subgraph.model.nested import reads
from onnx_subgraph.partitioning.work import Sizes, nbytes


class Traffic:
    """Bytes of the values of one model. sizes: of its symbolic dimensions. A text has no known length and counts as nothing."""

    def __init__(self, sizes: Sizes) -> None:
        def weigh(value: ir.Value) -> int:
            return 0 if value.dtype == ir.DataType.STRING else nbytes((value,), sizes)

        self.of_value = remembered(weigh)

    def of_values(self, values: Iterable[ir.Value]) -> int:
        """The bytes of values together."""
        return sum(map(self.of_value, values))

    def of_node(self, node: ir.Node) -> int:
        """The bytes that a node reads and writes."""
        return self.of_values((*dict.fromkeys(reads(node)), *node.outputs))
