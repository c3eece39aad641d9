"""Exports networks of Transformers by Optimum, as most models on the Hugging Face Hub were. Run it with a Python that has it.

    pip install optimum-onnx onnxruntime accelerate
    python benchmarks/exporters_optimum.py FOLDER [NAME…]

Each network has two layers and random weights, so nothing is downloaded, and becomes the files of FOLDER/NAME that Optimum makes:
one model; or an encoder and decoders without a cache, with one, and with both in the branches of an If ("merged"). Those of
`SMALLER` are also written with weights of 8 and 4 bits and in float16, with the names that the Hub has: `_quantized`, `_q4`,
`_fp16`. A network that fails prints its error.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import torch
import transformers
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.transformers.float16 import convert_float_to_float16
from optimum.exporters.onnx import onnx_export_from_model

LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 256, "intermediate_size": 1024}
TEXT = {**LAYERS, "vocab_size": 1000, "max_position_embeddings": 600}
MARKED = {**TEXT, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = {**MARKED, "num_key_value_heads": 2}
SMALL = {"vocab_size": 1000, "n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": 600, "bos_token_id": 1, "eos_token_id": 2}
HEADS = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
PAIR = {**HEADS, "vocab_size": 1000, "d_model": 256, "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024}
SPECIAL = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None}
T5 = {"vocab_size": 1000, "d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
IMAGE = {**LAYERS, "image_size": 224, "patch_size": 16}
SOUND = {**LAYERS, "vocab_size": 32, "conv_dim": (64,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
WINDOWS = {"image_size": 224, "embed_dim": 64, "depths": [2, 2], "num_heads": [2, 4], "window_size": 7}
STAGES = {"depths": [1, 1, 1, 1]}

FEATURES, STEP = "feature-extraction", "text-generation-with-past"
TRANSLATION, SPEECH = "text2text-generation-with-past", "automatic-speech-recognition"
CLASSES = "image-classification"

NETWORKS: Mapping[str, tuple[str, str, str, Mapping[str, Any]]] = {
    "albert": (FEATURES, "AlbertModel", "AlbertConfig", {**TEXT, "embedding_size": 128}),
    "bert": (FEATURES, "BertModel", "BertConfig", TEXT),
    "bert_classifier": ("text-classification", "BertForSequenceClassification", "BertConfig", TEXT),
    "deberta_v2": (FEATURES, "DebertaV2Model", "DebertaV2Config", TEXT),
    "distilbert": (
        FEATURES,
        "DistilBertModel",
        "DistilBertConfig",
        {"vocab_size": 1000, "dim": 256, "n_layers": 2, "n_heads": 4, "hidden_dim": 1024},
    ),
    "electra": (FEATURES, "ElectraModel", "ElectraConfig", TEXT),
    "esm": (
        FEATURES,
        "EsmModel",
        "EsmConfig",
        {**TEXT, "position_embedding_type": "rotary", "pad_token_id": 1, "mask_token_id": 3},
    ),
    "modernbert": (FEATURES, "ModernBertModel", "ModernBertConfig", {**MARKED, "cls_token_id": 1, "sep_token_id": 2}),
    "mpnet": (FEATURES, "MPNetModel", "MPNetConfig", {**TEXT, "pad_token_id": 1}),
    "roberta": (FEATURES, "RobertaModel", "RobertaConfig", {**TEXT, "pad_token_id": 1}),
    "roformer": (FEATURES, "RoFormerModel", "RoFormerConfig", TEXT),
    "bloom": (STEP, "BloomForCausalLM", "BloomConfig", {"vocab_size": 1000, "hidden_size": 256, "n_layer": 2, "n_head": 4}),
    "codegen": (STEP, "CodeGenForCausalLM", "CodeGenConfig", {**SMALL, "rotary_dim": 16}),
    "falcon": (STEP, "FalconForCausalLM", "FalconConfig", {k: v for k, v in MARKED.items() if k != "intermediate_size"}),
    "gemma": (STEP, "GemmaForCausalLM", "GemmaConfig", {**GROUPED, "head_dim": 64}),
    "gemma2": (STEP, "Gemma2ForCausalLM", "Gemma2Config", {**GROUPED, "head_dim": 64}),
    "gemma3": (
        STEP,
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        {**GROUPED, "head_dim": 64, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 64},
    ),
    "gpt2": (STEP, "GPT2LMHeadModel", "GPT2Config", SMALL),
    "gpt_bigcode": (STEP, "GPTBigCodeForCausalLM", "GPTBigCodeConfig", SMALL),
    "gpt_neox": (STEP, "GPTNeoXForCausalLM", "GPTNeoXConfig", MARKED),
    "granite": (STEP, "GraniteForCausalLM", "GraniteConfig", GROUPED),
    "llama": (STEP, "LlamaForCausalLM", "LlamaConfig", GROUPED),
    "mistral": (STEP, "MistralForCausalLM", "MistralConfig", GROUPED),
    "mpt": (STEP, "MptForCausalLM", "MptConfig", {"vocab_size": 1000, "d_model": 256, "n_layers": 2, "n_heads": 4}),
    "olmo2": (STEP, "Olmo2ForCausalLM", "Olmo2Config", GROUPED),
    "opt": (STEP, "OPTForCausalLM", "OPTConfig", {**MARKED, "ffn_dim": 1024, "word_embed_proj_dim": 256}),
    "phi": (STEP, "PhiForCausalLM", "PhiConfig", MARKED),
    "phi3": (STEP, "Phi3ForCausalLM", "Phi3Config", GROUPED),
    "qwen2": (STEP, "Qwen2ForCausalLM", "Qwen2Config", GROUPED),
    "qwen3": (STEP, "Qwen3ForCausalLM", "Qwen3Config", {**GROUPED, "head_dim": 64}),
    "smollm3": (STEP, "SmolLM3ForCausalLM", "SmolLM3Config", GROUPED),
    "bart": (TRANSLATION, "BartForConditionalGeneration", "BartConfig", {**PAIR, **SPECIAL}),
    "m2m_100": (TRANSLATION, "M2M100ForConditionalGeneration", "M2M100Config", {**PAIR, **SPECIAL}),
    "marian": (TRANSLATION, "MarianMTModel", "MarianConfig", {**PAIR, **SPECIAL}),
    "t5": (TRANSLATION, "T5ForConditionalGeneration", "T5Config", T5),
    "flan_t5": (
        TRANSLATION,
        "T5ForConditionalGeneration",
        "T5Config",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "whisper": (
        f"{SPEECH}-with-past",
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        {**PAIR, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3},
    ),
    "hubert": (SPEECH, "HubertForCTC", "HubertConfig", SOUND),
    "wav2vec2": (SPEECH, "Wav2Vec2ForCTC", "Wav2Vec2Config", SOUND),
    "ast": ("audio-classification", "ASTForAudioClassification", "ASTConfig", {**LAYERS, "max_length": 256, "num_mel_bins": 128}),
    "beit": (CLASSES, "BeitForImageClassification", "BeitConfig", IMAGE),
    "convnext": (CLASSES, "ConvNextForImageClassification", "ConvNextConfig", {**STAGES, "hidden_sizes": [32, 64, 128, 256]}),
    "deit": (CLASSES, "DeiTForImageClassification", "DeiTConfig", IMAGE),
    "mobilevit": (CLASSES, "MobileViTForImageClassification", "MobileViTConfig", {"image_size": 256}),
    "poolformer": (CLASSES, "PoolFormerForImageClassification", "PoolFormerConfig", STAGES),
    "pvt": (CLASSES, "PvtForImageClassification", "PvtConfig", STAGES),
    "resnet": (CLASSES, "ResNetForImageClassification", "ResNetConfig", {"hidden_sizes": [64, 128, 256, 512], **STAGES}),
    "segformer": ("semantic-segmentation", "SegformerForSemanticSegmentation", "SegformerConfig", STAGES),
    "swin": (CLASSES, "SwinForImageClassification", "SwinConfig", WINDOWS),
    "swinv2": (CLASSES, "Swinv2ForImageClassification", "Swinv2Config", WINDOWS),
    "vit": (CLASSES, "ViTForImageClassification", "ViTConfig", IMAGE),
    "clip": (
        "zero-shot-image-classification",
        "CLIPModel",
        "CLIPConfig",
        {"text_config": {**LAYERS, "vocab_size": 1000, "eos_token_id": 2}, "vision_config": IMAGE},
    ),
    "siglip": (
        "zero-shot-image-classification",
        "SiglipModel",
        "SiglipConfig",
        {"text_config": {**LAYERS, "vocab_size": 1000}, "vision_config": IMAGE},
    ),
}
"""Name → Optimum's task, the class of the model, that of its configuration, and what the configuration gets."""


