"""Torch modules of three layers with an activation, normalization, attention or gate that no pattern of the catalogue knows.

Where the unit has a parameter, each layer has its own, and products with weights surround the unit. The unit is the submodule
`unit` of its layer, so the module paths that exporters record say which nodes belong to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

WIDTH, HEADS, LAYERS = 64, 4, 3


class SquaredReluGate(nn.Module):
    """relu(a)² · b for the two halves of x."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return torch.relu(a) ** 2 * b


class ReGlu(nn.Module):
    """relu(a) · b (Shazeer 2020)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return torch.relu(a) * b


class TanhGate(nn.Module):
    """tanh(a) · σ(b), the gate of WaveNet (van den Oord et al. 2016)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return torch.tanh(a) * torch.sigmoid(b)


class ScaleNorm(nn.Module):
    """g · x / max(|x|, ε) (Nguyen and Salazar 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(1) + WIDTH**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.gain / x.norm(dim=-1, keepdim=True).clamp(min=1e-5))


class MeanNorm(nn.Module):
    """g · x / (mean |x| + ε)."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gain * x / (x.abs().mean(-1, keepdim=True) + 1e-5)


class Snake(nn.Module):
    """x + sin²(a x) / a (Ziyin et al. 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.frequency = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.sin(self.frequency * x) ** 2 / (self.frequency + 1e-9)


class StarRelu(nn.Module):
    """s · relu(x)² + b (Yu et al. 2022)."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.rand(1) + 0.5), nn.Parameter(torch.rand(1) - 0.7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * torch.relu(x) ** 2 + self.bias


class TanhExp(nn.Module):
    """x · tanh(exp(x)) (Liu and Di 2020)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tanh(torch.exp(x))


class GatedResidual(nn.Module):
    """σ(g) · x + (1 - σ(g)) · y for three parts of its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        g, a, b = x.chunk(3, -1)
        gate = torch.sigmoid(g)
        return gate * a + (1 - gate) * b


class Heads(nn.Module):
    """Attention over heads; the projected queries, keys and values are in one tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (y.reshape(batch, length, HEADS, width // 3 // HEADS).transpose(1, 2) for y in x.chunk(3, -1))
        return self.attend(q, k, v).transpose(1, 2).reshape(batch, length, width // 3)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class TalkingHeads(Heads):
    """Attention whose scores and weights are mixed across heads (Shazeer et al. 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = (nn.Parameter(torch.randn(HEADS, HEADS)) for _ in range(2))

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        weights = (scores.permute(0, 2, 3, 1) @ self.before).permute(0, 3, 1, 2).softmax(-1)
        return (weights.permute(0, 2, 3, 1) @ self.after).permute(0, 3, 1, 2) @ v


class CosineAttention(Heads):
    """Attention of normalized queries and keys, with a temperature of its own (Liu et al. 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.rand(1) + 5)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k = (x / (x.pow(2).sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
        return (self.temperature * (q @ k.transpose(-1, -2))).softmax(-1) @ v


class LinearAttention(Heads):
    """φ(Q) (φ(K)ᵀ V) / (φ(Q) Σ φ(K)) with φ = elu + 1 (Katharopoulos et al. 2020)."""

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k = (torch.nn.functional.elu(x) + 1 for x in (q, k))
        return (q @ (k.transpose(-1, -2) @ v)) / ((q * k.sum(2, keepdim=True)).sum(-1, keepdim=True) + 1e-6)


UNITS: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    "squared-relu-gate": (SquaredReluGate, 2, 1),
    "re-glu": (ReGlu, 2, 1),
    "tanh-gate": (TanhGate, 2, 1),
    "scale-norm": (ScaleNorm, 1, 1),
    "mean-norm": (MeanNorm, 1, 1),
    "snake": (Snake, 1, 1),
    "star-relu": (StarRelu, 1, 1),
    "tanh-exp": (TanhExp, 1, 1),
    "gated-residual": (GatedResidual, 3, 1),
    "talking-heads": (TalkingHeads, 3, 1),
    "cosine-attention": (CosineAttention, 3, 1),
    "linear-attention": (LinearAttention, 3, 1),
}
"""Name → the unit, and the widths of its input and output in multiples of `WIDTH`."""


class Layer(nn.Module):
    """x + W₂ unit(W₁ norm(x)), then a GELU layer, which the catalogue covers."""

    def __init__(self, name: str) -> None:
        super().__init__()
        make, reads, gives = UNITS[name]
        self.norm, self.inner = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.into, self.out = nn.Linear(WIDTH, reads * WIDTH), nn.Linear(gives * WIDTH, WIDTH)
        self.up, self.down, self.gelu = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH), nn.GELU()
        self.unit = make()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.out(self.unit(self.into(self.norm(x))))
        return x + self.down(self.gelu(self.up(self.inner(x))))


class Network(nn.Module):
    """Layers with one kind of unit."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(name) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x
