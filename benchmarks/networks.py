"""Small transformers with random weights, and their export to ONNX.

A kind of network names the class of transformers that builds it, and its inputs. `exported` makes the network, counts the calls
of one forward pass, and writes the model. Needs torch, transformers and onnxscript.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from image_networks import STYLES, image_network

if TYPE_CHECKING:
    import torch

EXPORTERS = {"TorchScript": 17, "dynamo": 18, "dynamo 23": 23}
"""torch's exporters and their opsets. From opset 23 on, dynamo writes Attention, RMSNormalization and RotaryEmbedding itself."""
TURNS = (
    *("apply_rotary_pos_emb", "apply_rotary_position_embeddings", "apply_rotary_pos_emb_interleave"),
    "apply_rotary_pos_emb_2d",
)
"""The functions of transformers that turn a query, a key, or both."""

TEXT = {
    "vocab_size": 128,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 64,
}
SHARED = {**TEXT, "num_key_value_heads": 2}
OLD = {"vocab_size": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1, "experts_implementation": "eager"}
SLIDING = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 4}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
T5 = {"vocab_size": 128, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
IMAGE = {**TEXT, "image_size": 32, "patch_size": 8}

DECODERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "biogpt": ("BioGptConfig", TEXT),
    "bloom": ("BloomConfig", {"vocab_size": 128, "hidden_size": 64, "n_layer": 2, "n_head": 4}),
    "codegen": ("CodeGenConfig", {**OLD, "rotary_dim": 8}),
    "cohere": ("CohereConfig", SHARED),
    "cohere2": ("Cohere2Config", {**SHARED, "sliding_window": 4}),
    "deepseek_v3": (
        "DeepseekV3Config",
        {**TEXT, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16}
        | {"num_key_value_heads": 4, "first_k_dense_replace": 2, "n_routed_experts": 4, "num_experts_per_tok": 2}
        | {"n_group": 1, "topk_group": 1, "moe_intermediate_size": 64, **TOKENS},
    ),
    "falcon": ("FalconConfig", {k: v for k, v in TEXT.items() if "intermediate" not in k}),
    "falcon_alibi": (
        "FalconConfig",
        {k: v for k, v in TEXT.items() if "intermediate" not in k} | {"alibi": True, "multi_query": False, "bias": True},
    ),
    "exaone4": ("Exaone4Config", {**SHARED, "head_dim": 16, "sliding_window": 4}),
    "flint": ("FlintConfig", {**SHARED, **SLIDING, **TOKENS, "head_dim": 16, "mlp_only_layers": [0, 1]}),
    "gemma2": ("Gemma2Config", {**SHARED, "head_dim": 16}),
    "gemma3": ("Gemma3TextConfig", {**SHARED, "head_dim": 16}),
    "gemma3n": (
        "Gemma3nTextConfig",
        {**SHARED, "head_dim": 16, "sliding_window": 4, "vocab_size_per_layer_input": 128, "hidden_size_per_layer_input": 16}
        | {"num_kv_shared_layers": 0},
    ),
    "glm": ("GlmConfig", {**SHARED, "head_dim": 16, "pad_token_id": 0}),
    "glm4": ("Glm4Config", {**SHARED, "head_dim": 16, "pad_token_id": 0}),
    "gpt_bigcode": ("GPTBigCodeConfig", OLD),
    "gpt_neo": (
        "GPTNeoConfig",
        {"vocab_size": 128, "hidden_size": 64, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 64, "window_size": 4}
        | {"attention_types": [[["global", "local"], 1]]},
    ),
    "gpt_neox": ("GPTNeoXConfig", {**TEXT, "rotary_pct": 0.5}),
    "gpt_neox_japanese": ("GPTNeoXJapaneseConfig", {k: v for k, v in TEXT.items() if "intermediate" not in k}),
    "gptj": ("GPTJConfig", {**OLD, "rotary_dim": 8}),
    "gpt_oss": ("GptOssConfig", {**SHARED, **EXPERTS, **SLIDING, **TOKENS, "head_dim": 16}),
    "granite": ("GraniteConfig", SHARED),
    "granite_swa": ("GraniteSWAConfig", {**SHARED, **TOKENS, "sliding_window": 4}),
    "helium": ("HeliumConfig", {**SHARED, "head_dim": 16, **TOKENS}),
    "mimo_v2_flash": (
        "MiMoV2FlashConfig",
        {**SHARED, **SLIDING, **TOKENS, "head_dim": 16, "v_head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2}
        | {"moe_intermediate_size": 32, "experts_implementation": "eager"},
    ),
    "mistral": ("MistralConfig", {**SHARED, "sliding_window": 4}),
    "mpt": ("MptConfig", {"vocab_size": 128, "d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": 64}),
    "nanochat": ("NanoChatConfig", {**SHARED, **TOKENS}),
    "nemotron": ("NemotronConfig", {**SHARED, "head_dim": 16, **TOKENS}),
    "olmo": ("OlmoConfig", {**TEXT, **TOKENS}),
    "olmo2": ("Olmo2Config", {**TEXT, **TOKENS}),
    "openai_gpt": ("OpenAIGPTConfig", OLD),
    "opt": (
        "OPTConfig",
        {**{k: v for k, v in TEXT.items() if "intermediate" not in k}, "ffn_dim": 128, "word_embed_proj_dim": 64},
    ),
    "persimmon": ("PersimmonConfig", TEXT),
    "phi": ("PhiConfig", TEXT),
    "phi3": ("Phi3Config", {**TEXT, **TOKENS}),
    "qwen3": ("Qwen3Config", {**SHARED, "head_dim": 16}),
    "smollm3": ("SmolLM3Config", {**SHARED, **TOKENS}),
    "stablelm": ("StableLmConfig", SHARED),
    "starcoder2": ("Starcoder2Config", SHARED),
    "xglm": ("XGLMConfig", {"vocab_size": 128, "d_model": 64, "num_layers": 2, "attention_heads": 4, "ffn_dim": 128}),
}
UNMASKED: Mapping[str, tuple[str, Mapping[str, Any]]] = {"openai_gpt_unmasked": DECODERS["openai_gpt"]}
"""Decoders that are given no mask of padding."""
ENCODERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "albert": ("AlbertConfig", {**TEXT, "embedding_size": 32}),
    "data2vec_text": ("Data2VecTextConfig", TEXT),
    "deberta_v2": (
        "DebertaV2Config",
        {**TEXT, "relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"], "share_att_key": True},
    ),
    "electra": ("ElectraConfig", {**TEXT, "embedding_size": 32}),
    "ernie": ("ErnieConfig", TEXT),
    "mobilebert": ("MobileBertConfig", {**TEXT, "embedding_size": 32, "intra_bottleneck_size": 32}),
    "modernbert": ("ModernBertConfig", {**TEXT, **TOKENS, "cls_token_id": 1, "sep_token_id": 2}),
    "mpnet": ("MPNetConfig", TEXT),
    "openai_privacy_filter": ("OpenAIPrivacyFilterConfig", {**SHARED, **EXPERTS, **TOKENS, "head_dim": 16, "sliding_window": 4}),
    "roformer": ("RoFormerConfig", {**TEXT, "embedding_size": 64}),
    "squeezebert": ("SqueezeBertConfig", {**TEXT, "embedding_size": 64}),
    "xlm_roberta": ("XLMRobertaConfig", TEXT),
    "xlnet": ("XLNetConfig", {"vocab_size": 128, "d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 128}),
}
VISION: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "beit": ("BeitConfig", {**IMAGE, "use_relative_position_bias": True}),
    "clip_vision": ("CLIPVisionConfig", IMAGE),
    "deit": ("DeiTConfig", IMAGE),
    "dinov2": ("Dinov2Config", {**IMAGE, "mlp_ratio": 2}),
    "dinov3": ("DINOv3ViTConfig", IMAGE),
    "hiera": (
        "HieraConfig",
        {"image_size": [32, 32], "embed_dim": 32, "depths": [1, 1], "num_heads": [1, 2], "num_query_pool": 1},
    ),
    "levit": (
        "LevitConfig",
        {"image_size": 32, "hidden_sizes": [32, 48], "num_attention_heads": [2, 3], "depths": [1, 1], "key_dim": [8, 8]}
        | {"mlp_ratio": [2, 2], "attention_ratio": [2, 2], "down_ops": [["Subsample", 8, 4, 4, 2, 2], [""]]},
    ),
    "maxvit": ("image_network", {"style": "grid"}),
    **{style.replace("_", " "): ("image_network", {"style": style}) for style in STYLES},
    "pixtral": ("PixtralVisionConfig", {**IMAGE, "head_dim": 16}),
    "pvt_v2": (
        "PvtV2Config",
        {"image_size": 32, "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 1, 2, 4]},
    ),
    "sam3_vit": (
        "Sam3ViTConfig",
        {**IMAGE, "window_size": 2, "global_attn_indexes": [1], "pretrain_image_size": 32},
    ),
    "sam_vision": (
        "SamVisionConfig",
        {**IMAGE, "mlp_dim": 128, "window_size": 2, "global_attn_indexes": [1], "output_channels": 32},
    ),
    "segformer": (
        "SegformerConfig",
        {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 1, 2, 4]},
    ),
    "siglip_vision": ("SiglipVisionConfig", IMAGE),
    "swinv2": (
        "Swinv2Config",
        {"image_size": 32, "patch_size": 2, "embed_dim": 32, "depths": [2], "num_heads": [2], "window_size": 4},
    ),
    "vit_mae": ("ViTMAEConfig", IMAGE),
    "vit_msn": ("ViTMSNConfig", IMAGE),
    "vitdet": ("VitDetConfig", {**IMAGE, "mlp_ratio": 2, "use_relative_position_embeddings": True}),
}
SEQUENCE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "bart": (
        "BartConfig",
        {"vocab_size": 128, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
        | {"decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "max_position_embeddings": 64},
    ),
    "longt5": ("LongT5Config", {**T5, "local_radius": 3, "global_block_size": 4}),
    "longt5_global": (
        "LongT5Config",
        {**T5, "local_radius": 3, "global_block_size": 4, "encoder_attention_type": "transient-global"},
    ),
    "t5": ("T5Config", T5),
    "umt5": ("UMT5Config", T5),
}
STEPS: Mapping[str, tuple[str, Mapping[str, Any]]] = {"bart_step": SEQUENCE["bart"], "t5_step": SEQUENCE["t5"]}
"""Decoders whose cross attention reads keys and values from earlier steps."""
FEATURES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "perceiver": (
        "PerceiverConfig",
        {"num_latents": 8, "d_latents": 64, "d_model": 32, "num_blocks": 1, "num_self_attends_per_block": 2}
        | {"num_self_attention_heads": 4, "num_cross_attention_heads": 4, "qk_channels": 64, "v_channels": 64},
    ),
}


