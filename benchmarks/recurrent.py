"""Times a step of language models that keep states: Mamba, gated delta networks, and convolutions behind a cache.

    pip install torch transformers onnxscript
    python benchmarks/recurrent.py [--only 'q*'] [--budget 3] [--keep FOLDER] [--write]

Each network has two layers, or three or four where its kinds of layers alternate, and random weights, so nothing is downloaded.
Both exporters of torch write one step: one token, and the states, keys and values of the tokens before it, which are inputs and
outputs. Behind layers of attention are 128 past tokens. `fuse` runs with its defaults, including verification. Both models run in
turn, on one thread. A time is the lower quartile of the processor time of the runs. The ratio is to the exported model, for all
runs, with the least and the most of parts of the runs.
"""

from __future__ import annotations

import argparse
import fnmatch
import inspect
import logging
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from networks import EXPORTERS
from taking_turns import open_session, quartiles, seconds_of_runs

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.language.library import load_patterns  # noqa: E402
from onnx_subgraph.options import Options  # noqa: E402
from onnx_subgraph.pipeline import fuse  # noqa: E402
from onnx_subgraph.timing.tuning import processor  # noqa: E402

PAST = 128
"""The past tokens of layers of attention."""
WIDTH = {"vocab_size": 1000, "hidden_size": 256}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
DENSE = {**WIDTH, **HEADS, "intermediate_size": 512}
FEW_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 128}
DELTA = {
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "layer_types": ["linear_attention", "full_attention"],
    "num_hidden_layers": 2,
}
SCAN = {"mamba_n_heads": 8, "mamba_d_head": 64, "mamba_d_state": 64, "mamba_n_groups": 1}

NETWORKS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "bamba": ("BambaConfig", {**DENSE, **SCAN, "num_hidden_layers": 2, "attn_layer_indices": [1]}),
    "falcon_h1": ("FalconH1Config", {**DENSE, **SCAN, "num_hidden_layers": 2, "mamba_d_ssm": 512, "head_dim": 64}),
    "falcon_mamba": ("FalconMambaConfig", {**WIDTH, "num_hidden_layers": 2}),
    "granitemoehybrid": (
        "GraniteMoeHybridConfig",
        {
            **DENSE,
            **SCAN,
            "num_hidden_layers": 2,
            "layer_types": ["mamba", "attention"],
            "shared_intermediate_size": 512,
            "num_local_experts": 0,
        },
    ),
    "jamba": (
        "JambaConfig",
        {
            **DENSE,
            "num_hidden_layers": 2,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "num_experts": 1,
            "use_mamba_kernels": False,
        },
    ),
    "kimi_linear": (
        "KimiLinearConfig",
        {
            **DENSE,
            **FEW_EXPERTS,
            "num_key_value_heads": 4,
            "num_hidden_layers": 2,
            "num_local_experts": 4,
            "kv_lora_rank": 64,
            "qk_rope_head_dim": 16,
            "qk_nope_head_dim": 32,
            "v_head_dim": 32,
            "linear_num_heads": 4,
            "linear_head_dim": 64,
            "layer_types": ["linear_attention", "full_attention"],
            "mlp_layer_types": ["dense", "dense"],
        },
    ),
    "lfm2": ("Lfm2Config", {**DENSE, "num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]}),
    "mamba": ("MambaConfig", {**WIDTH, "num_hidden_layers": 2}),
    "mamba2": (
        "Mamba2Config",
        {**WIDTH, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 64, "n_groups": 1, "state_size": 64},
    ),
    "nemotron_h": (
        "NemotronHConfig",
        {
            **DENSE,
            "layers_block_type": ["mamba", "mlp", "attention"],
            "head_dim": 64,
            "mamba_num_heads": 8,
            "mamba_head_dim": 64,
            "ssm_state_size": 64,
            "n_groups": 1,
        },
    ),
    "olmo_hybrid": (
        "OlmoHybridConfig",
        {**DENSE, **DELTA, "num_key_value_heads": 4, "linear_num_key_heads": 4, "linear_num_value_heads": 4},
    ),
    "qwen3_5": ("Qwen3_5TextConfig", {**DENSE, **DELTA, "head_dim": 64}),
    "qwen3_next": ("Qwen3NextConfig", {**DENSE, **DELTA, "head_dim": 64, "num_experts": 0}),
    "zamba2": (
        "Zamba2Config",
        {
            **DENSE,
            "num_hidden_layers": 3,
            "layers_block_type": ["mamba", "hybrid", "mamba"],
            "num_key_value_heads": 4,
            "n_mamba_heads": 8,
            "mamba_d_state": 64,
            "num_mem_blocks": 1,
        },
    ),
}

PAGE = """\
# Steps of language models with states

Made by `python benchmarks/recurrent.py --write` with transformers {transformers}, torch {torch} and onnxruntime
{onnxruntime} on {machine}. A network has two or three layers of width 256 and random weights. It computes
one new token from the states of the tokens before it; behind layers of attention are {past} past tokens. One thread. The time
is that of the fused model as a ratio to the exported one, so below 1 is faster. TorchScript exports at opset 17, dynamo at 18.

| network | exporter | nodes | time | verdict | fused |
|---|---|---:|---:|---|---|
"""


def states_of(cache: Any) -> Iterator[tuple[str, dict[Any, Any], Any]]:
    """The tensors of a cache: a name, and the dictionary with the key that holds it."""
    for index, layer in enumerate(cache.layers):
        for kind in ("conv_states", "recurrent_states"):
            held = getattr(layer, kind, {})
            for key, value in held.items():
                if value is not None:
                    yield f"{kind}.{index}.{key}", held, key
        for kind in ("keys", "values"):
            if getattr(layer, kind, None) is not None:
                yield f"{kind}.{index}", vars(layer), kind


def export(name: str, exporter: str, path: Path) -> dict[str, np.ndarray]:
    """Export one step of a network. Returns inputs for it."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    import torch
    import transformers

    torch.manual_seed(0)
    made, sizes = NETWORKS[name]
    config = getattr(transformers, made)(**sizes, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    network = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    known = inspect.signature(network.forward).parameters
    word = next(word for word in ("past_key_values", "cache_params", "cache") if word in known)
    past, step = torch.randint(3, 100, (1, PAST)), torch.randint(3, 100, (1, 1))
    with torch.no_grad():
        cache = getattr(network(input_ids=past, use_cache=True), word)
    names = [each for each, _, _ in states_of(cache)]
    has_keys = any(each.startswith("keys") for each in names)

    class Step(torch.nn.Module):
        """One step, with tensors in and out."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: torch.Tensor, *states: torch.Tensor) -> Any:
            for (_, held, key), state in zip(list(states_of(cache)), states, strict=True):
                held[key] = state
                given = {"attention_mask": torch.ones(1, PAST + 1, dtype=torch.int64)} if has_keys else {}
            if "position_ids" in known:
                given["position_ids"] = torch.tensor([[PAST]])
            answer = self.network(input_ids=ids, use_cache=True, **{word: cache}, **given)
            return answer.logits, *(held[key] for _, held, key in states_of(cache))

    tensors = [held[key].clone() for _, held, key in states_of(cache)]
    feeds = {"input_ids": step, **dict(zip(names, tensors, strict=True))}
    options: dict[str, Any] = {
        "opset_version": EXPORTERS[exporter],
        "input_names": list(feeds),
        "output_names": ["logits", *(f"new_{each}" for each in names)],
        "dynamo": exporter != "TorchScript",
    }
    # The cache copies a new state into the old one, of the same shape and type; TorchScript's exporter knows no such operator.
    torch.onnx.register_custom_op_symbolic("aten::copy", lambda _graph, _old, new, _blocking: new, 11)
    if options["dynamo"]:
        options |= {"external_data": False, "verbose": False}
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
        torch.no_grad(),
    ):
        torch.onnx.export(Step(), tuple(value.clone() for value in feeds.values()), str(path), **options)
    return {each: value.numpy() for each, value in feeds.items()}


