"""Architectures of transformers, made small and exported by both of torch's exporters: is their attention found, and is it right?

    pip install torch transformers onnxscript
    python benchmarks/architectures.py [--only 'g*'] [--models DIR] [--write]

What a network calls is counted while it runs: each scaled dot-product attention and each Softmax is one attention, each query
or key that is turned one rotary embedding. `fuse` runs with its defaults, verification included, on the graphs as the exporters
write them, with symbolic batch and length. Weights are random, so that nothing is downloaded.
"""

from __future__ import annotations

import argparse
import fnmatch
import logging
import os
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import workers

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.language.library import load_patterns  # noqa: E402
from onnx_subgraph.pipeline import Options, fuse  # noqa: E402

ATTENTION = ("Attention", "com.microsoft.Attention", "com.microsoft.MultiHeadAttention", "com.microsoft.GroupQueryAttention")
ROTARY = ("RotaryEmbedding", "com.microsoft.RotaryEmbedding")
TURNS = ("apply_rotary_pos_emb", "apply_rotary_position_embeddings")
"""The functions of transformers that turn a query, a key, or both."""
EXPORTERS = ("TorchScript", "dynamo")
LIMIT = 300.0

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
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
IMAGE = {**TEXT, "image_size": 32, "patch_size": 8}

DECODERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "biogpt": ("BioGptConfig", TEXT),
    "bloom": ("BloomConfig", {"vocab_size": 128, "hidden_size": 64, "n_layer": 2, "n_head": 4}),
    "codegen": ("CodeGenConfig", {**OLD, "rotary_dim": 8}),
    "cohere": ("CohereConfig", SHARED),
    "cohere2": ("Cohere2Config", {**SHARED, "sliding_window": 4}),
    "falcon": ("FalconConfig", {k: v for k, v in TEXT.items() if "intermediate" not in k}),
    "gemma2": ("Gemma2Config", {**SHARED, "head_dim": 16}),
    "gemma3": ("Gemma3TextConfig", {**SHARED, "head_dim": 16}),
    "glm": ("GlmConfig", {**SHARED, "head_dim": 16, "pad_token_id": 0}),
    "glm4": ("Glm4Config", {**SHARED, "head_dim": 16, "pad_token_id": 0}),
    "gpt_bigcode": ("GPTBigCodeConfig", OLD),
    "gpt_neo": (
        "GPTNeoConfig",
        {"vocab_size": 128, "hidden_size": 64, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 64, "window_size": 4}
        | {"attention_types": [[["global", "local"], 1]]},
    ),
    "gpt_neox": ("GPTNeoXConfig", {**TEXT, "rotary_pct": 0.5}),
    "gptj": ("GPTJConfig", {**OLD, "rotary_dim": 8}),
    "granite": ("GraniteConfig", SHARED),
    "helium": ("HeliumConfig", {**SHARED, "head_dim": 16, **TOKENS}),
    "mistral": ("MistralConfig", {**SHARED, "sliding_window": 4}),
    "mpt": ("MptConfig", {"vocab_size": 128, "d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": 64}),
    "nemotron": ("NemotronConfig", {**SHARED, "head_dim": 16, **TOKENS}),
    "olmo": ("OlmoConfig", {**TEXT, **TOKENS}),
    "olmo2": ("Olmo2Config", {**TEXT, **TOKENS}),
    "opt": (
        "OPTConfig",
        {**{k: v for k, v in TEXT.items() if "intermediate" not in k}, "ffn_dim": 128, "word_embed_proj_dim": 64},
    ),
    "phi": ("PhiConfig", TEXT),
    "phi3": ("Phi3Config", {**TEXT, **TOKENS}),
    "qwen3": ("Qwen3Config", {**SHARED, "head_dim": 16}),
    "smollm3": ("SmolLM3Config", {**SHARED, **TOKENS}),
    "stablelm": ("StableLmConfig", SHARED),
    "starcoder2": ("Starcoder2Config", SHARED),
    "xglm": ("XGLMConfig", {"vocab_size": 128, "d_model": 64, "num_layers": 2, "attention_heads": 4, "ffn_dim": 128}),
}
ENCODERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "albert": ("AlbertConfig", {**TEXT, "embedding_size": 32}),
    "data2vec_text": ("Data2VecTextConfig", TEXT),
    "electra": ("ElectraConfig", {**TEXT, "embedding_size": 32}),
    "ernie": ("ErnieConfig", TEXT),
    "mobilebert": ("MobileBertConfig", {**TEXT, "embedding_size": 32, "intra_bottleneck_size": 32}),
    "modernbert": ("ModernBertConfig", {**TEXT, **TOKENS, "cls_token_id": 1, "sep_token_id": 2}),
    "mpnet": ("MPNetConfig", TEXT),
    "roformer": ("RoFormerConfig", {**TEXT, "embedding_size": 64}),
    "squeezebert": ("SqueezeBertConfig", {**TEXT, "embedding_size": 64}),
    "xlm_roberta": ("XLMRobertaConfig", TEXT),
}
VISION: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "beit": ("BeitConfig", {**IMAGE, "use_relative_position_bias": True}),
    "deit": ("DeiTConfig", IMAGE),
    "dinov2": ("Dinov2Config", {**IMAGE, "mlp_ratio": 2}),
    "siglip_vision": ("SiglipVisionConfig", IMAGE),
}
KINDS = {"decoder": DECODERS, "encoder": ENCODERS, "vision": VISION}


