"""Exports small diffusion networks of diffusers by both exporters of torch, fuses and times them. Writes `diffusion_models.md`.

    pip install diffusers transformers torch onnxscript
    python benchmarks/diffusion_models.py [--only 'Wan*'] [--models DIR] [--budget 1] [--jobs 1] [--write]

The networks have one or two blocks, four heads of 32 elements and random weights; sizes are fixed, as most of these networks ask
for. Attentions are counted while a network runs. `fuse` runs with its defaults, including verification, on the unchanged exports.
Times are processor time on one thread, the original and the fused model in turn.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from architectures import ATTENTION, ROTARY
from exported_models import Task, command_line, export_options, fused_and_timed, line, rows
from networks import counted
from rows import tell
from taking_turns import Ratio, open_session

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.timing.tuning import processor  # noqa: E402

if TYPE_CHECKING:
    import torch

NONE = "no model that onnxruntime loads"
"""The verdict where torch does not export a network, or onnxruntime refuses the export."""
LIMIT = 300.0
"""Seconds for one network, everything included."""

HEADS = {"num_attention_heads": 4, "attention_head_dim": 32}
TEXT = (1, 32, 128)
"""The shape of the encoded text: batch, length, size."""
IMAGE = (1, 4, 16, 16)
VIDEO = (1, 4, 2, 16, 16)
PAIRS = {**HEADS, "num_layers": 1, "num_single_layers": 1, "in_channels": 16, "patch_size": 1, "joint_attention_dim": 128}
VIDEO_BLOCKS = {
    **HEADS,
    "in_channels": 4,
    "out_channels": 4,
    "text_dim": 128,
    "ffn_dim": 256,
    "num_layers": 1,
    "freq_dim": 64,
    "rope_max_seq_len": 32,
}
SD3 = {
    **HEADS,
    "sample_size": 16,
    "in_channels": 4,
    "num_layers": 2,
    "caption_projection_dim": 128,
    "joint_attention_dim": 128,
    "pooled_projection_dim": 64,
    "out_channels": 4,
    "pos_embed_max_size": 16,
}

Inputs = Mapping[str, tuple[int, ...] | str]
"""Name of an input → its shape. "time" for a time step, "kind" for the number of a class, "ids N K" for positions, "mask N"
for a text without padding."""
SD3_INPUTS: Inputs = {"hidden_states": IMAGE, "encoder_hidden_states": TEXT, "pooled_projections": (1, 64), "timestep": "time"}
VIDEO_INPUTS: Inputs = {"hidden_states": VIDEO, "encoder_hidden_states": TEXT, "timestep": "time"}

NETWORKS: Mapping[str, tuple[Mapping[str, Any], Inputs]] = {
    "AuraFlowTransformer2DModel": (
        {
            **HEADS,
            "sample_size": 16,
            "in_channels": 4,
            "num_mmdit_layers": 1,
            "num_single_dit_layers": 1,
            "out_channels": 4,
            "caption_projection_dim": 128,
            "joint_attention_dim": 128,
            "pos_embed_max_size": 64,
        },
        {"hidden_states": IMAGE, "encoder_hidden_states": TEXT, "timestep": "time"},
    ),
    "AutoencoderKL": (
        {
            "block_out_channels": [32, 64],
            "norm_num_groups": 8,
            "latent_channels": 4,
            "down_block_types": ["DownEncoderBlock2D"] * 2,
            "up_block_types": ["UpDecoderBlock2D"] * 2,
        },
        {"sample": (1, 3, 32, 32)},
    ),
    "AutoencoderKLWan": (
        {"base_dim": 32, "z_dim": 16, "dim_mult": [1, 1], "num_res_blocks": 1, "temperal_downsample": [True]},
        {"sample": (1, 3, 5, 32, 32)},
    ),
    "BriaTransformer2DModel": (
        {**PAIRS, "pooled_projection_dim": None, "axes_dims_rope": [0, 16, 16]},
        {
            "hidden_states": (1, 256, 16),
            "encoder_hidden_states": TEXT,
            "timestep": "time",
            "img_ids": "ids 256 3",
            "txt_ids": "ids 32 3",
        },
    ),
    "CogView4Transformer2DModel": (
        {**HEADS, "in_channels": 4, "out_channels": 4, "num_layers": 1, "text_embed_dim": 128, "time_embed_dim": 128},
        {
            "hidden_states": IMAGE,
            "encoder_hidden_states": TEXT,
            "timestep": "time",
            "original_size": (1, 2),
            "target_size": (1, 2),
            "crop_coords": (1, 2),
        },
    ),
    "DiTTransformer2DModel": (
        {**HEADS, "in_channels": 4, "num_layers": 1, "sample_size": 16, "num_embeds_ada_norm": 8, "norm_type": "ada_norm_zero"},
        {"hidden_states": IMAGE, "timestep": "time", "class_labels": "kind"},
    ),
    "Flux2Transformer2DModel": (
        {**PAIRS, "axes_dims_rope": [8, 8, 8, 8], "timestep_guidance_channels": 64},
        {
            "hidden_states": (1, 256, 16),
            "encoder_hidden_states": TEXT,
            "timestep": "time",
            "guidance": (1,),
            "img_ids": "ids 256 4",
            "txt_ids": "ids 32 4",
        },
    ),
    "FluxTransformer2DModel": (
        {**PAIRS, "pooled_projection_dim": 64, "axes_dims_rope": [8, 12, 12]},
        {
            "hidden_states": (1, 256, 16),
            "encoder_hidden_states": TEXT,
            "pooled_projections": (1, 64),
            "timestep": "time",
            "img_ids": "ids 256 3",
            "txt_ids": "ids 32 3",
        },
    ),
    "LTXVideoTransformer3DModel": (
        {**HEADS, "in_channels": 16, "out_channels": 16, "cross_attention_dim": 128, "num_layers": 1, "caption_channels": 128},
        {"hidden_states": (1, 256, 16), "encoder_hidden_states": TEXT, "timestep": "time", "encoder_attention_mask": "mask 32"},
    ),
    "SD3Transformer2DModel": (SD3, SD3_INPUTS),
    "SD3Transformer2DModel (3.5)": ({**SD3, "qk_norm": "rms_norm"}, SD3_INPUTS),
    "SanaTransformer2DModel": (
        {
            **HEADS,
            "in_channels": 4,
            "out_channels": 4,
            "num_layers": 1,
            "sample_size": 16,
            "caption_channels": 128,
            "num_cross_attention_heads": 4,
            "cross_attention_head_dim": 32,
            "cross_attention_dim": 128,
        },
        {"hidden_states": IMAGE, "encoder_hidden_states": TEXT, "timestep": "time"},
    ),
    "SkyReelsV2Transformer3DModel": (VIDEO_BLOCKS, VIDEO_INPUTS),
    "UNet2DConditionModel": (
        {
            "block_out_channels": [32, 64],
            "norm_num_groups": 8,
            "sample_size": 16,
            "cross_attention_dim": 128,
            "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
            "attention_head_dim": 8,
            "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
            "layers_per_block": 1,
        },
        {"sample": IMAGE, "timestep": "time", "encoder_hidden_states": TEXT},
    ),
    "WanTransformer3DModel": (VIDEO_BLOCKS, VIDEO_INPUTS),
}
"""Name of a network, with a version in brackets where there are several → its settings and its inputs."""
FIXED = {"LTXVideoTransformer3DModel": {"num_frames": 1, "height": 16, "width": 16}}
"""Arguments that are not tensors."""

HEAD = """\
# Diffusion networks of diffusers

