"""Whether a region is worth an engine: its size, and what crosses its border against what its operators read and write."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_subgraph.backends.subgraph import constant
from onnx_subgraph.matching.region import Region
from onnx_subgraph.model.nested import reads

SYMBOL = 16
"""The size that a dimension counts as when it is not known."""


@dataclass(frozen=True, slots=True)
class RegionLimits:
    """What a region must be to be worth an engine, and which nodes may be in one.

    min_nodes: the fewest nodes. max_crossing: the largest share, of the bytes that its operators read and write, that may cross
    its border. allow, deny: operators (`MatMul`, `com.microsoft.Gelu`) or names of nodes, `*` for anything; an empty `allow`
    allows all. sizes: symbolic dimension → the size that it counts as.
    """

    min_nodes: int = 3
    max_crossing: float = 0.5
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a region, in bytes. crossing: what flows in and out at run time, touched: what its operators read and write."""

    nodes: int
    inputs: int
    outputs: int
    touched: int

    @property
    def crossing(self) -> int:
        """Bytes in and out."""
        return self.inputs + self.outputs

    @property
    def share(self) -> float:
        """`crossing` of `touched`."""
        return self.crossing / self.touched if self.touched else 0.0


def cost(region: Region, limits: RegionLimits) -> Cost:
    """What a region of the main graph costs."""

    def total(values: Sequence[ir.Value]) -> int:
        return sum(_bytes(value, limits.sizes) for value in values)

    touched = sum(total(tuple(dict.fromkeys(reads(node)))) + total(node.outputs) for node in region.nodes)
    flowing = [value for value in region.inputs if constant(value) is None]
    return Cost(len(region.nodes), total(flowing), total(region.outputs), touched)


def objection(cost: Cost, limits: RegionLimits) -> str:
    """Why a region of that cost is not worth an engine; "" when it is."""
    if cost.nodes < limits.min_nodes:
        return f"smaller than {limits.min_nodes} nodes"
    if cost.share > limits.max_crossing:
        return f"{cost.share:.0%} of the bytes that it reads and writes cross its border, more than {limits.max_crossing:.0%}"
    return ""


def _bytes(value: ir.Value, sizes: Mapping[str, int]) -> int:
    if value.shape is None or value.dtype is None:
        return 0
    dims = (dim if isinstance(dim, int) else sizes.get(dim.value or "", SYMBOL) for dim in value.shape)
    return math.ceil(math.prod(dims) * value.dtype.itemsize)