@dataclass(frozen=True)
class Task:
    """One architecture through one exporter. model: the file it becomes."""

    kind: str
    name: str
    exporter: str
    model: Path


@dataclass(frozen=True)
class Row:
    """What became of it: attentions and rotary embeddings as (found, called), the verdict, and what is to be said besides."""

    task: Task
    attention: tuple[int, int]
    rotary: tuple[int, int]
    verdict: str
    remark: str = ""

    def __str__(self) -> str:
        found = [f"{mine}/{called}" if called else "" for mine, called in (self.attention, self.rotary)]
        return f"| {self.task.name} | {self.task.exporter} | {' | '.join(found)} | {self.verdict} | {self.remark} |"


def measure(task: Task) -> Row:
    """Make the network, count what it calls, export it, fuse it."""
    try:
        called = exported(task)
    except Exception as error:
        return Row(task, (0, 0), (0, 0), "none", f"not exported: {_words(error)}")
    result = fuse(task.model, None, load_patterns(), Options(dry_run=True))
    assert result.verdict is not None
    verdict = result.verdict
    if verdict.reason.startswith("no feeds were found that the original model runs on"):
        return Row(task, (0, 0), (0, 0), "none", "onnxruntime can't run the model as it was exported")
    found = [sum(result.operators_after.get(o, 0) for o in operators) for operators in (ATTENTION, ROTARY)]
    skipped = Counter(s.reason for s in result.skipped if "attention" in s.pattern or "rotary" in s.pattern)
    remark = skipped.most_common(1)[0][0] if found[0] < called["attention"] and skipped else ""
    said = f"{verdict.verdict}, {verdict.strength}" if verdict.strength else verdict.verdict
    return Row(task, (found[0], called["attention"]), (found[1], called["rotary"]), said, remark)


