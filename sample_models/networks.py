"""The networks behind the sample models, as torch modules a few kilobytes large.

Language models come from transformers with a tiny configuration, so that the graph is the one a user gets; convolutional
networks are written out here in the form their papers and reference implementations give them. Needs torch and transformers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
import transformers
from torch import Tensor, nn

LANGUAGE = {"vocab_size": 97, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 64}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


class FirstOutput(nn.Module):
    """A transformers model that returns its first output as a tensor, without a cache."""

    def __init__(self, model: nn.Module, **keywords: object) -> None:
        super().__init__()
        self.model = model
        self.keywords = keywords

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False, **self.keywords)[0]


def bert(attention: str = "sdpa") -> nn.Module:
    """Two encoder layers of BERT with its embeddings (post-norm, erf GELU)."""
    config = transformers.BertConfig(**LANGUAGE, **TOKENS, max_position_embeddings=64, attn_implementation=attention)
    return FirstOutput(transformers.BertModel(config, add_pooling_layer=False))


def llama(attention: str = "sdpa") -> nn.Module:
    """One Llama decoder layer: RMSNorm, rotary embedding, grouped-query attention, SwiGLU."""
    settings = LANGUAGE | {"num_hidden_layers": 1}
    config = transformers.LlamaConfig(
        **settings, **TOKENS, num_key_value_heads=2, max_position_embeddings=64, use_cache=False, attn_implementation=attention
    )
    return FirstOutput(transformers.LlamaModel(config), use_cache=False)


def gpt2() -> nn.Module:
    """One GPT-2 block: pre-norm, Conv1D projections, tanh GELU."""
    config = transformers.GPT2Config(
        vocab_size=97, n_positions=64, n_embd=32, n_layer=1, n_head=4, use_cache=False, attn_implementation="eager", **TOKENS
    )
    return FirstOutput(transformers.GPT2Model(config), use_cache=False)


def clip_text() -> nn.Module:
    """Two layers of CLIP's text tower: pre-norm, causal attention, QuickGELU."""
    config = transformers.CLIPTextConfig(**LANGUAGE, **TOKENS, max_position_embeddings=64, hidden_act="quick_gelu")
    return FirstOutput(transformers.CLIPTextModel(config))


def t5_encoder() -> nn.Module:
    """Two layers of T5 v1.1's encoder: RMSNorm, relative position bias, gated tanh GELU."""
    config = transformers.T5Config(
        vocab_size=97, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu", pad_token_id=0,
        relative_attention_num_buckets=8, decoder_start_token_id=0,
    )  # fmt: skip
    return FirstOutput(transformers.T5EncoderModel(config))


class Bottleneck(nn.Module):
    """ResNet's bottleneck block (He et al. 2015): 1×1, 3×3, 1×1, each with BatchNormalization."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.downsample = (
            nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            if stride > 1 or channels != out
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))


def resnet_stage() -> nn.Module:
    """ResNet's stem and one stage of two bottlenecks, pooled to a classifier."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        Bottleneck(8, 4, 1), Bottleneck(16, 4, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


class SqueezeExcitation(nn.Module):
    """MobileNetV3's squeeze and excitation: the gate is a HardSigmoid of two 1×1 convolutions of the mean."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, 8, 1), nn.Conv2d(8, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = F.relu(self.reduce(x.mean((2, 3), keepdim=True)))
        return x * F.hardsigmoid(self.expand(gate))


class InvertedResidual(nn.Module):
    """MobileNetV3's block (Howard et al. 2019): expand, depthwise, squeeze and excite, project, add."""

    def __init__(self, channels: int, expanded: int, activation: type[nn.Module]) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(channels, expanded, 1, bias=False), nn.BatchNorm2d(expanded), activation(),
            nn.Conv2d(expanded, expanded, 5, 1, 2, groups=expanded, bias=False), nn.BatchNorm2d(expanded), activation(),
            SqueezeExcitation(expanded),
            nn.Conv2d(expanded, channels, 1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x)


