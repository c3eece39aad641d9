"""Text models to partition, and the functions that run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.partitioning.choice import Partition, partition_model
from onnx_subgraph.partitioning.worth import RegionLimits
from tests.engine.backends import Scripted

SAMPLES = Path(__file__).parents[2] / "sample_models"

# Two equal layers, each with a weight of its own, around an operator in the middle.
LAYERS = """
<ir_version: 8, opset_import: ["" : 17]>
layers (float[batch, 4] x) => (float[batch, 4] y)
<float[4] w0 = {1.0, 2.0, 3.0, 4.0}, float[4] w1 = {4.0, 3.0, 2.0, 1.0}, float half = {0.5}>
{
  [layer_0_Mul] a = Mul (x, w0)
  [layer_0_Scale] b = Mul (a, half)
  [layer_0_Relu] c = Relu (b)
  [between] d = Softmax (c)
  [layer_1_Mul] e = Mul (d, w1)
  [layer_1_Scale] f = Mul (e, half)
  [layer_1_Relu] y = Relu (f)
}
"""


class Without(Scripted):
    """A backend that supports everything except some operators."""

    def __init__(self, *operators: str) -> None:
        super().__init__()
        self.operators = operators

    def supports(self, node: ir.Node) -> bool:
        return node.op_type not in self.operators


def parsed(text: str) -> ir.Model:
    model = ir.from_onnx_text(text)
    infer_shapes(model)
    return model


def parted(text: str, *without: str, limits: RegionLimits | None = None) -> Partition:
    return partition_model(parsed(text), Without(*without), limits or RegionLimits(min_nodes=1, max_crossing=9))


def engines_of(model: ir.Model) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type == "Engine"]


def run(model: ir.Model | str | Path, feeds: dict[str, Any]) -> list[Any]:
    """The outputs of plain onnxruntime."""
    source: Any = model
    if isinstance(model, ir.Model):
        source = ir.to_proto(model).SerializeToString()
    elif isinstance(model, str):
        source = onnx.parser.parse_model(model).SerializeToString()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    outputs: list[Any] = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"]).run(None, feeds)
    return outputs


def x(batch: int = 3) -> dict[str, Any]:
    return {"x": np.linspace(-2, 2, batch * 4, dtype=np.float32).reshape(batch, 4)}