SMALLER = ("bert", "bert_classifier", "clip", "deberta_v2", "gpt2", "llama", "modernbert", "qwen3", "t5", "vit", "whisper")
"""The networks that are also written in smaller types."""


def export(name: str, folder: Path) -> None:
    """Export one network into a folder of its own, also in smaller types."""
    task, model, configuration, sizes = NETWORKS[name]
    torch.manual_seed(0)
    network = getattr(transformers, model)(getattr(transformers, configuration)(**sizes)).eval()
    onnx_export_from_model(network, folder / name, task=task, do_validation=False)
    for model in sorted((folder / name).glob("*.onnx")) if name in SMALLER else ():
        write_smaller(model)


def write_smaller(path: Path) -> None:
    """Write a model with weights of 8 and 4 bits, and in float16, beside it."""
    named = lambda word: path.with_name(f"{path.stem}_{word}.onnx")  # noqa: E731
    quantize_dynamic(path, named("quantized"), weight_type=QuantType.QUInt8, extra_options={"EnableSubgraph": True})
    blocks = MatMulNBitsQuantizer(onnx.load(path), block_size=32, is_symmetric=True)
    blocks.process()
    blocks.model.save_model_to_file(str(named("q4")), use_external_data_format=False)
    if "merged" not in path.stem:  # onnxruntime loads none that its converter makes of an If
        onnx.save(convert_float_to_float16(onnx.load(path), keep_io_types=True), named("fp16"))


def main() -> int:
    """The command line."""
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    names = sys.argv[2:] or list(NETWORKS)
    if unknown := [name for name in names if name not in NETWORKS]:
        print(f"there is no network {unknown[0]}; the networks are {', '.join(NETWORKS)}", file=sys.stderr)
        return 2
    warnings.filterwarnings("ignore")
    folder, failed = Path(sys.argv[1]), 0
    for name in names:
        try:
            export(name, folder)
        except Exception as error:  # the libraries raise whatever they like
            failed = 1
            print(f"{name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