Made by `python benchmarks/diffusion_models.py --write` with diffusers {diffusers}, torch {torch} and onnxruntime
{onnxruntime}, on an {processor}. Each network has one or two blocks, random weights and fixed sizes.
torch's exporters wrote it: TorchScript at opset 17, dynamo at opset 18. *attention* is found/called: the number of
operators in the fused model, and of attentions in one run of the network. *time* is that of the fused model as a share
of the original's: the median, with the least and most of parts of the runs, on one thread. *undone*: fusions that
verification could not show to be right.

**{equivalent} of {graphs} graphs are equivalent; {found} of {called} attentions are found, with {rotary} rotary embeddings.
{before:,} nodes became {after:,}. The median of the times is {typical:.2f}; above 1.02: {slower}.**

| network | exporter | attention | rotary | nodes | undone | verdict | time |
|---|---|---:|---:|---:|---:|---|---:|
"""


@dataclass(frozen=True)
class Row:
    """What became of a network. called: attentions in one run. time: of the fused model, by that of the original."""

    task: Task
    called: int = 0
    found: int = 0
    rotary: int = 0
    before: int = 0
    after: int = 0
    undone: int = 0
    verdict: str = ""
    time: Ratio | None = None

    def __str__(self) -> str:
        if self.verdict == NONE:
            return f"| {self.task.name} | {self.task.exporter} | | | | | {NONE} | |"
        attention, nodes = f"{self.found}/{self.called}", f"{self.before} → {self.after}"
        cells = (self.task.name, self.task.exporter, attention, self.rotary, nodes, self.undone, self.verdict)
        return line(*cells, time=self.time)


def measure(task: Task) -> Row:
    """Make the network, count its attentions, export it, fuse it, time it."""
    try:
        feeds, called = exported(task)
    except Exception:  # of torch's exporter, or of onnxruntime, which refuses some of its models
        return Row(task, verdict=NONE)
    result, time = fused_and_timed(task, feeds)
    assert result.verdict is not None
    found, rotary = (sum(result.operators_after.get(o, 0) for o in operators) for operators in (ATTENTION, ROTARY))
    counts = (called, found, rotary, result.nodes_before, result.nodes_after, len(result.undone))
    return Row(task, *counts, result.verdict.verdict, time)


def exported(task: Task) -> tuple[dict[str, Any], int]:
    """Write the model of a network. Returns feeds for it, and the number of attentions in one run."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    import diffusers
    import torch

    torch.manual_seed(0)
    settings, shapes = NETWORKS[task.name]
    network = getattr(diffusers, task.name.split(" ")[0])(**settings).eval()
    for parameter in network.parameters():
        if not parameter.any():  # gates and last layers begin with zeros, which would hide what is in front of them
            parameter.data.normal_(0, 0.1)
    if task.exporter == "TorchScript":  # it can't export this function
        torch.nn.functional.rms_norm = _rms_norm  # type: ignore[assignment]
    fixed = {**FIXED.get(task.name, {}), "return_dict": False}

    class Plain(torch.nn.Module):
        """The network with tensors in and one tensor out."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            return self.network(**dict(zip(shapes, tensors, strict=True)), **fixed)[0]

    plain, inputs = Plain(), tuple(map(_drawn, shapes.values()))
    with counted(network) as calls, torch.no_grad():
        plain(*inputs)
    known = export_options(task.exporter) | {"input_names": list(shapes), "output_names": ["result"]}
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        torch.onnx.export(plain, inputs, str(task.model), **known)
    taken = {value.name for value in open_session(task.model, 1).get_inputs()}
    return {n: i.numpy() for n, i in zip(shapes, inputs, strict=True) if n in taken}, calls["attention"]


def _drawn(shape: tuple[int, ...] | str) -> torch.Tensor:
    import torch

    if not isinstance(shape, str):
        return torch.randn(shape)
    kind, *sizes = shape.split(" ")
    if kind == "ids":  # positions in a text or an image
        return torch.arange(int(sizes[0]))[:, None].expand(int(sizes[0]), int(sizes[1])).float()
    if kind == "mask":
        return torch.ones(1, int(sizes[0]))
    return torch.tensor([3]) if kind == "kind" else torch.tensor([0.5])


def _rms_norm(
    x: torch.Tensor, shape: Sequence[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    """RMSNorm over the last axis, in operators that TorchScript exports."""
    import torch

    normal = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + (eps or 1e-6))
    return normal if weight is None else normal * weight


def head(measured: Sequence[Row]) -> str:
    """The text before the rows."""
    good = [row for row in measured if row.time is not None]
    times = [row.time.ratio for row in good if row.time is not None]
    return HEAD.format(
        processor=processor(),
        equivalent=sum(row.verdict == "equivalent" for row in measured),
        graphs=sum(row.verdict != NONE for row in measured),
        found=sum(min(row.found, row.called) for row in good),
        called=sum(row.called for row in good),
        rotary=sum(row.rotary for row in good),
        before=sum(row.before for row in good),
        after=sum(row.after for row in good),
        typical=median(times) if times else float("nan"),
        slower=sum(time > 1.02 for time in times),
        **{name: version(name).partition("+")[0] for name in ("diffusers", "torch", "onnxruntime")},
    )


def main() -> int:
    """Export, fuse and time; return 1 if `fuse` fails or a model is not equivalent."""
    given = command_line(__doc__, "diffusion_models.md", 1.0)
    measured = rows(given, NETWORKS, measure, lambda task, why: Row(task, verdict=why), LIMIT)
    tell(head(measured), map(str, measured), HERE / "diffusion_models.md" if given.write else None)
    return int(any(row.verdict not in ("equivalent", NONE) for row in measured))


if __name__ == "__main__":
    sys.exit(main())