@dataclass(frozen=True)
class Kind:
    """Networks with the same inputs.

    networks: name → class of the configuration and its arguments. loader: the class of transformers that makes a network
    of a configuration. inputs: name → its axes; `SIZES` has the sizes of named axes. options: other arguments of the call.
    """

    networks: Mapping[str, tuple[str, Mapping[str, Any]]]
    loader: str
    inputs: Mapping[str, tuple[str | int, ...]]
    options: Mapping[str, Any] = field(default_factory=dict)


SIZES = {"batch": 2, "length": 7, "target": 5, "past": 4}
"""The axes with names, which are symbolic in the models."""
PARTS = (("past", "past"), ("encoder", "length"))
"""The caches that a step reads, and the axis of their length."""

MASKED = {"input_ids": ("batch", "length"), "attention_mask": ("batch", "length")}
IMAGES = {"pixel_values": ("batch", 3, 32, 32)}
KINDS: Mapping[str, Kind] = {
    "decoder": Kind(DECODERS, "AutoModelForCausalLM", MASKED, {"use_cache": False}),
    "unmasked": Kind(UNMASKED, "AutoModelForCausalLM", {"input_ids": ("batch", "length")}, {"use_cache": False}),
    "encoder": Kind(ENCODERS, "AutoModel", MASKED),
    "vision": Kind(VISION, "AutoModel", IMAGES),
    "sequence": Kind(SEQUENCE, "AutoModel", {**MASKED, "decoder_input_ids": ("batch", "target")}, {"use_cache": False}),
    "step": Kind(
        STEPS,
        "AutoModel",
        {"decoder_input_ids": ("batch", 1), "attention_mask": ("batch", "length")}
        | {
            f"{part}.{layer}.{what}": ("batch", 4, size, 16)
            for layer in range(2)
            for part, size in PARTS
            for what in ("key", "value")
        },
    ),
    "features": Kind(FEATURES, "AutoModel", {"inputs": ("batch", "length", 32), "attention_mask": ("batch", "length")}),
}