def mobilenet_v3() -> nn.Module:
    """MobileNetV3's stem and three blocks: HardSwish, ReLU and ReLU6 activations, HardSigmoid gates."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish(),
        InvertedResidual(8, 16, nn.ReLU), InvertedResidual(8, 24, nn.Hardswish), InvertedResidual(8, 16, nn.ReLU6),
    )  # fmt: skip


class CrossAttention(nn.Module):
    """Attention of image tokens to a context, as Stable Diffusion writes it."""

    def __init__(self, channels: int, context: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(channels, channels, bias=False)
        self.to_k, self.to_v = nn.Linear(context, channels, bias=False), nn.Linear(context, channels, bias=False)
        self.to_out = nn.Linear(channels, channels)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        q, k, v = (
            t.view(t.shape[0], -1, self.heads, t.shape[-1] // self.heads).transpose(1, 2)
            for t in (self.to_q(x), self.to_k(context), self.to_v(context))
        )
        y = F.scaled_dot_product_attention(q, k, v)
        return self.to_out(y.transpose(1, 2).reshape(x.shape))


class UNetBlock(nn.Module):
    """A block of Stable Diffusion's UNet: residual block (GroupNorm, SiLU, time embedding), then a transformer with GEGLU."""

    def __init__(self, channels: int = 32, context: int = 24, time: int = 16) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, channels), nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, channels), nn.Conv2d(channels, channels, 3, padding=1)
        self.time = nn.Linear(time, channels)
        self.norm = nn.GroupNorm(8, channels)
        self.proj_in, self.proj_out = nn.Linear(channels, channels), nn.Linear(channels, channels)
        self.norm3, self.norm4 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.attention = CrossAttention(channels, context, 4)
        self.geglu, self.out = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)

    def forward(self, sample: Tensor, embedding: Tensor, context: Tensor) -> Tensor:
        x = self.conv1(F.silu(self.norm1(sample)))
        x = x + self.time(F.silu(embedding))[:, :, None, None]
        x = sample + self.conv2(F.silu(self.norm2(x)))
        batch, channels, height, width = x.shape
        y = self.proj_in(self.norm(x).permute(0, 2, 3, 1).reshape(batch, height * width, channels))
        y = y + self.attention(self.norm3(y), context)
        hidden, gate = self.geglu(self.norm4(y)).chunk(2, dim=-1)
        y = y + self.out(hidden * F.gelu(gate))
        return x + self.proj_out(y).reshape(batch, height, width, channels).permute(0, 3, 1, 2)


class ConvSilu(nn.Sequential):
    """YOLO's convolution: Conv, BatchNormalization, SiLU."""

    def __init__(self, channels: int, out: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__(nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(out, 1e-3), nn.SiLU())


class C2f(nn.Module):
    """YOLOv8's C2f: a split, bottlenecks that feed each other, everything concatenated."""

    def __init__(self, channels: int, count: int) -> None:
        super().__init__()
        half = channels // 2
        self.first, self.last = ConvSilu(channels, channels), ConvSilu((2 + count) * half, channels)
        self.steps = nn.ModuleList(nn.Sequential(ConvSilu(half, half, 3), ConvSilu(half, half, 3)) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for step in self.steps:
            parts.append(parts[-1] + step(parts[-1]))
        return self.last(torch.cat(parts, 1))


def yolo_c2f() -> nn.Module:
    """YOLOv8's stem and one C2f of two bottlenecks."""
    return nn.Sequential(ConvSilu(3, 8, 3, 2), ConvSilu(8, 16, 3, 2), C2f(16, 2))


class FeedForward(nn.Module):
    """LayerNorm, a linear layer and erf GELU written out, as older model code has it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(self.norm(x))
        return 0.5 * y * (1.0 + torch.erf(y / 1.4142135623730951))


class Gate(nn.Module):
    """A linear layer and SiLU, the cheap way out of `Branches`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return y * torch.sigmoid(y)


class CondBranches(nn.Module):
    """Early exit with `torch.cond`: both branches hold something that fuses, and both read a value computed outside."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first, self.long, self.short = FeedForward(width), FeedForward(width), Gate(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return y + torch.cond(y.mean() > 0.5, self.long, self.short, (y,))


class ScriptBranches(nn.Module):
    """The same early exit as a TorchScript `if`."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first, self.long, self.short = FeedForward(width), FeedForward(width), Gate(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if bool(y.mean() > 0.5):
            z = self.long(y)
        else:
            z = self.short(y)
        return y + z


class RmsFeedForward(nn.Module):
    """RMSNorm (Zhang and Sennrich 2019), a linear layer, GELU, residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.linear = nn.Parameter(torch.randn(width)), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))
        return x + F.gelu(self.linear(y))


class Scripted(nn.Module):
    """Two feed-forward layers, the truth for the model that `functions.py` writes in onnxscript."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(RmsFeedForward(width), RmsFeedForward(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
