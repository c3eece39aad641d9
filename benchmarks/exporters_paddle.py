"""Exports networks of PaddlePaddle by paddle2onnx. Run it with a Python that has them.

    pip install paddlepaddle paddle2onnx setuptools packaging
    python benchmarks/exporters_paddle.py FOLDER

Each network has random weights, and becomes FOLDER/paddle_NAME.onnx, beside a file .json with the operators that it calls.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import paddle
import paddle2onnx
from paddle import nn
from paddle.nn import functional
from paddle.static import InputSpec

WORDS, WIDTH, HEADS, OPSET = 100, 64, 4, 17
HEAD = WIDTH // HEADS
TOKENS = InputSpec([None, None], "int64", "ids")
VALUES = InputSpec([None, None, WIDTH], "float32", "x")
IMAGE = InputSpec([None, 3, 32, 32], "float32", "image")


def encoder_layer(*, normalize_before: bool = False) -> Any:
    """A layer of an encoder, of Paddle's own."""
    return nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, activation="gelu", normalize_before=normalize_before)


class Encoder(nn.Layer):
    """An encoder of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.TransformerEncoder(encoder_layer(), 2)

    def forward(self, x: Any) -> Any:
        """The values after both layers."""
        return self.layers(x)


class Ernie(nn.Layer):
    """ERNIE, or BERT: embeddings of words, positions and segments, a mask of padding, two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions, self.segments = (nn.Embedding(size, WIDTH) for size in (WORDS, 64, 4))
        self.norm = nn.LayerNorm(WIDTH)
        self.layers = nn.TransformerEncoder(encoder_layer(), 2)
        self.pool = nn.Linear(WIDTH, WIDTH)

    def forward(self, ids: Any) -> Any:
        """The pooled first token."""
        mask = paddle.unsqueeze((ids == 0).astype("float32") * -1e4, axis=[1, 2])
        ones = paddle.ones_like(ids)
        places = paddle.cumsum(ones, axis=1) - ones
        x = self.norm(self.words(ids) + self.positions(places) + self.segments(paddle.zeros_like(ids)))
        return paddle.tanh(self.pool(self.layers(x, mask)[:, 0]))


class Translator(nn.Layer):
    """An encoder and a decoder of one layer each."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Transformer(WIDTH, HEADS, 1, 1, 2 * WIDTH)

    def forward(self, x: Any, y: Any) -> Any:
        """The values after the decoder."""
        return self.layers(x, y)


class RootMeanSquare(nn.Layer):
    """RMSNorm written by hand, as in PaddleNLP's language models."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([WIDTH], default_initializer=nn.initializer.Uniform(0.5, 1.5))

    def forward(self, x: Any) -> Any:
        """The normalized values."""
        variance = x.astype("float32").pow(2).mean(-1, keepdim=True)
        return paddle.rsqrt(variance + 1e-6) * x * self.weight


def turned(x: Any, cos: Any, sin: Any) -> Any:
    """The rotary embedding of x, whose halves are turned."""
    half = x.shape[-1] // 2
    return x * cos + paddle.concat([-x[..., half:], x[..., :half]], axis=-1) * sin