def exported(kind: str, name: str, exporter: str, path: Path) -> Counter[str]:
    """Export one network to a file, and count the attentions and rotary embeddings that one forward pass calls."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    import torch

    network, axes = _network(kind, name), KINDS[kind].inputs
    options = KINDS[kind].options

    class Plain(torch.nn.Module):
        """The network with tensors in and one tensor out."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            named = dict(zip(axes, tensors, strict=True))
            return self.network(**(_with_cache(named) if kind == "step" else named), **options)[0]

    plain, inputs = Plain(), tuple(_drawn(name, shape) for name, shape in axes.items())
    with counted(network) as calls, torch.no_grad():
        plain(*inputs)
    dynamic = {name: {i: axis for i, axis in enumerate(shape) if isinstance(axis, str)} for name, shape in axes.items()}
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        known: dict[str, Any] = {"opset_version": EXPORTERS[exporter]}
        if exporter == "TorchScript":
            known |= {"dynamo": False, "dynamic_axes": dynamic}
        else:
            known |= {"dynamo": True, "external_data": False, "verbose": False}
            known["dynamic_shapes"] = {"tensors": tuple(dynamic.values())}
        torch.onnx.export(plain, inputs, str(path), input_names=list(axes), output_names=["result"], **known)
    return calls


def _network(kind: str, name: str) -> torch.nn.Module:
    import torch
    import transformers

    torch.manual_seed(0)
    made, config = KINDS[kind].networks[name]
    if made == "image_network":
        return image_network(**config).eval()
    return getattr(transformers, KINDS[kind].loader).from_config(getattr(transformers, made)(**config)).eval()


