"""Patterns with a planted error, and a stack of layers in which only some sites show it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.verification.models import weights, write

NORM = """
id: forgetful-norm
summary: A LayerNormalization that forgets its own epsilon
match: |
  d = x - ReduceMean(x, axes=[-1])
  y = d / Sqrt(ReduceMean(d ** 2, axes=[-1]) + _) * scale
replace:
  standard: y = LayerNormalization(x, scale, axis=-1, epsilon=1e-5)
example: {x: "float32[2, 3, 8]", scale: "float32[8]"}
"""
LINEAR = """
id: forgetful-linear
summary: The same, and the MatMul behind it
match: |
  d = x - ReduceMean(x, axes=[-1])
  y = MatMul(d / Sqrt(ReduceMean(d ** 2, axes=[-1]) + _) * scale, w)
replace:
  standard: y = MatMul(LayerNormalization(x, scale, axis=-1, epsilon=1e-5), w)
example: {x: "float32[2, 3, 8]", scale: "float32[8]", w: "float32[8, 8]"}
"""
GELU = """
id: sloppy-gelu
summary: A GELU that is replaced by its approximation with tanh
match: |
  y = 0.5 * x * (1 + Erf(x / sqrt(2)))
replace:
  onnxruntime: y = com.microsoft.FastGelu(x)
example: {x: "float32[2, 8]"}
"""
TWICE = """
id: forgetful-twice
summary: A normalization that forgets its own epsilon, and then one that has `{epsilon}`
match: |
  d = x - ReduceMean(x, axes=[-1])
  y = d / Sqrt(ReduceMean(d ** 2, axes=[-1]) + eps) * scale
let: own = {epsilon}
replace:
  onnxruntime: y = SimplifiedLayerNormalization(x - ReduceMean(x, axes=[-1]), scale, axis=-1, epsilon=1e-5)
  standard: y = LayerNormalization(x, scale, axis=-1, epsilon=own)
example: {{x: "float32[2, 3, 8]", scale: "float32[8]", eps: 1e-5}}
"""
SOFTPLUS = """
id: steady-softplus
summary: A Softplus that is right where its own definition overflows
match: |
  y = Log(1 + Exp(x))
replace:
  standard: y = Softplus(x)
example: {x: "float32[2, 8]"}
"""
LATE = """
id: late-gelu
summary: A GELU that is replaced by its approximation with tanh, which opset 20 brought
match: |
  y = 0.5 * x * (1 + Erf(x / sqrt(2)))
replace:
  standard: y = Gelu(x, approximate="tanh")
example: {x: "float32[2, 8]"}
"""
SOFT = """
id: soft
summary: A Softplus that is replaced by a GELU, which opset 20 brought, or by Softplus
match: |
  y = Log(1 + Exp(x))
replace:
  onnxruntime: y = Gelu(x)
  standard: y = Softplus(x)
example: {x: "float32[2, 8]"}
"""

FLAT = """
id: flat-{name}
summary: {name} of three axes, for four
match: |
  y = {formula}
where:
  - x.rank == 4
let: |
  heads = x.shape[1]
replace:
  onnxruntime: |
    flat = com.microsoft.{operator}(rearrange(x, "b h s d -> b s (h d)"){rest})
    y = rearrange(flat, "b s (h d) -> b h s d", h=heads)
example: {{x: "float32[2, 3, 4, 5]"}}
"""

LAYER = """
  m{i} = ReduceMean <axes = [-1]> (x{i})
  d{i} = Sub (x{i}, m{i})
  q{i} = Mul (d{i}, d{i})
  v{i} = ReduceMean <axes = [-1]> (q{i})
  eps{i} = Constant <value = float {{{epsilon}}}> ()
  e{i} = Add (v{i}, eps{i})
  s{i} = Sqrt (e{i})
  n{i} = Div (d{i}, s{i})
  g{i} = Mul (n{i}, gain)
  h{i} = MatMul (g{i}, w)
  r{i} = Div (h{i}, root)
  f{i} = Erf (r{i})
  a{i} = Add (f{i}, one)
  p{i} = Mul (h{i}, a{i})
  u{i} = Mul (p{i}, half)
  x{j} = Add (x{i}, u{i})
"""


def patterns(folder: Path, *texts: str) -> Path:
    """A pack of these patterns."""
    home = folder / "pack" / "planted"
    home.mkdir(parents=True)
    for text in texts:
        (home / (text.split()[1].replace("-", "_") + ".yaml")).write_text(text.lstrip(), encoding="utf-8")
    return folder / "pack"


def layers(path: Path, epsilons: Sequence[float], end: str = "Identity") -> Path:
    """One layer of LayerNormalization, MatMul and GELU for each epsilon, then the operator `end`."""
    body = "".join(LAYER.format(i=i, j=i + 1, epsilon=epsilon) for i, epsilon in enumerate(epsilons))
    gain, w = weights((8,), (8, 8))
    text = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    layers (float[batch, 8] x0) => (float[batch, 8] y)
    <float root = {{1.4142135}}, float one = {{1.0}}, float half = {{0.5}}> {{ {body} y = {end} (x{len(epsilons)}) }}
    """
    return write(path, text, gain=gain, w=w)


BRANCH = """
<ir_version: 8, opset_import: ["" : 17]>
branch (float[batch, 8] x) => (float[batch, 8] y)
<float low = {-100.0}, float root = {1.4142135}, float one = {1.0}, float half = {0.5}>
{
  least = ReduceMin <keepdims = 0> (x)
  above = Greater (least, low)
  z = If (above) <
    then_branch = then () => (float[batch, 8] u) {
      r = Div (x, root)
      f = Erf (r)
      a = Add (f, one)
      p = Mul (x, a)
      u = Mul (p, half)
    },
    else_branch = otherwise () => (float[batch, 8] v) { v = Neg (x) }
  >
  n = Neg (z)
  r1 = Div (n, root)
  f1 = Erf (r1)
  a1 = Add (f1, one)
  p1 = Mul (n, a1)
  y = Mul (p1, half)
}
"""
