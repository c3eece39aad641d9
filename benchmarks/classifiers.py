"""Times classifiers of texts and images, which read one token of the last layer.

    pip install torch transformers onnxscript
    python benchmarks/classifiers.py [--only 'v*'] [--models DIR] [--budget 3] [--write]

Each network has six layers of width 384 (five layers more than one, so that a layer is a sixth), and random weights, so nothing
is downloaded. Texts have 128 tokens, images 224 × 224 pixels in patches of 16. Both exporters of torch write them; the batch and
the length of texts are symbolic. `fuse` runs with its defaults, including verification; and again without computing one row
only (`rows.py`). The three models run in turn, on one thread. A time is the lower quartile of the processor time of the runs.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
from exported_models import Task, command_line, export_options, rows
from taking_turns import Ratio, open_session, quartiles, seconds_of_runs

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.language.library import load_patterns  # noqa: E402
from onnx_subgraph.options import Options  # noqa: E402
from onnx_subgraph.pipeline import fuse  # noqa: E402
from onnx_subgraph.timing.tuning import processor  # noqa: E402

LIMIT = 300.0
"""Seconds for one network, everything included."""
LENGTH = 128
PIXELS = 224
SIZES = {"num_hidden_layers": 6, "num_attention_heads": 6, "hidden_size": 384, "intermediate_size": 1536}
TEXT = {**SIZES, "vocab_size": 1000}
IMAGE = {**SIZES, "image_size": PIXELS, "patch_size": 16}

NETWORKS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "bert": ("BertConfig", "AutoModelForSequenceClassification", TEXT),
    "beit": ("BeitConfig", "AutoModelForImageClassification", {**IMAGE, "use_mean_pooling": False}),
    "camembert": ("CamembertConfig", "AutoModelForSequenceClassification", TEXT),
    "clip": ("CLIPVisionConfig", "CLIPVisionModelWithProjection", IMAGE),
    "deberta-v2": (
        "DebertaV2Config",
        "AutoModelForSequenceClassification",
        {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 64, "share_att_key": True},
    ),
    "deit": ("DeiTConfig", "DeiTForImageClassification", IMAGE),
    "distilbert": (
        "DistilBertConfig",
        "AutoModelForSequenceClassification",
        {"n_layers": 6, "n_heads": 6, "dim": 384, "hidden_dim": 1536, "vocab_size": 1000},
    ),
    "electra": ("ElectraConfig", "AutoModelForSequenceClassification", {**TEXT, "embedding_size": 128}),
    "modernbert": (
        "ModernBertConfig",
        "AutoModelForSequenceClassification",
        {
            **TEXT,
            "classifier_pooling": "cls",
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "cls_token_id": 1,
            "sep_token_id": 2,
        },
    ),
    "vit": ("ViTConfig", "AutoModelForImageClassification", IMAGE),
    "xlm-roberta": ("XLMRobertaConfig", "AutoModelForSequenceClassification", TEXT),
}

HEAD = """\
# Classifiers

Made by `python benchmarks/classifiers.py --write` with transformers {transformers}, torch {torch} and onnxruntime
{onnxruntime} on {machine}. Networks of six layers of width 384 with random weights, for texts of {length} tokens and
images of {pixels} × {pixels} pixels. One thread. A time is that of the fused model as a ratio to the exported one, so below 1 is
faster. *Whole* is the same without computing only the token that is read. TorchScript exports at opset 17, dynamo at 18.

{equivalent} of {number} models are equivalent to their original. Median: {typical:.2f} of the time, whole {whole:.2f}.

| network | exporter | nodes | for one token | time | whole | verdict |
|---|---|---:|---:|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    """What became of one network. narrowed: the nodes that compute one token. whole: the time if they compute all."""

    task: Task
    verdict: str
    before: int = 0
    after: int = 0
    narrowed: int = 0
    time: Ratio | None = None
    whole: Ratio | None = None

    def __str__(self) -> str:
        cells = [f"{time.ratio:.2f} ({time.least:.2f} to {time.most:.2f})" if time else "–" for time in (self.time, self.whole)]
        nodes = f"{self.before} → {self.after}" if self.before else "–"
        return (
            f"| {self.task.name} | {self.task.exporter} | {nodes} | {self.narrowed} | {cells[0]} | {cells[1]} | {self.verdict} |"
        )