def _drawn(name: str, shape: tuple[str | int, ...]) -> torch.Tensor:
    """An example of an input: token ids, a mask of ones, or random numbers."""
    import torch

    sizes = [axis if isinstance(axis, int) else SIZES[axis] for axis in shape]
    if name.endswith("_ids"):
        return torch.randint(3, 100, sizes)
    return torch.ones(sizes, dtype=torch.long) if name.endswith("_mask") else torch.randn(sizes)


def _with_cache(named: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The arguments of one step of a decoder with two caches: its own keys and values, and the encoder's."""
    import torch
    from transformers import DynamicCache, EncoderDecoderCache
    from transformers.modeling_outputs import BaseModelOutput

    caches = {part: DynamicCache() for part, _ in PARTS}
    for (part, _), layer in itertools.product(PARTS, range(2)):
        caches[part].update(named.pop(f"{part}.{layer}.key"), named.pop(f"{part}.{layer}.value"), layer)
    mask = named["attention_mask"]
    states = torch.zeros((*mask.shape, 64))
    return named | {
        "past_key_values": EncoderDecoderCache(caches["past"], caches["encoder"]),
        "encoder_outputs": BaseModelOutput(last_hidden_state=states),
    }


@contextmanager
def counted(network: Any) -> Iterator[Counter[str]]:
    """Counts the attentions and rotary embeddings that are called inside."""
    import torch
    from torch.overrides import TorchFunctionMode

    calls: Counter[str] = Counter()
    attentions = {
        torch.nn.functional.scaled_dot_product_attention,
        torch.nn.functional.softmax,
        torch.softmax,
        torch.Tensor.softmax,
    }

    class Counting(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls["attention"] += function in attentions and next(iter((*args, *(kwargs or {}).values()))).dim() > 2
            return function(*args, **(kwargs or {}))

    def counting(turn: Callable[..., Any]) -> Callable[..., Any]:
        def turned(*args: Any, **kwargs: Any) -> Any:
            result = turn(*args, **kwargs)
            calls["rotary"] += len(result) if isinstance(result, tuple) else 1
            return result

        return turned

    module = sys.modules[type(network).__module__]
    holders = [module, *(thing for thing in vars(module).values() if isinstance(thing, type))]
    turns = [(holder, name, vars(holder)[name]) for holder in holders for name in TURNS if name in vars(holder)]
    for holder, name, _ in turns:
        setattr(holder, name, staticmethod(counting(getattr(holder, name))))
    try:
        with Counting():
            yield calls
    finally:
        for holder, name, turn in turns:
            setattr(holder, name, turn)
