"""A selector in Python: a convolution and the batch normalization after it, MXNet's example, and a review of what was found."""

import sys
from pathlib import Path

import onnx_ir as ir

from onnx_subgraph import Library, Options, Region, Review, fuse, region_pattern


class ConvBN:
    """The four questions of MXNet's `SubgraphSelector`, and its `ReviewSubgraph`."""

    def select(self, node: ir.Node) -> bool:
        return node.op_type == "Conv"

    def select_input(self, node: ir.Node, producer: ir.Node) -> bool:
        return False

    def select_output(self, node: ir.Node, consumer: ir.Node) -> bool:
        return consumer.op_type == "BatchNormalization"

    def filter(self, region: Region) -> bool:
        return len(region.nodes) == 2 and len(region.outputs) == 1

    def review(self, region: Region, definition: ir.Function) -> Review | None:
        filters, *_, width = region.nodes[0].inputs[1].shape
        if width == 1:
            return Review(refusal="a filter of one pixel is a matrix product")
        return Review(attributes={"filters": filters}, metadata={"reviewed_by": "docs/examples/conv_bn.py"})


library = Library((region_pattern("conv-bn", ConvBN, operator="ConvBN"),))
result = fuse(Path(sys.argv[1]), Path("conv_bn.onnx"), library, Options(target="function"))
for node in ir.load("conv_bn.onnx").graph:
    if node.op_type == "ConvBN":
        print(f"{node.domain}.{node.op_type}, {node.attributes['filters'].value} filters")
for skip in result.skipped:
    print(f"left as it was: {skip.reason}")
print(result.verdict.verdict)