class Language(nn.Layer):
    """A language model of two layers, with rotary embeddings. keys: the heads of keys and values.

    by_hand: attention is written out, not `scaled_dot_product_attention`.
    """

    def __init__(self, keys: int = HEADS, *, by_hand: bool = True) -> None:
        super().__init__()
        self.keys, self.by_hand = keys, by_hand
        self.words = nn.Embedding(WORDS, WIDTH)
        sizes = {"q": WIDTH, "k": HEAD * keys, "v": HEAD * keys, "o": WIDTH, "gate": 2 * WIDTH, "up": 2 * WIDTH}
        self.linear = nn.LayerList(
            nn.LayerDict({name: nn.Linear(WIDTH, size, bias_attr=False) for name, size in sizes.items()}) for _ in range(2)
        )
        self.down = nn.LayerList(nn.Linear(2 * WIDTH, WIDTH, bias_attr=False) for _ in range(2))
        self.norms = nn.LayerList(RootMeanSquare() for _ in range(5))
        rates = 1.0 / (10000 ** (paddle.arange(0, HEAD, 2, dtype="float32") / HEAD))
        angles = paddle.einsum("i,j->ij", paddle.arange(64, dtype="float32"), rates)
        angles = paddle.concat([angles, angles], axis=-1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids: Any) -> Any:
        """The values after both layers."""
        batch, length = paddle.shape(ids)[0], paddle.shape(ids)[1]
        places = paddle.arange(length, dtype="int64").expand([batch, length])
        cos, sin = (table[places].unsqueeze(2) for table in (self.cos, self.sin))
        seen = paddle.tril(paddle.ones([length, length], dtype="bool")).unsqueeze([0, 1])
        mask = paddle.where(seen, paddle.zeros([1], "float32"), paddle.full([1], -3e38, "float32"))
        x = self.words(ids)
        for index, linear in enumerate(self.linear):
            x = x + self.attention(linear, self.norms[2 * index](x), cos, sin, mask)
            h = self.norms[2 * index + 1](x)
            x = x + self.down[index](functional.silu(linear["gate"](h)) * linear["up"](h))
        return self.norms[4](x)

    def attention(self, linear: Any, x: Any, cos: Any, sin: Any, mask: Any) -> Any:
        """Attention of one layer."""
        q = turned(linear["q"](x).reshape([0, 0, HEADS, HEAD]), cos, sin)
        k = turned(linear["k"](x).reshape([0, 0, self.keys, HEAD]), cos, sin)
        v = linear["v"](x).reshape([0, 0, self.keys, HEAD])
        if self.keys != HEADS:
            times = [1, 1, 1, HEADS // self.keys, 1]
            k, v = (shared.unsqueeze(-2).tile(times).reshape([0, 0, HEADS, HEAD]) for shared in (k, v))
        if self.by_hand:
            q, k, v = (heads.transpose([0, 2, 1, 3]) for heads in (q, k, v))
            scores = functional.softmax(paddle.matmul(q / HEAD**0.5, k.transpose([0, 1, 3, 2])) + mask, axis=-1)
            made = paddle.matmul(scores, v).transpose([0, 2, 1, 3])
        else:
            made = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return linear["o"](made.reshape([0, 0, WIDTH]))


class Roformer(nn.Layer):
    """Attention whose queries and keys are turned in pairs of neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.LayerList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        rates = 1.0 / (10000 ** (paddle.arange(0, HEAD, 2, dtype="float32") / HEAD))
        angles = paddle.einsum("i,j->ij", paddle.arange(64, dtype="float32"), rates)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x: Any) -> Any:
        """The joined heads."""
        length = paddle.shape(x)[1]
        cos, sin = self.cos[:length], self.sin[:length]
        q, k, v = (linear(x).reshape([0, 0, HEADS, HEAD]).transpose([0, 2, 1, 3]) for linear in self.linear)
        q, k = (
            paddle.stack([one * cos - other * sin, one * sin + other * cos], axis=-1).flatten(-2, -1)
            for one, other in ((h[..., 0::2], h[..., 1::2]) for h in (q, k))
        )
        scores = functional.softmax(paddle.matmul(q, k, transpose_y=True) * HEAD**-0.5)
        return paddle.matmul(scores, v).transpose([0, 2, 1, 3]).reshape([0, 0, WIDTH])


class Vision(nn.Layer):
    """A vision transformer of two layers, with a class token and one projection of queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2D(3, WIDTH, 8, 8)
        self.token, self.places = (
            self.create_parameter([1, n, WIDTH], default_initializer=nn.initializer.Uniform(-1, 1)) for n in (1, 17)
        )
        self.norms = nn.LayerList(nn.LayerNorm(WIDTH) for _ in range(5))
        self.qkv, self.out, self.up, self.down = (
            nn.LayerList(nn.Linear(*sizes) for _ in range(2))
            for sizes in ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 2 * WIDTH), (2 * WIDTH, WIDTH))
        )

    def forward(self, image: Any) -> Any:
        """The class token after both layers."""
        batch = paddle.shape(image)[0]
        x = self.patches(image).flatten(2).transpose([0, 2, 1])
        x = paddle.concat([self.token.expand([batch, -1, -1]), x], axis=1) + self.places
        for index in range(2):
            parts = self.qkv[index](self.norms[2 * index](x)).reshape([-1, 17, 3, HEADS, HEAD]).transpose([2, 0, 3, 1, 4])
            q, k, v = parts[0], parts[1], parts[2]
            scores = functional.softmax(q.matmul(k.transpose([0, 1, 3, 2])) * HEAD**-0.5, axis=-1)
            x = x + self.out[index](scores.matmul(v).transpose([0, 2, 1, 3]).reshape([-1, 17, WIDTH]))
            x = x + self.down[index](functional.gelu(self.up[index](self.norms[2 * index + 1](x))))
        return self.norms[4](x)[:, 0]


ENCODED = {"attention": 2, "LayerNorm": 4, "GELU": 2}
SPOKEN = {"attention": 2, "rotary": 4, "RMSNorm": 5, "SiLU": 2}
NETWORKS: dict[str, tuple[Callable[[], Any], list[InputSpec], dict[str, int]]] = {
    "encoder": (Encoder, [VALUES], ENCODED),
    "ernie": (Ernie, [TOKENS], {**ENCODED, "LayerNorm": 5}),
    "translator": (Translator, [VALUES, InputSpec([None, None, WIDTH], "float32", "y")], {"attention": 3, "LayerNorm": 7}),
    "language": (Language, [TOKENS], SPOKEN),
    "language_grouped": (lambda: Language(2), [TOKENS], SPOKEN),
    "language_sdpa": (lambda: Language(by_hand=False), [TOKENS], SPOKEN),
    "roformer": (Roformer, [VALUES], {"attention": 1, "rotary": 2}),
    "vision": (Vision, [IMAGE], {**ENCODED, "LayerNorm": 5}),
}


def export(network: Any, inputs: list[InputSpec], path: Path) -> None:
    """Write the network. paddle2onnx does not sign its models."""
    network.eval()
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/program"
        paddle.jit.save(paddle.jit.to_static(network, input_spec=inputs, full_graph=True), program, input_spec=inputs)
        paddle2onnx.export(f"{program}.json", f"{program}.pdiparams", str(path), opset_version=OPSET, verbose=False)
    model = onnx.load(path)
    model.producer_name, model.producer_version = "paddle2onnx", paddle2onnx.__version__
    onnx.save(model, path)


def main(folder: Path) -> None:
    """Export everything."""
    folder.mkdir(parents=True, exist_ok=True)
    paddle.seed(0)
    for name, (make, inputs, called) in NETWORKS.items():
        export(make(), inputs, folder / f"paddle_{name}.onnx")
        (folder / f"paddle_{name}.json").write_text(json.dumps(called), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
