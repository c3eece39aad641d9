"""Times a step of language models with past keys and values: one token, behind 128 to 4,096 past ones.

    pip install torch transformers onnxscript
    python benchmarks/decoding.py [--only 'q*'] [--budget 3] [--write]

Each network has two layers and random weights, so nothing is downloaded. Both exporters of torch write it, dynamo at two opsets,
with symbolic batch, length and number of past tokens; the new keys and values are outputs. `fuse` runs with its defaults,
including verification, and for our own library. All models of a row run in turn, on one thread. A time is the lower quartile of
the processor time of the runs. A ratio is to the exported model, for all runs, with the least and the most of parts of the runs.
"""

from __future__ import annotations

import argparse
import fnmatch
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from networks import EXPORTERS
from taking_turns import open_session, quartiles, seconds_of_runs

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.kernels import library as kernels  # noqa: E402
from onnx_subgraph.language.library import load_patterns  # noqa: E402
from onnx_subgraph.options import Options  # noqa: E402
from onnx_subgraph.pipeline import fuse  # noqa: E402
from onnx_subgraph.result import FuseResult  # noqa: E402
from onnx_subgraph.timing.tuning import processor  # noqa: E402

SIZES = {
    "vocab_size": 1000,
    "hidden_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "intermediate_size": 1408,
    "max_position_embeddings": 8192,
}
NETWORKS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "gpt2": ("GPT2Config", {"vocab_size": 1000, "n_embd": 512, "n_layer": 2, "n_head": 8, "n_positions": 8192}),
    "llama": ("LlamaConfig", {**SIZES, "num_key_value_heads": 2}),
    "phi": ("PhiConfig", SIZES),
    "qwen3": ("Qwen3Config", {**SIZES, "num_key_value_heads": 2, "head_dim": 64}),
}
LAYERS, HEAD = 2, 64
PASTS = (128, 1024, 4096)
TARGETS = ("onnxruntime", "native")

PAGE = """\
# Steps of language models

Made by `python benchmarks/decoding.py --write` with transformers {transformers}, torch {torch} and onnxruntime
{onnxruntime} on {machine}. A network has two layers of width 512 with 8 heads and random weights. It
computes one new token; the column says how many past ones there are. One thread. Numbers are the time of the fused
model as a ratio to the exported one, so below 1 is faster. *onnxruntime* is the default target of `fuse`; *native* runs
on our own library. TorchScript exports at opset 17, dynamo at 18 and 23.

| network | exporter | target | nodes | {columns} | verdict |
|---|---|---|---:|{rules}---|
"""


def export(name: str, exporter: str, path: Path) -> int:
    """Export one step of a network. Returns the number of heads of its keys."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    import torch
    import transformers

    torch.manual_seed(0)
    made, sizes = NETWORKS[name]
    config = getattr(transformers, made)(**sizes)
    network = transformers.AutoModelForCausalLM.from_config(config).eval()
    heads = int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)

    class Step(torch.nn.Module):
        """One step, with tensors in and out."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: torch.Tensor, mask: torch.Tensor, places: torch.Tensor, *past: torch.Tensor) -> Any:
            cache = transformers.DynamicCache()
            for layer in range(LAYERS):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            made = self.network(input_ids=ids, attention_mask=mask, position_ids=places, past_key_values=cache, use_cache=True)
            return made.logits, *(t for each in made.past_key_values.layers for t in (each.keys, each.values))

    feeds = [torch.from_numpy(value) for value in drawn(heads, 5, batch=2, length=3).values()]
    tokens, past = {0: "batch", 1: "length"}, {0: "batch", 2: "past"}
    axes = [tokens, {0: "batch", 1: "total"}, tokens, *[past] * (2 * LAYERS)]
    names = list(drawn(heads, 5))
    results = ["logits", *(name.replace("past", "present") for name in names[3:])]
    known: dict[str, Any] = {"opset_version": EXPORTERS[exporter], "input_names": names, "output_names": results}
    if exporter == "TorchScript":
        known |= {"dynamo": False, "dynamic_axes": dict(zip(names, axes, strict=True))}
    else:
        known |= {"dynamo": True, "external_data": False, "verbose": False, "dynamic_shapes": (*axes[:3], tuple(axes[3:]))}
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
        torch.no_grad(),
    ):
        torch.onnx.export(Step(), tuple(feeds), str(path), **known)
    return heads


def drawn(heads: int, past: int, *, batch: int = 1, length: int = 1) -> dict[str, np.ndarray]:
    """Inputs of a step behind `past` tokens."""
    draw = np.random.default_rng(0)
    places = np.broadcast_to(np.arange(past, past + length), (batch, length)).copy()
    feeds = {
        "input_ids": draw.integers(3, 100, (batch, length)),
        "attention_mask": np.ones((batch, past + length), np.int64),
        "position_ids": places,
    }
    shape = (batch, heads, past, HEAD)
    each = (f"past.{layer}.{what}" for layer in range(LAYERS) for what in ("key", "value"))
    return feeds | {name: draw.standard_normal(shape, dtype=np.float32) for name in each}


def rows(name: str, exporter: str, folder: Path, budget: float) -> list[str]:
    """The rows of one network by one exporter."""
    model = folder / f"{name}.{EXPORTERS[exporter]}.onnx"
    try:
        heads = export(name, exporter, model)
    except Exception as error:
        return [f"| {name} | {exporter} | |  |{' |' * len(PASTS)} not exported: {type(error).__name__} |"]
    models, fused = {"exported": model}, {}
    for target in TARGETS:
        models[target] = folder / f"{model.stem}.{target}.onnx"
        fused[target] = fuse(model, models[target], load_patterns(), Options(target=target))
    times: dict[str, list[str]] = {target: [] for target in TARGETS}
    for past in PASTS:
        sessions = {one: open_session(path, 1, [kernels.path()] if one == "native" else []) for one, path in models.items()}
        seconds = seconds_of_runs(sessions, drawn(heads, past), budget, 1)
        for target in TARGETS:
            found = quartiles(seconds[target], seconds["exported"])
            times[target].append(f"{found.ratio:.2f} ({found.least:.2f} to {found.most:.2f})")
    return [_row(name, exporter, target, result, times[target]) for target, result in fused.items()]


def _row(name: str, exporter: str, target: str, result: FuseResult, times: list[str]) -> str:
    assert result.verdict is not None
    nodes = f"{result.nodes_before} → {result.nodes_after}"
    return f"| {' | '.join((name, exporter, target, nodes, *times, result.verdict.verdict))} |"


def main() -> None:
    """Export, fuse and time; exit 1 if a model is not equivalent."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", default="*", metavar="GLOB", help="the networks")
    arguments.add_argument(
        "--budget", type=float, default=3.0, metavar="S", help="seconds for each row and number of past tokens"
    )
    arguments.add_argument("--write", action="store_true", help="write decoding.md")
    given = arguments.parse_args()
    measured: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in fnmatch.filter(NETWORKS, given.only):
            for exporter in EXPORTERS:
                for row in rows(name, exporter, Path(folder), given.budget):
                    print(row, flush=True)
                    measured.append(row)
    if given.write:
        versions = {package: version(package) for package in ("transformers", "torch", "onnxruntime")}
        columns = " | ".join(f"{past:,} past" for past in PASTS)
        head = PAGE.format(machine=processor(), columns=columns, rules="---:|" * len(PASTS), **versions)
        (HERE / "decoding.md").write_text(head + "\n".join(measured) + "\n", encoding="utf-8")
    sys.exit(any("different" in row or "not-run" in row for row in measured))


if __name__ == "__main__":
    main()
