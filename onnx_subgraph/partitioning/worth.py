"""Decide whether a region is worth an engine: its size, the data that crosses its border, and the time that the backend may save.

The estimate of time is rough, and for one core of a processor with AVX-512. It rules out engines that make a model much slower.
Whether an engine is a little faster or slower is left to a measurement (`measure`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_subgraph.backends.subgraph import constant
from onnx_subgraph.partitioning.work import executed, nbytes, operations, touched
from onnx_subgraph.regions.region import Region

OPERATIONS = 150e9
"""Operations of sums of products per second."""
BYTES = 30e9
"""Bytes that operators read and write per second."""
CALL = 250e-6
"""The fixed cost of a region in seconds: calls, and fusions that its border prevents."""
CROSSED = 2e9
"""Bytes that cross a border per second: they are copied, and their layout is converted on both sides."""


@dataclass(frozen=True, slots=True)
class RegionLimits:
    """The requirements on a region to become an engine, and which nodes may be in one.

    min_nodes: the fewest nodes.
    max_crossing: the most bytes that may cross its border, relative to the bytes that its operators read and write.
    gain: the fraction of a region's time that its backend is expected to save, compared with the cost of crossing; None for the
    backend's own figure, infinite to skip this test.
    allow, deny: operators (`MatMul`, `com.microsoft.Gelu`) or names of nodes, with `*` as wildcard; an empty `allow` allows all.
    results: names of values; only nodes that compute one of them are allowed. None allows all.
    sizes: symbolic dimension → its assumed size.
    bodies: whether regions inside the subgraphs of an If or a Loop are allowed, if that node is in no region itself.
    """

    min_nodes: int = 3
    max_crossing: float = 0.5
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    results: Collection[str] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    gain: float | None = None
    bodies: bool = False


MEASURED = RegionLimits(min_nodes=1, max_crossing=math.inf, gain=math.inf)
"""The requirements where a measurement decides, and not the estimate."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a region. nodes: including subgraphs and called functions.

    inputs, outputs: bytes that cross the border at run time.

    touched: bytes that its operators read and write. operations: of its sums of products. whole: whether it is the whole model,
    so that nothing crosses a border.
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
        """`crossing` divided by `touched`."""
        return self.crossing / self.touched if self.touched else 0.0

    @property
    def work(self) -> float:
        """The estimated time of the region in onnxruntime, in seconds."""
        return _seconds(self.operations, self.touched)

    @property
    def price(self) -> float:
        """The estimated time to cross its border, in seconds."""
        return 0.0 if self.whole else CALL + self.crossing / CROSSED


def _seconds(operations: int, touched: int) -> float:
    return operations / OPERATIONS + touched / BYTES


def work(nodes: Sequence[ir.Node], model: ir.Model, sizes: Mapping[str, int]) -> float:
    """The estimated time of nodes in onnxruntime, in seconds, at these sizes of symbolic dimensions."""
    moved = sum(touched(node, sizes, model.functions) for node in nodes)
    return _seconds(operations(nodes, sizes, model.functions), moved)


def cost(region: Region, model: ir.Model, sizes: Mapping[str, int]) -> Cost:
    """The cost of a region at these sizes of symbolic dimensions."""
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
    """Why a region of that cost is not worth an engine; "" if it is. gain: the fraction of its time that the backend saves."""
    if cost.nodes < limits.min_nodes:
        return f"smaller than {limits.min_nodes} nodes"
    if cost.share > limits.max_crossing:
        return f"{cost.share:.0%} of the bytes that it reads and writes cross its border, more than {limits.max_crossing:.0%}"
    if cost.work * gain < cost.price:
        return f"crossing its border takes longer than {gain:.0%} of its work, which the backend may save"
    return ""