def row(name: str, exporter: str, folder: Path, budget: float) -> str:
    """The row of one network by one exporter."""
    model = folder / f"{name}.{EXPORTERS[exporter]}.onnx"
    try:
        feeds = export(name, exporter, model)
    except Exception as error:
        return f"| {name} | {exporter} | | | not exported: {type(error).__name__} | |"
    fused = folder / f"{model.stem}.fused.onnx"
    result = fuse(model, fused, load_patterns(), Options())
    assert result.verdict is not None
    sessions = {one: open_session(path, 1, []) for one, path in (("exported", model), ("fused", fused))}
    taken = {entry.name for entry in sessions["exported"].get_inputs()}  # an exporter drops the state that nothing reads
    seconds = seconds_of_runs(sessions, {each: value for each, value in feeds.items() if each in taken}, budget, 1)
    found = quartiles(seconds["fused"], seconds["exported"])
    counted = Counter(rewrite.pattern for rewrite in result.rewrites)
    words = ", ".join(f"{count} {pattern}" for pattern, count in sorted(counted.items()))
    time = f"{found.ratio:.2f} ({found.least:.2f} to {found.most:.2f})"
    nodes = f"{result.nodes_before} → {result.nodes_after}"
    return f"| {name} | {exporter} | {nodes} | {time} | {result.verdict.verdict} | {words} |"


def main() -> None:
    """Export, fuse and time; exit 1 if a model is not equivalent."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", default="*", metavar="GLOB", help="the networks")
    arguments.add_argument("--budget", type=float, default=3.0, metavar="S", help="seconds for each row")
    arguments.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the models there")
    arguments.add_argument("--write", action="store_true", help="write recurrent.md")
    given = arguments.parse_args()
    measured: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        if given.keep is not None:
            given.keep.mkdir(parents=True, exist_ok=True)
        for name in fnmatch.filter(NETWORKS, given.only):
            for exporter in ("TorchScript", "dynamo"):
                measured.append(row(name, exporter, given.keep or Path(folder), given.budget))
                print(measured[-1], flush=True)
    if given.write:
        versions = {package: version(package) for package in ("transformers", "torch", "onnxruntime")}
        head = PAGE.format(machine=processor(), past=PAST, **versions)
        (HERE / "recurrent.md").write_text(head + "\n".join(measured) + "\n", encoding="utf-8")
    sys.exit(any("different" in each or "not-run" in each for each in measured))


if __name__ == "__main__":
    main()
