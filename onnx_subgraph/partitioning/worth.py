"""Whether a region is worth an engine: its size, what crosses its border, and whether its backend makes up for the crossing.

The estimate of time is for one core of a processor with AVX-512, and rough: it shall keep a model from becoming much slower, and
leaves the choice between a little faster and a little slower to a measurement (`measure`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_subgraph.backends.subgraph import constant
from onnx_subgraph.partitioning.work import executed, nbytes, operations, touched
from onnx_subgraph.regions.region import Region

OPERATIONS = 150e9
"""Operations of sums of products in a second."""
BYTES = 30e9
"""Bytes that operators read and write in a second."""
CALL = 250e-6
"""Seconds that a region costs however little crosses its border: calls, and what is not fused across it."""
CROSSED = 2e9
"""Bytes that cross in a second: they are copied, and laid out anew on both sides."""


@dataclass(frozen=True, slots=True)
class RegionLimits:
    """What a region must be to be worth an engine, and which nodes may be in one.

    min_nodes: the fewest nodes. max_crossing: the largest share, of the bytes that its operators read and write, that may cross
    its border. gain: the part of a region's time that its backend is expected to save, held against what crossing costs; None
    for what the backend says of itself, infinite for no such question. allow, deny: operators (`MatMul`, `com.microsoft.Gelu`)
    or names of nodes, `*` for anything; an empty `allow` allows all. sizes: symbolic dimension → the size that it counts as.
    bodies: whether a region may lie in a body of an If or a Loop that is in no region as a whole.
    """

    min_nodes: int = 3
    max_crossing: float = 0.5
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    gain: float | None = None
    bodies: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a region. nodes: with those of nested bodies and of called functions. inputs, outputs: bytes that flow at run time.

    touched: bytes that its operators read and write. operations: of its sums of products. whole: it is all that the model
    computes, so that nothing is crossed.
    """

    nodes: int
    inputs: int
    outputs: int
    touched: int
    operations: int = 0
    whole: bool = False

    @property
    def crossing(self) -> int:
        """Bytes in and out."""
        return self.inputs + self.outputs

    @property
    def share(self) -> float:
        """`crossing` of `touched`."""
        return self.crossing / self.touched if self.touched else 0.0

    @property
    def work(self) -> float:
        """Seconds that onnxruntime takes for the region, estimated."""
        return self.operations / OPERATIONS + self.touched / BYTES

    @property
    def price(self) -> float:
        """Seconds that crossing its border costs, estimated."""
        return 0.0 if self.whole else CALL + self.crossing / CROSSED


def cost(region: Region, model: ir.Model, sizes: Mapping[str, int]) -> Cost:
    """What a region of the main graph costs, at these sizes of symbolic dimensions."""
    flowing = [value for value in region.inputs if constant(value) is None]
    return Cost(
        sum(executed(node, model.functions) for node in region.nodes),
        nbytes(flowing, sizes),
        nbytes(region.outputs, sizes),
        sum(touched(node, sizes, model.functions) for node in region.nodes),
        operations(region.nodes, sizes, model.functions),
        whole=region.graph is model.graph and len(region.nodes) == sum(node.op_type != "Constant" for node in model.graph),
    )


def objection(cost: Cost, limits: RegionLimits, gain: float) -> str:
    """Why a region of that cost is not worth an engine; "" when it is. gain: the part of its time that the backend saves."""
    if cost.nodes < limits.min_nodes:
        return f"smaller than {limits.min_nodes} nodes"
    if cost.share > limits.max_crossing:
        return f"{cost.share:.0%} of the bytes that it reads and writes cross its border, more than {limits.max_crossing:.0%}"
    if cost.work * gain < cost.price:
        return f"crossing its border takes longer than {gain:.0%} of its work, which the backend may save"
    return ""
