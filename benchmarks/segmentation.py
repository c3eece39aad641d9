"""Makes a U²-Net in float16, the kind of network that cuts the foreground out of a photograph: `make_segmentation(folder)`.

It has the blocks of the published network (X. Qin et al., "U²-Net: Going deeper with nested U-structure for salient object
detection", Pattern Recognition 106, 2020) with 44 million random weights, and an input of 1024 by 1024 pixels. Batch
normalizations are folded into the convolutions, as exporters do.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

SIZE = 1024
"""Pixels along each side of the input."""
ENCODER = ((7, 64, 32, 64), (6, 64, 32, 128), (5, 128, 64, 256), (4, 256, 128, 512))
"""The depth of each block that halves its input, and the channels that it reads, has inside and yields."""
DILATED = ((512, 256, 512), (512, 256, 512))
"""The channels of the blocks after these, which are dilated and halve nothing."""
DECODER = ((4, 1024, 128, 256), (5, 512, 64, 128), (6, 256, 32, 64), (7, 128, 16, 64))
"""The blocks that read the result of the block before, doubled, beside that of the encoder."""


class Network:
    """A graph under construction. Values are names."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._draw = np.random.default_rng(0)

    def add(self, operator: str, *inputs: str, **attributes: object) -> str:
        """Append a node; its only output."""
        result = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [result], name=f"{operator}_{len(self.nodes)}", **attributes))
        return result

    def constant(self, array: np.ndarray) -> str:
        """A weight."""
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def convolution(self, x: str, read: int, made: int, dilation: int = 1, stride: int = 1) -> str:
        """A convolution of 3 by 3 that keeps the size of values as He's initialization does."""
        weight = self._draw.normal(size=(made, read, 3, 3)) * (2 / (9 * read)) ** 0.5
        bias = self._draw.normal(size=made) * 0.1
        names = [self.constant(array.astype(np.float16)) for array in (weight, bias)]
        return self.add("Conv", x, *names, pads=[dilation] * 4, dilations=[dilation] * 2, strides=[stride] * 2)

    def unit(self, x: str, read: int, made: int, dilation: int = 1) -> str:
        """A convolution and a Relu."""
        return self.add("Relu", self.convolution(x, read, made, dilation))

    def halved(self, x: str) -> str:
        """Half the pixels along each side."""
        return self.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])

    def enlarged(self, x: str, times: int = 2) -> str:
        """`times` the pixels along each side."""
        return self.add("Resize", x, "", self.constant(np.array([1, 1, times, times], np.float32)), mode="linear")

    def beside(self, one: str, other: str) -> str:
        """The channels of both."""
        return self.add("Concat", one, other, axis=1)

    def nested(self, x: str, depth: int, read: int, inside: int, made: int) -> str:
        """A block that is a small U itself."""
        first = self.unit(x, read, made)
        levels = [self.unit(first, made, inside)]
        for _ in range(depth - 2):
            levels.append(self.unit(self.halved(levels[-1]), inside, inside))
        y = self.unit(levels[-1], inside, inside, dilation=2)
        for number, level in enumerate(reversed(levels)):
            y = self.unit(
                self.beside(self.enlarged(y) if number else y, level), 2 * inside, made if level is levels[0] else inside
            )
        return self.add("Add", y, first)

    def dilated(self, x: str, read: int, inside: int, made: int) -> str:
        """A block of the same shape, with dilations in place of the smaller levels."""
        first = self.unit(x, read, made)
        levels = [self.unit(first, made, inside)]
        for dilation in (2, 4):
            levels.append(self.unit(levels[-1], inside, inside, dilation))
        y = self.unit(levels[-1], inside, inside, 8)
        for dilation, level in zip((4, 2, 1), reversed(levels), strict=True):
            y = self.unit(self.beside(y, level), 2 * inside, made if dilation == 1 else inside, dilation)
        return self.add("Add", y, first)


def make_segmentation(folder: Path) -> Path:
    """The model file `segmentation.onnx` in the folder."""
    network = Network()
    x = network.convolution(network.add("Cast", "x", to=onnx.TensorProto.FLOAT16), 3, 64, stride=2)
    levels: list[tuple[str, int]] = []
    for depth, *channels in ENCODER:
        levels.append((network.nested(x, depth, *channels), channels[-1]))
        x = network.halved(levels[-1][0])
    for number, channels in enumerate(DILATED):
        levels.append((network.dilated(x, *channels), channels[-1]))
        x = network.halved(levels[-1][0]) if number == 0 else levels[-1][0]
    results = [levels[-1]]
    for number, (skip, read) in enumerate(reversed(levels[:-1])):
        both = network.beside(network.enlarged(results[-1][0]), skip)
        if number == 0:
            results.append((network.dilated(both, 2 * read, 256, 512), 512))
        else:
            depth, *channels = DECODER[number - 1]
            results.append((network.nested(both, depth, *channels), channels[-1]))
    outputs = []
    for times, (value, channels) in zip((64, 32, 16, 8, 4, 2), results, strict=True):
        mask = network.enlarged(network.convolution(value, channels, 1), times)
        outputs.append(network.add("Cast", network.add("Sigmoid", mask), to=onnx.TensorProto.FLOAT))
    shape = [1, 3, SIZE, SIZE]
    graph = helper.make_graph(
        network.nodes,
        "segmentation",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1, SIZE, SIZE]) for name in reversed(outputs)],
        network.weights,
    )
    path = folder / "segmentation.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
