"""Small networks for images with attention as well-known code bases write it. Needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

STYLES = ("latent_diffusion", "guided_diffusion", "vit_pytorch", "autoencoder", "non_local", "flax")
"""Ways to write attention over the pixels of an image.

latent_diffusion: einsums of `b i d` with batch and heads as one axis (Rombach et al. 2022, arXiv 2112.10752).
guided_diffusion: einsums of `b c t`, channels first (Dhariwal and Nichol 2021, arXiv 2105.05233).
vit_pytorch: einsums of `b h i d`, as in many implementations of papers. flax: einsums of `b q h d`, as Flax writes them.
autoencoder: one head, values times transposed weights (Esser et al. 2021, arXiv 2012.09841).
non_local: one head, without a scale (Wang et al. 2018, arXiv 1711.07971).
"""


def image_network(style: str) -> torch.nn.Module:
    """A network of a convolution and two attentions of the style; "grid" is MaxViT's (Tu et al. 2022, arXiv 2204.01697)."""
    import torch

    layers = [_grid(grid=False), _grid(grid=True)] if style == "grid" else [_of_pixels(style), _of_pixels(style)]

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Conv2d(3, 32, 4, stride=4)
            self.layers = torch.nn.Sequential(*layers)

        def forward(self, pixel_values: torch.Tensor) -> tuple[torch.Tensor]:
            image = self.stem(pixel_values)
            return (self.layers(image.permute(0, 2, 3, 1) if style == "grid" else image),)

    return Network()


def _of_pixels(style: str) -> torch.nn.Module:
    """Attention over the pixels of an image [batch, 32, height, width], with two heads or none."""
    import torch

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.GroupNorm(8, 32)
            self.qkv, self.projection = torch.nn.Conv2d(32, 96, 1), torch.nn.Conv2d(32, 32, 1)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            batch, channels, height, width = image.shape
            q, k, v = self.qkv(self.norm(image)).reshape(batch, 96, height * width).chunk(3, dim=1)
            mixed = _ATTENTIONS[style](q, k, v)
            return image + self.projection(mixed.reshape(batch, channels, height, width))

    return Attention()


def _latent_diffusion(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch

    batch, channels, pixels = q.shape
    q, k, v = (x.reshape(batch, 2, 16, pixels).transpose(2, 3).reshape(batch * 2, pixels, 16) for x in (q, k, v))
    weights = torch.softmax(torch.einsum("b i d, b j d -> b i j", q, k) * 0.25, dim=-1)
    mixed = torch.einsum("b i j, b j d -> b i d", weights, v)
    return mixed.reshape(batch, 2, pixels, 16).transpose(2, 3).reshape(batch, channels, pixels)


def _guided_diffusion(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch

    batch, channels, pixels = q.shape
    q, k, v = (x.reshape(batch * 2, 16, pixels) for x in (q, k, v))
    weights = torch.softmax(torch.einsum("bct,bcs->bts", q * 0.5, k * 0.5), dim=-1)
    return torch.einsum("bts,bcs->bct", weights, v).reshape(batch, channels, pixels)


def _vit_pytorch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch

    batch, channels, pixels = q.shape
    q, k, v = (x.reshape(batch, 2, 16, pixels).transpose(2, 3) for x in (q, k, v))
    weights = torch.softmax(torch.einsum("b h i d, b h j d -> b h i j", q, k) * 0.25, dim=-1)
    mixed = torch.einsum("b h i j, b h j d -> b h i d", weights, v)
    return mixed.transpose(2, 3).reshape(batch, channels, pixels)


def _flax(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch

    batch, channels, pixels = q.shape
    q, k, v = (x.transpose(1, 2).reshape(batch, pixels, 2, 16) for x in (q, k, v))
    weights = torch.softmax(torch.einsum("...qhd,...khd->...hqk", q / 4.0, k), dim=-1)
    mixed = torch.einsum("...hqk,...khd->...qhd", weights, v)
    return mixed.reshape(batch, pixels, channels).transpose(1, 2)


def _autoencoder(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch

    weights = torch.softmax(torch.bmm(q.permute(0, 2, 1), k) * 32**-0.5, dim=2)
    return torch.bmm(v, weights.permute(0, 2, 1))


def _non_local(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch

    weights = torch.softmax(q.permute(0, 2, 1) @ k, dim=-1)
    return (weights @ v.permute(0, 2, 1)).permute(0, 2, 1)


_ATTENTIONS = {
    "latent_diffusion": _latent_diffusion,
    "guided_diffusion": _guided_diffusion,
    "vit_pytorch": _vit_pytorch,
    "autoencoder": _autoencoder,
    "non_local": _non_local,
    "flax": _flax,
}
"""Queries, keys and values [batch, channels, pixels] → what attention gives for them, in the same layout."""


def _grid(*, grid: bool) -> torch.nn.Module:
    """Attention within the windows of an image [batch, 8, 8, 32], or along its grid."""
    import torch

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(32)
            self.qkv, self.projection = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
            self.bias = torch.nn.Parameter(torch.randn(2, 16, 16) * 0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch = x.shape[0]
            if grid:
                windows = x.reshape(batch, 4, 2, 4, 2, 32).permute(0, 2, 4, 1, 3, 5)
            else:
                windows = x.reshape(batch, 2, 4, 2, 4, 32).permute(0, 1, 3, 2, 4, 5)
            q, k, v = self.qkv(self.norm(windows)).reshape(-1, 16, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
            weights = torch.softmax(q @ k.transpose(-2, -1) * 0.25 + self.bias, dim=-1)
            mixed = self.projection((weights @ v).transpose(1, 2).reshape(-1, 16, 32)).reshape(batch, 2, 2, 4, 4, 32)
            order = (0, 3, 1, 4, 2, 5) if grid else (0, 1, 3, 2, 4, 5)
            return x + mixed.permute(*order).reshape(batch, 8, 8, 32)

    return Attention()