def measure(task: Task) -> Row:
    """Export a network, fuse it in both ways, and time the models."""
    feeds = export(task)
    library, options = load_patterns(), Options()
    with tempfile.TemporaryDirectory() as folder:
        fused, whole = Path(folder, "fused.onnx"), Path(folder, "whole.onnx")
        result = fuse(task.model, fused, library, options)
        with mock.patch("onnx_subgraph.simplification.simplify.narrow", return_value=0):
            fuse(task.model, whole, library, options)
        sessions = {name: open_session(path, 1) for name, path in (("original", task.model), ("fused", fused), ("whole", whole))}
        taken = {value.name for value in sessions["original"].get_inputs()}
        seconds = seconds_of_runs(sessions, {n: array for n, array in feeds.items() if n in taken}, task.budget, 1)
    assert result.verdict is not None
    times = (quartiles(seconds[name], seconds["original"]) for name in ("fused", "whole"))
    return Row(task, result.verdict.verdict, result.nodes_before, result.nodes_after, result.simplified.narrowed, *times)


def export(task: Task) -> dict[str, np.ndarray]:
    """Write the model of a network. Returns inputs for it."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    import torch
    import transformers

    torch.manual_seed(0)
    made, kind, sizes = NETWORKS[task.name]
    config, maker = getattr(transformers, made)(**sizes), getattr(transformers, kind)
    network = (maker.from_config(config) if kind.startswith("Auto") else maker(config)).eval()
    draw = torch.Generator().manual_seed(0)
    inputs: dict[str, torch.Tensor]
    if network.main_input_name == "pixel_values":
        inputs = {"pixel_values": torch.randn(2, 3, PIXELS, PIXELS, generator=draw)}
        axes = {"pixel_values": {0: "batch"}}
    else:
        mask = torch.ones(2, LENGTH, dtype=torch.int64)
        mask[1, LENGTH // 2 :] = 0
        inputs = {"input_ids": torch.randint(3, 1000, (2, LENGTH), generator=draw), "attention_mask": mask}
        axes = {name: {0: "batch", 1: "length"} for name in inputs}

    class Plain(torch.nn.Module):
        """The network with tensors in and one tensor out."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            answer: torch.Tensor = self.network(**dict(zip(inputs, tensors, strict=True)), return_dict=False)[0]
            return answer

    known = export_options(task.exporter) | {"input_names": list(inputs), "output_names": ["result"]}
    if task.exporter == "TorchScript":
        known["dynamic_axes"] = axes
    else:
        known["dynamic_shapes"] = (tuple({a: torch.export.Dim(n) for a, n in axes[name].items()} for name in inputs),)
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
        torch.no_grad(),
    ):
        torch.onnx.export(Plain().eval(), tuple(inputs.values()), str(task.model), **known)
    return {name: value[:1].numpy() for name, value in inputs.items()}


def head(measured: Sequence[Row]) -> str:
    """The text before the rows."""
    good = [(row.time.ratio, row.whole.ratio) for row in measured if row.time is not None and row.whole is not None]
    return HEAD.format(
        machine=processor(),
        length=LENGTH,
        pixels=PIXELS,
        equivalent=sum(row.verdict == "equivalent" for row in measured),
        number=len(good),
        typical=median(time for time, _ in good),
        whole=median(whole for _, whole in good),
        **{name: version(name).partition("+")[0] for name in ("transformers", "torch", "onnxruntime")},
    )


def main() -> int:
    """Export, fuse and time; return 1 if a model is not equivalent."""
    given = command_line(__doc__, "classifiers.md", 3.0)
    measured = rows(given, NETWORKS, measure, Row, LIMIT)
    if given.write:
        (HERE / "classifiers.md").write_text(head(measured) + "".join(f"{row}\n" for row in measured), encoding="utf-8")
    return int(any(row.verdict in ("different", "not-run") for row in measured))


if __name__ == "__main__":
    sys.exit(main())
