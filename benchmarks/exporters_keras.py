"""Exports networks of KerasHub by tf2onnx. Run it with a Python that has them.

    pip install tensorflow-cpu tf2onnx keras-hub
    python benchmarks/exporters_keras.py FOLDER

Each network has two layers and random weights, and becomes FOLDER/keras_NAME.onnx, beside a file .json with the operators that it
calls. tf2onnx gives the batch of each input another name; here they have one. Networks with the exact GELU are left out: tf2onnx
writes an operator for it that ONNX does not have.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import keras_hub
import onnx
import tensorflow as tf
import tf2onnx
from keras import layers

LENGTH, OPSET = 16, 18
MODELS = keras_hub.models
SIZES = {"vocabulary_size": 100, "num_layers": 2, "hidden_dim": 32, "intermediate_dim": 64}
WHOLE = {**SIZES, "num_heads": 4, "max_sequence_length": 32}
WITHOUT_WORDS = {key: size for key, size in WHOLE.items() if key != "vocabulary_size"}
GROUPED = {**SIZES, "num_query_heads": 4, "num_key_value_heads": 2}
ENCODED = {"attention": 2, "LayerNorm": 5, "GELU": 2}
ROTATED = {"attention": 2, "rotary": 4, "RMSNorm": 5, "SiLU": 2}


def block(norm: Callable[[], Any], activation: Callable[[Any], Any], *, causal: bool = False) -> Any:
    """A block of an encoder, of Keras' own layers."""
    x = given = keras.Input((LENGTH, 32))
    h = norm()(x)
    x = x + layers.MultiHeadAttention(4, 8)(h, h, use_causal_mask=causal)
    return keras.Model(given, x + layers.Dense(32)(activation(layers.Dense(128)(norm()(x)))))


def gelu(x: Any) -> Any:
    """GELU approximated with Tanh."""
    return keras.activations.gelu(x, approximate=True)


def grouped() -> Any:
    """Attention with few heads of keys."""
    given = keras.Input((LENGTH, 32))
    return keras.Model(given, layers.GroupQueryAttention(8, 4, 2)(given, given))


NETWORKS: dict[str, tuple[Callable[[], Any], dict[str, int]]] = {
    "block": (lambda: block(layers.LayerNormalization, gelu), {"attention": 1, "LayerNorm": 2, "GELU": 1}),
    "block_causal": (lambda: block(layers.LayerNormalization, gelu, causal=True), {"attention": 1, "LayerNorm": 2, "GELU": 1}),
    "block_rms": (lambda: block(layers.RMSNormalization, keras.activations.silu), {"attention": 1, "RMSNorm": 2, "SiLU": 1}),
    "grouped": (grouped, {"attention": 1}),
    "albert": (lambda: MODELS.AlbertBackbone(**WHOLE, embedding_dim=16), ENCODED),
    "bert": (lambda: MODELS.BertBackbone(**WHOLE), ENCODED),
    "bloom": (lambda: MODELS.BloomBackbone(**WHOLE), {**ENCODED, "LayerNorm": 6}),
    "electra": (lambda: MODELS.ElectraBackbone(**WITHOUT_WORDS, vocab_size=100, embedding_dim=32), ENCODED),
    "gemma": (
        lambda: MODELS.GemmaBackbone(**SIZES, num_query_heads=4, num_key_value_heads=1, head_dim=8),
        {"attention": 2, "rotary": 4, "RMSNorm": 5, "GELU": 2},
    ),
    "gemma3": (
        lambda: MODELS.Gemma3Backbone(**GROUPED, image_size=None, head_dim=8),
        {"attention": 2, "rotary": 4, "RMSNorm": 9, "GELU": 2},
    ),
    "gpt_oss": (lambda: MODELS.GptOssBackbone(**GROUPED, num_experts=4), {"attention": 2, "rotary": 4, "RMSNorm": 5}),
    "gpt2": (lambda: MODELS.GPT2Backbone(**WHOLE), ENCODED),
    "llama": (lambda: MODELS.LlamaBackbone(**GROUPED), ROTATED),
    "mistral": (lambda: MODELS.MistralBackbone(**GROUPED), ROTATED),
    "opt": (lambda: MODELS.OPTBackbone(**WHOLE), {"attention": 2, "LayerNorm": 5}),
    "phi3": (lambda: MODELS.Phi3Backbone(**GROUPED), ROTATED),
    "qwen": (lambda: MODELS.QwenBackbone(**GROUPED), ROTATED),
    "qwen3": (lambda: MODELS.Qwen3Backbone(**GROUPED, head_dim=8), {**ROTATED, "RMSNorm": 9}),
    "smollm3": (
        lambda: MODELS.SmolLM3Backbone(
            100, 32, 64, 2, 4, 2, False, 0.0, [True, False], ["full_attention"] * 2, False, 1e-6, 32, 1e4, 1.0
        ),
        {"attention": 2, "rotary": 2, "RMSNorm": 5, "SiLU": 2},
    ),
}


def export(network: Any, path: Path) -> None:
    """Write the network, with one name for the batch of all inputs."""
    whole = isinstance(network.input, dict)
    inputs = network.input if whole else {value.name: value for value in network.inputs}
    names = sorted(inputs)
    sizes = [(None, *(LENGTH if size is None else size for size in inputs[n].shape[1:])) for n in names]
    wanted = [tf.TensorSpec(shape, tf.as_dtype(inputs[n].dtype), name=n) for n, shape in zip(names, sizes, strict=True)]
    call = tf.function(
        lambda *given: network(dict(zip(names, given, strict=True)) if whole else given[0], training=False),
        input_signature=wanted,
    )
    model, _ = tf2onnx.convert.from_function(call, input_signature=wanted, opset=OPSET)
    shapes = [value.type.tensor_type.shape.dim for value in model.graph.input]
    batches = {shape[0].dim_param for shape in shapes if shape} - {""}
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in batches:
                dim.dim_param = "batch"
    onnx.save(model, path)


def main(folder: Path) -> None:
    """Export everything."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (make, called) in NETWORKS.items():
        export(make(), folder / f"keras_{name}.onnx")
        (folder / f"keras_{name}.json").write_text(json.dumps(called), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
