"""Exports layers and blocks of Flax and JAX by jax2onnx. Run it with a Python that has them.

    pip install jax2onnx flax
    python benchmarks/exporters_flax.py FOLDER

Each network becomes FOLDER/jax_NAME.onnx, beside a file .json with the operators that it calls.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from flax import nnx
from jax2onnx import to_onnx

RANDOM = nnx.Rngs(0)
WIDTH, HEADS, SIZE = 32, 4, 8


class Encoder(nnx.Module):
    """A block of an encoder: normalization, attention, feed-forward layer."""

    def __init__(self, norm: Any = nnx.LayerNorm, act: Callable[..., Any] = jax.nn.gelu, *, causal: bool = False) -> None:
        self.norms = nnx.List([norm(WIDTH, rngs=RANDOM) for _ in range(2)])
        self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=RANDOM, deterministic=True)
        self.wide, self.narrow = nnx.Linear(WIDTH, 64, rngs=RANDOM), nnx.Linear(64, WIDTH, rngs=RANDOM)
        self.act, self.causal = act, causal

    def __call__(self, x: Any) -> Any:
        mask = nnx.make_causal_mask(jnp.ones(x.shape[:2])) if self.causal else None
        x = x + self.attention(self.norms[0](x), mask=mask)
        return x + self.narrow(self.act(self.wide(self.norms[1](x))))


class Decoder(nnx.Module):
    """A block like Llama's: RMSNorm, rotary embedding, few heads of keys, SwiGLU. written: attention is written out."""

    def __init__(self, *, written: bool = False) -> None:
        self.norms = nnx.List([nnx.RMSNorm(WIDTH, rngs=RANDOM) for _ in range(2)])
        self.query, self.out = (nnx.Linear(WIDTH, WIDTH, use_bias=False, rngs=RANDOM) for _ in range(2))
        self.key, self.value = (nnx.Linear(WIDTH, WIDTH // 2, use_bias=False, rngs=RANDOM) for _ in range(2))
        self.gate, self.up = (nnx.Linear(WIDTH, 64, use_bias=False, rngs=RANDOM) for _ in range(2))
        self.down = nnx.Linear(64, WIDTH, use_bias=False, rngs=RANDOM)
        self.written = written

    def attention(self, x: Any) -> Any:
        batch, length, _ = x.shape
        query = rotated(self.query(x).reshape(batch, length, HEADS, SIZE))
        key = rotated(self.key(x).reshape(batch, length, HEADS // 2, SIZE))
        value = self.value(x).reshape(batch, length, HEADS // 2, SIZE)
        if not self.written:
            return self.out(jax.nn.dot_product_attention(query, key, value, is_causal=True).reshape(batch, length, WIDTH))
        query, key, value = (a.transpose(0, 2, 1, 3) for a in (query, jnp.repeat(key, 2, axis=2), jnp.repeat(value, 2, axis=2)))
        scores = jnp.where(jnp.tril(jnp.ones((length, length))) == 0, -jnp.inf, query @ key.swapaxes(-1, -2) / np.sqrt(SIZE))
        return self.out((jax.nn.softmax(scores, -1) @ value).transpose(0, 2, 1, 3).reshape(batch, length, WIDTH))

    def __call__(self, x: Any) -> Any:
        x = x + self.attention(self.norms[0](x))
        h = self.norms[1](x)
        return x + self.down(jax.nn.silu(self.gate(h)) * self.up(h))


class ConvNeXt(nnx.Module):
    """A block of ConvNeXt, channels last."""

    def __init__(self) -> None:
        self.conv = nnx.Conv(8, 8, (7, 7), feature_group_count=8, rngs=RANDOM)
        self.norm = nnx.LayerNorm(8, rngs=RANDOM)
        self.wide, self.narrow = nnx.Linear(8, 32, rngs=RANDOM), nnx.Linear(32, 8, rngs=RANDOM)

    def __call__(self, x: Any) -> Any:
        return x + self.narrow(jax.nn.gelu(self.wide(self.norm(self.conv(x))), approximate=False))


def rotated(x: Any) -> Any:
    """The rotary embedding of [batch, length, heads, size], by halves."""
    angles = np.outer(np.arange(x.shape[1]), 1 / 10000 ** (np.arange(0, SIZE, 2) / SIZE))
    cos, sin = (f(angles)[None, :, None, :].astype(np.float32) for f in (np.cos, np.sin))
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def rotated_by_turning(x: Any) -> Any:
    """The same, as x · cos + turned · sin."""
    angles = np.outer(np.arange(x.shape[1]), 1 / 10000 ** (np.arange(0, SIZE, 2) / SIZE))
    cos, sin = (np.tile(f(angles), 2)[None, :, None, :].astype(np.float32) for f in (np.cos, np.sin))
    first, second = jnp.split(x, 2, axis=-1)
    return x * cos + jnp.concatenate([-second, first], -1) * sin


def masked(query: Any, key: Any, value: Any, mask: Any) -> Any:
    """Attention with a mask."""
    return jax.nn.dot_product_attention(query, key, value, mask=mask)


def with_bias(x: Any, bias: Any) -> Any:
    """T5's attention: no scale, a bias by position."""
    heads = x.reshape(*x.shape[:2], HEADS, SIZE)
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", heads, heads) + bias, -1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, heads)


def norm_by_hand(x: Any) -> Any:
    """LayerNorm without weights, of means and variances."""
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def root_mean_square(x: Any) -> Any:
    """RMSNorm without a weight."""
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


ROWS, HEADED = ("B", 16, WIDTH), (2, 16, HEADS, SIZE)
MASK = jax.ShapeDtypeStruct((2, 1, 16, 16), jnp.bool_)
NETWORKS: dict[str, tuple[Callable[..., Any], list[Any], dict[str, int]]] = {
    "encoder": (Encoder(), [ROWS], {"attention": 1, "LayerNorm": 2, "GELU": 1}),
    "encoder_causal": (Encoder(causal=True), [(2, 16, WIDTH)], {"attention": 1, "LayerNorm": 2, "GELU": 1}),
    "encoder_rms": (Encoder(nnx.RMSNorm, jax.nn.silu), [ROWS], {"attention": 1, "RMSNorm": 2, "SiLU": 1}),
    "decoder": (Decoder(), [ROWS], {"attention": 1, "rotary": 2, "RMSNorm": 2, "SiLU": 1}),
    "decoder_written": (Decoder(written=True), [(2, 16, WIDTH)], {"attention": 1, "rotary": 2, "RMSNorm": 2, "SiLU": 1}),
    "convnext": (ConvNeXt(), [(2, 16, 16, 8)], {"LayerNorm": 1, "GELU": 1}),
    "masked": (masked, [*(jax.ShapeDtypeStruct(HEADED, jnp.float32) for _ in range(3)), MASK], {"attention": 1}),
    "with_bias": (with_bias, [(2, 16, WIDTH), (1, HEADS, 16, 16)], {"attention": 1}),
    "few_heads": (jax.nn.dot_product_attention, [(2, 16, 8, 8), (2, 16, 2, 8), (2, 16, 2, 8)], {"attention": 1}),
    "rotated": (rotated, [HEADED], {"rotary": 1}),
    "rotated_by_turning": (rotated_by_turning, [HEADED], {"rotary": 1}),
    "norm_by_hand": (norm_by_hand, [(2, 16, WIDTH)], {"LayerNorm": 1}),
    "standardize": (jax.nn.standardize, [(2, 16, WIDTH)], {"LayerNorm": 1}),
    "root_mean_square": (root_mean_square, [(2, 16, WIDTH)], {"RMSNorm": 1}),
}


def main(folder: Path) -> None:
    """Export everything."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (network, inputs, called) in NETWORKS.items():
        onnx.save(to_onnx(network, inputs), folder / f"jax_{name}.onnx")
        (folder / f"jax_{name}.json").write_text(json.dumps(called), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
