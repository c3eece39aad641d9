"""A selector whose filter gives back a part of the region: MXNet's `Filter`, which trims what has grown too far."""

import sys
from pathlib import Path

import onnx_ir as ir

from onnx_subgraph import Library, Options, Region, fuse, region_pattern


class ConvBlock:
    """A convolution and all that follows it, but at most so many nodes: a region that is longer is cut off there."""

    LONGEST = 2

    def select(self, node: ir.Node) -> bool:
        return node.op_type == "Conv"

    def select_input(self, node: ir.Node, producer: ir.Node) -> bool:
        return False

    def select_output(self, node: ir.Node, consumer: ir.Node) -> bool:
        return consumer.op_type in ("BatchNormalization", "Relu", "Add")

    def filter(self, region: Region) -> tuple[ir.Node, ...]:
        return region.nodes[: self.LONGEST]


result = fuse(
    Path(sys.argv[1]), Path("trimmed.onnx"), Library((region_pattern("conv-block", ConvBlock),)), Options(target="function")
)
for rewrite in result.rewrites:
    print(f"{rewrite.op} of {len(rewrite.replaces)} nodes")
for miss in result.near_misses:
    print(f"left as it was: {miss.found}")
print(result.verdict.verdict)
