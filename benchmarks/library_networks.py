"""Networks of several libraries: the class that builds each, its settings, and its inputs.

Libraries of single authors, such as vit-pytorch and x-transformers, write attention, norms and position embeddings by hand. MONAI
has networks of volumes, segmentation-models-pytorch decoders of images, and ultralytics and torchvision detectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Part(NamedTuple):
    """A call of a class or function. settings: its arguments; a Part among them is made first."""

    path: str
    settings: Mapping[str, Any] = {}


Inputs = tuple[tuple[int, ...] | str, ...]
"""The shape of each input; "ids N M": N tokens below M in a batch of one; "time M": a time step below M."""

IMAGE: Inputs = ((1, 3, 64, 64),)
LARGE: Inputs = ((1, 3, 128, 128),)
WHOLE: Inputs = ((1, 3, 224, 224),)
VOLUME: Inputs = ((1, 1, 32, 32, 32),)
TOKENS: Inputs = ("ids 32 256",)

VIT = {"image_size": 64, "patch_size": 16, "num_classes": 10, "dim": 64, "depth": 2, "heads": 4, "mlp_dim": 128}
STAGES = {f"s{n}_{key}": size for n in (1, 2, 3) for key, size in (("emb_dim", 64), ("heads", 2), ("depth", 1))}
VISION: Mapping[str, tuple[str, Mapping[str, Any], Inputs]] = {
    "CaiT": ("cait", {**{k: v for k, v in VIT.items() if k != "depth"}, "depth": 2, "cls_depth": 1}, IMAGE),
    "CCT": ("cct", {"img_size": (64, 64), "embedding_dim": 64, "n_conv_layers": 2, "num_layers": 2, "num_heads": 4}, IMAGE),
    "CrossFormer": ("crossformer", {"num_classes": 10, "dim": (32, 32, 64, 64), "depth": (1, 1, 1, 1)}, WHOLE),
    "CvT": ("cvt", {"num_classes": 10, **STAGES}, IMAGE),
    "DeepViT": ("deepvit", VIT, IMAGE),
    "LeViT": (
        "levit",
        {"image_size": 64, "num_classes": 10, "stages": 3, "dim": (64, 96, 128), "depth": 1, "heads": 4, "mlp_mult": 2},
        IMAGE,
    ),
    "MaxViT": ("max_vit", {"num_classes": 10, "dim_conv_stem": 32, "dim": 32, "dim_head": 16, "depth": (1, 1)}, WHOLE),
    "nViT": ("normalized_vit", VIT, IMAGE),
    "RvT": ("rvt", VIT, IMAGE),
    "SimpleViT": ("simple_vit_with_qk_norm", VIT, IMAGE),
    "T2TViT": (
        "t2t",
        {**{k: v for k, v in VIT.items() if k != "patch_size"}, "t2t_layers": ((7, 4), (3, 2))},
        IMAGE,
    ),
    "ViT": ("learnable_memory_vit", VIT, IMAGE),
    "XCiT": ("xcit", {**VIT, "patch_size": 8, "cls_depth": 1}, IMAGE),
}
"""Class of vit-pytorch → module, settings, inputs."""

DECODER = {"dim": 64, "depth": 2, "heads": 4, "attn_dim_head": 16}
LANGUAGE: Mapping[str, Mapping[str, Any]] = {
    "decoder": {},
    "RMSNorm": {"use_rmsnorm": True},
    "ScaleNorm": {"use_scalenorm": True},
    "SwiGLU": {"ff_swish": True, "ff_glu": True},
    "rotary": {"rotary_pos_emb": True},
    "ALiBi": {"alibi_pos_bias": True, "alibi_num_heads": 2},
    "T5 bias": {"rel_pos_bias": True},
    "normalized queries": {"attn_qk_norm": True},
    "one key head": {"attn_kv_heads": 1},
    "memory keys": {"attn_num_mem_kv": 4},
    "soft clamp": {"attn_softclamp_logits": True},
    "sandwich": {"sandwich_norm": True},
    "hyper-connections": {"num_residual_streams": 2},
}
"""Name → settings of the decoder of x-transformers."""

SMALL = {"in_channels": 1, "out_channels": 2}
VOLUMES = {"spatial_dims": 3, **SMALL}
MEDICAL: Mapping[str, tuple[Mapping[str, Any], Inputs]] = {
    "AttentionUnet": ({**VOLUMES, "channels": (8, 16, 32), "strides": (2, 2)}, VOLUME),
    "DiffusionModelUNet": (
        {"spatial_dims": 2, "in_channels": 1, "out_channels": 1, "num_res_blocks": (1, 1), "channels": (32, 64)}
        | {"attention_levels": (False, True), "norm_num_groups": 8, "num_head_channels": 32},
        ((1, 1, 16, 16), "time 1000"),
    ),
    "DynUNet": (
        {**VOLUMES, "kernel_size": [3, 3, 3], "strides": [1, 2, 2], "upsample_kernel_size": [2, 2]},
        VOLUME,
    ),
    "MedNeXt": (
        {**VOLUMES, "init_filters": 8, "blocks_down": (1, 1, 1, 1), "blocks_bottleneck": 1, "blocks_up": (1, 1, 1, 1)},
        VOLUME,
    ),
    "SegResNet": ({**VOLUMES, "init_filters": 8}, VOLUME),
    "SwinUNETR": ({**SMALL, "feature_size": 12, "num_heads": (1, 2, 4, 4)}, ((1, 1, 64, 64, 64),)),
    "UNet": ({**VOLUMES, "channels": (8, 16, 32), "strides": (2, 2), "num_res_units": 1}, VOLUME),
    "UNETR": (
        {**SMALL, "img_size": (32, 32, 32), "feature_size": 8, "hidden_size": 64, "mlp_dim": 128, "num_heads": 4},
        VOLUME,
    ),
}
"""Class of MONAI → settings, inputs."""

DECODERS = ("Unet", "FPN", "DeepLabV3Plus", "Linknet", "MAnet", "PAN", "Segformer")
"""Decoders of segmentation-models-pytorch, behind a ResNet 18."""
DETECTORS = ("yolov5n", "yolov8n", "yolov9t", "yolov10n", "yolo11n", "yolo12n", "rtdetr-l")
"""Configurations of ultralytics."""
VISION_MODELS: Mapping[str, Inputs] = {
    "convnext_tiny": WHOLE,
    "efficientnet_v2_s": WHOLE,
    "lraspp_mobilenet_v3_large": LARGE,
    "raft_small": (*LARGE, *LARGE),
    "shufflenet_v2_x1_0": WHOLE,
    "ssdlite320_mobilenet_v3_large": LARGE,
    "swin_v2_t": WHOLE,
}
"""Models of torchvision."""
LISTS = frozenset({"torchvision: ssdlite320_mobilenet_v3_large"})
"""Networks that take a list of images."""


def _all() -> Iterator[tuple[str, tuple[Part, Inputs]]]:
    for name, (module, settings, inputs) in VISION.items():
        yield f"vit-pytorch: {name}", (Part(f"vit_pytorch.{module}.{name}", settings), inputs)
    for name, decoder in LANGUAGE.items():
        layers = Part("x_transformers.Decoder", {**DECODER, **decoder})
        wrapper = {"num_tokens": 256, "max_seq_len": 32, "attn_layers": layers}
        yield f"x-transformers: {name}", (Part("x_transformers.TransformerWrapper", wrapper), TOKENS)
    for name, (settings, inputs) in MEDICAL.items():
        yield f"MONAI: {name}", (Part(f"monai.networks.nets.{name}", settings), inputs)
    for name in DECODERS:
        settings = {"encoder_name": "resnet18", "encoder_weights": None, "classes": 2}
        yield f"segmentation-models: {name}", (Part(f"segmentation_models_pytorch.{name}", settings), LARGE)
    for name in DETECTORS:
        kind = "RTDETRDetectionModel" if name.startswith("rtdetr") else "DetectionModel"
        yield f"ultralytics: {name}", (Part(f"ultralytics.nn.tasks.{kind}", {"cfg": f"{name}.yaml"}), LARGE)
    for name, inputs in VISION_MODELS.items():
        settings = {"name": name, "weights": None, **({"weights_backbone": None} if inputs is LARGE else {})}
        yield f"torchvision: {name}", (Part("torchvision.models.get_model", settings), inputs)


NETWORKS: Mapping[str, tuple[Part, Inputs]] = dict(_all())
"""Library and network → what makes it, and its inputs."""
