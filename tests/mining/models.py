"""Text models with layers that contain units without a pattern."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx

Layer = Callable[[int, str], str]
"""From the number of a layer and the value that it reads to its nodes; the last one gives `z<number>`."""


def spelled(n: int, x: str) -> str:
    """x + sin(a x)² / b, node by node, with its own number in each layer."""
    return f"m{n} = Mul ({x}, a{n}) s{n} = Sin (m{n}) q{n} = Pow (s{n}, two) d{n} = Div (q{n}, b{n}) z{n} = Add ({x}, d{n})"


def otherwise(n: int, x: str) -> str:
    """The same computation as `spelled`, in another spelling."""
    return (
        f"m{n} = Mul (a{n}, {x}) i{n} = Identity (m{n}) s{n} = Sin (i{n}) q{n} = Mul (s{n}, s{n}) "
        f"r{n} = Reciprocal (b{n}) d{n} = Mul (r{n}, q{n}) z{n} = Sum (d{n}, {x})"
    )


def network(*layers: Layer) -> str:
    """Layers, each after a product with a weight."""
    numbers = ", ".join(f"float a{n} = {{{n + 1.5}}}, float b{n} = {{{n + 2.25}}}" for n in range(len(layers)))
    text, value = "", "x"
    for n, layer in enumerate(layers):
        text += f"  p{n} = MatMul ({value}, w) {layer(n, f'p{n}')}\n"
        value = f"z{n}"
    weight = "w = ConstantOfShape <value = float[1] {0.01}> (shape)"
    return (
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        f"net (float[batch, 64] x) => (float[batch, 64] y) <int64[2] shape = {{64, 64}}, float two = {{2}}, {numbers}> {{\n"
        f"  {weight}\n{text}  y = MatMul ({value}, w)\n}}"
    )


def saved(path: Path, text: str) -> Path:
    model = onnx.parser.parse_model(text)
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    onnx.save(model, path)
    return path
