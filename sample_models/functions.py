"""A network written in onnxscript, whose functions stay functions of the model and call each other.

torch's exporters inline everything; who writes a model in onnxscript, or registers operators that way, gets model-local functions
with attributes. `model` writes the network of `networks.Scripted` with its weights, so that torch can check the result.
onnxscript evaluates annotations, hence no postponed evaluation here.
"""

import math

import onnx
from onnx import numpy_helper
from onnxscript import FLOAT, script, values
from onnxscript import opset18 as op
from torch import nn

LAYERS = values.Opset("sample.layers", 1)
ROOT_TWO = math.sqrt(2.0)


@script(LAYERS)
def RmsNorm(x: FLOAT, weight: FLOAT, epsilon: float = 1e-6) -> FLOAT:  # noqa: N802
    """RMSNorm over the last axis: weight · x / sqrt(mean(x²) + epsilon)."""
    variance = op.ReduceMean(op.Pow(x, 2.0), [-1], keepdims=1)
    return weight * (x * op.Reciprocal(op.Sqrt(variance + epsilon)))


@script(LAYERS)
def ErfGelu(x: FLOAT) -> FLOAT:  # noqa: N802
    """Exact GELU, x · Φ(x), spelled out."""
    return 0.5 * x * (1.0 + op.Erf(x / ROOT_TWO))


@script(LAYERS)
def FeedForward(x: FLOAT, scale: FLOAT, weight: FLOAT, bias: FLOAT) -> FLOAT:  # noqa: N802
    """One layer: x + GELU(RMSNorm(x) @ weight + bias)."""
    y = op.MatMul(RmsNorm(x, scale, epsilon=1e-5), weight) + bias
    return x + ErfGelu(y)


def model(network: nn.Module) -> onnx.ModelProto:
    """The two layers of `networks.Scripted` as calls of `FeedForward`, in and out float32[batch, seq, 16]."""

    @script(default_opset=op)
    def scripted(x: FLOAT["batch", "seq", 16], s0, w0, b0, s1, w1, b1) -> FLOAT["batch", "seq", 16]:  # type: ignore[no-untyped-def]  # noqa: F821
        y = FeedForward(x, s0, w0, b0)
        output = FeedForward(y, s1, w1, b1)
        return output  # noqa: RET504  (the name becomes the model's output)

    result = scripted.to_model_proto()
    weights = [t for layer in network.layers for t in (layer.scale, layer.linear.weight.T, layer.linear.bias)]
    for name, weight in zip(("s0", "w0", "b0", "s1", "w1", "b1"), weights, strict=True):
        result.graph.initializer.append(numpy_helper.from_array(weight.detach().contiguous().numpy(), name))
    constant = [i for i in result.graph.input if i.name != "x"]
    for value in constant:
        result.graph.input.remove(value)
    return result