def exported(task: Task) -> Counter[str]:
    """Export the network of a task, and count the attentions and rotary embeddings that one forward pass calls."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    import torch
    import transformers

    kind, config = KINDS[task.kind][task.name]
    loader = transformers.AutoModelForCausalLM if task.kind == "decoder" else transformers.AutoModel
    torch.manual_seed(0)
    network = loader.from_config(getattr(transformers, kind)(**config)).eval()

    class Plain(torch.nn.Module):
        """The network with tensors in and one tensor out."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, first: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
            if task.kind == "vision":
                return self.network(pixel_values=first)[0]
            cache = {"use_cache": False} if task.kind == "decoder" else {}
            return self.network(input_ids=first, attention_mask=others[0], **cache)[0]

    if task.kind == "vision":
        inputs, names = (torch.randn(2, 3, 32, 32),), {"pixels": {0: "batch"}}
    else:
        names = {"tokens": {0: "batch", 1: "length"}, "mask": {0: "batch", 1: "length"}}
        inputs = (torch.randint(3, 100, (2, 7)), torch.ones(2, 7, dtype=torch.long))
    plain = Plain()
    with counted(network) as calls, torch.no_grad():
        plain(*inputs)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        if task.exporter == "dynamo":
            first, *others = names.values()
            shapes = {"first": first, **({"others": tuple(others)} if others else {})}
            known = {"opset_version": 18, "dynamo": True, "dynamic_shapes": shapes, "external_data": False, "verbose": False}
        else:
            known = {"opset_version": 17, "dynamo": False, "dynamic_axes": names}
        torch.onnx.export(plain, inputs, str(task.model), input_names=list(names), output_names=["result"], **known)
    return calls


@contextmanager
def counted(network: Any) -> Iterator[Counter[str]]:
    """The attentions and rotary embeddings that are called inside."""
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
            calls["attention"] += function in attentions
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


HEAD = """\
# Architectures of transformers

Made by `python benchmarks/architectures.py --write` with transformers {transformers}, torch {torch} and onnxruntime
{onnxruntime}: networks of two layers with random weights, as torch's exporters write them, TorchScript at opset 17 and dynamo at
opset 18, with symbolic batch and length. *attention* and *rotary* are found/called: how many operators the fused model has, and
how many attentions and rotations of a query or a key one forward pass of the network calls.

**{found} of {called} attentions and {turned} of {turns} rotary embeddings are found in {graphs} graphs;
{equivalent} of them are equivalent.**

| architecture | exporter | attention | rotary | verdict | remark |
|---|---|---:|---:|---|---|
"""


def page(measured: Sequence[Row]) -> str:
    """The page of all rows."""
    sound = [row for row in measured if row.verdict != "none"]
    head = HEAD.format(
        found=sum(min(row.attention) for row in sound),
        called=sum(row.attention[1] for row in sound),
        turned=sum(min(row.rotary) for row in sound),
        turns=sum(row.rotary[1] for row in sound),
        graphs=len(sound),
        equivalent=sum(row.verdict.startswith("equivalent") for row in sound),
        **{name: version(name) for name in ("transformers", "torch", "onnxruntime")},
    )
    return head + "\n".join(map(str, measured)) + "\n"


def _words(error: Exception) -> str:
    """The kind of an error and its first sentence."""
    text = re.sub(r"\x1b\[\d+m", "", str(error)).strip()
    first = re.split(r"\.\s|\n", text)[0]
    return f"{type(error).__name__}: {first[:160]}"


def main() -> None:
    """Export and fuse; exit 1 where `fuse` fails or its model is not equivalent."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", default="*", metavar="GLOB", help="the architectures")
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--models", type=Path, metavar="DIR", help="a folder that keeps the exported models")
    arguments.add_argument("--write", action="store_true", help="write architectures.md")
    given = arguments.parse_args()
    measured: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        models = given.models or Path(folder)
        models.mkdir(parents=True, exist_ok=True)
        tasks = [
            Task(kind, name, exporter, models / f"{name}.{exporter}.onnx")
            for kind, table in KINDS.items()
            for name in fnmatch.filter(table, given.only)
            for exporter in EXPORTERS
        ]
        for outcome in workers.run(measure, tasks, jobs=given.jobs, limit=LIMIT):
            row = outcome.result or Row(outcome.task, (0, 0), (0, 0), "failed", outcome.failure.strip().splitlines()[-1][:160])
            measured.append(row)
            print(row, flush=True)
    if given.write:
        (HERE / "architectures.md").write_text(page(measured), encoding="utf-8")
    sys.exit(any(not row.verdict.startswith(("equivalent", "none")) for row in measured))


if __name__ == "__main__":
    main()
