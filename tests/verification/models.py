"""Small text models, with right and wrong rewrites of them, for the tests to compare."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx_ir as ir


def write(path: Path, text: str, **weights: np.ndarray) -> Path:
    """Save a text model. `weights` become initializers, which the text uses by name and does not declare."""
    model = ir.from_onnx_text(text, [ir.tensor(array, name=name) for name, array in weights.items()])
    ir.save(model, path)
    return path


def weights(*shapes: tuple[int, ...], dtype: type = np.float32) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [(rng.standard_normal(shape) / np.sqrt(shape[0])).astype(dtype) for shape in shapes]


def block(
    activation: str = "exact",
    *,
    dtype: str = "float",
    epsilon: float = 1e-12,
    half: float = 0.5,
    scale: float = 0.125,
    swapped: bool = False,
    norm: str = "decomposed",
    layers: int = 3,
    ir_version: int = 8,
) -> str:
    """A stack of feed-forward blocks, `x + W2 gelu(W1 norm(x))`, in the requested spelling."""
    lines = []
    for i in range(layers):
        last, out = ("x" if i == 0 else f"y{i - 1}"), ("y" if i == layers - 1 else f"y{i}")
        if norm == "decomposed":
            lines += [
                f"m{i} = ReduceMean<axes=[-1]>({last})",
                f"d{i} = Sub({last}, m{i})",
                f"two{i} = Constant<value = {dtype} {{2.0}}>()",
                f"q{i} = Pow(d{i}, two{i})",
                f"v{i} = ReduceMean<axes=[-1]>(q{i})",
                f"e{i} = Constant<value = {dtype} {{{epsilon}}}>()",
                f"ve{i} = Add(v{i}, e{i})",
                f"s{i} = Sqrt(ve{i})",
                f"n{i} = Div(d{i}, s{i})",
                f"g{i} = Mul(n{i}, gain)",
            ]
        else:
            lines += [f"g{i} = LayerNormalization<epsilon={epsilon}>({last}, gain)"]
        lines += [f"h{i} = MatMul(g{i}, w1)", f"half{i} = Constant<value = {dtype} {{{half}}}>()"]
        lines += [f"one{i} = Constant<value = {dtype} {{1.0}}>()"]
        if activation == "exact":
            lines += [
                f"r{i} = Constant<value = {dtype} {{1.4142135}}>()",
                f"a{i} = Div(h{i}, r{i})",
                f"er{i} = Erf(a{i})",
            ]
        elif activation == "tanh":
            lines += [
                f"c{i} = Constant<value = {dtype} {{0.044715}}>()",
                f"k{i} = Constant<value = {dtype} {{0.7978845608}}>()",
                f"h2{i} = Mul(h{i}, h{i})",
                f"h3{i} = Mul(h2{i}, h{i})",
                f"ch{i} = Mul(h3{i}, c{i})",
                f"in{i} = Add(h{i}, ch{i})",
                f"ki{i} = Mul(in{i}, k{i})",
                f"er{i} = Tanh(ki{i})",
            ]
        if activation == "fused":
            lines += [f"u{i} = com.microsoft.Gelu(h{i})"]
        else:
            lines += [f"p{i} = Add(er{i}, one{i})", f"hp{i} = Mul(h{i}, p{i})", f"u{i} = Mul(hp{i}, half{i})"]
        first, second = (f"z{i}", last) if swapped else (last, f"z{i}")
        lines += [f"z0{i} = MatMul(u{i}, w2)", f"sc{i} = Constant<value = {dtype} {{{scale}}}>()", f"z{i} = Mul(z0{i}, sc{i})"]
        lines += [f"{out} = Sub({first}, {second})"]
    body = "\n".join(lines)
    if dtype == "float16":  # the text form has no float16 literals
        literal = r"(\w+) = Constant<value = float16 (\{.*\})>\(\)"
        body = re.sub(literal, r"\1_wide = Constant<value = float \2>()\n\1 = Cast<to = 10>(\1_wide)", body)
    opsets = '"" : 17, "com.microsoft" : 1'
    header = f"<ir_version: {ir_version}, opset_import: [{opsets}]>"
    return f"{header}\nblock ({dtype}[batch, seq, 32] x) => ({dtype}[batch, seq, 32] y) {{\n{body}\n}}"
