"""Exports small transformers of many architectures by both exporters of torch, and counts the attention that is found.

    pip install torch transformers onnxscript
    python benchmarks/architectures.py [--only 'g*'] [--models DIR] [--write]

The calls of a network are counted while it runs. Each scaled dot-product attention, and each Softmax over scores, is one
attention. Each rotated query or key is one rotary embedding. `fuse` runs with its defaults, including verification, on the
unchanged exports, with symbolic batch and length. Weights are random, so nothing is downloaded.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import workers
from networks import EXPORTERS, KINDS, exported

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.language.library import load_patterns  # noqa: E402
from onnx_subgraph.options import Options  # noqa: E402
from onnx_subgraph.pipeline import fuse  # noqa: E402

ATTENTION = ("Attention", "com.microsoft.Attention", "com.microsoft.MultiHeadAttention", "com.microsoft.GroupQueryAttention")
ROTARY = ("RotaryEmbedding", "com.microsoft.RotaryEmbedding")
LIMIT = 300.0
NOT_RUNNABLE = (
    "no feeds were found that the original model runs on",
    "the original model does not run on inputs of its shapes",
    "onnxruntime does not load the original model",
)
"""Reasons of verdicts on exports that onnxruntime can not run."""


@dataclass(frozen=True)
class Task:
    """One architecture through one exporter. model: the file it becomes."""

    kind: str
    name: str
    exporter: str
    model: Path


@dataclass(frozen=True)
class Row:
    """The result of a task: attentions and rotary embeddings as (found, called), the verdict, a remark, and the nodes."""

    task: Task
    attention: tuple[int, int]
    rotary: tuple[int, int]
    verdict: str
    remark: str = ""
    nodes: str = ""

    def __str__(self) -> str:
        found = [f"{mine}/{called}" if called else "" for mine, called in (self.attention, self.rotary)]
        return (
            f"| {self.task.name} | {self.task.exporter} | {' | '.join(found)} | {self.nodes} | {self.verdict} | {self.remark} |"
        )


def measure(task: Task) -> Row:
    """Make the network, count its calls, export it, fuse it."""
    try:
        called = exported(task.kind, task.name, task.exporter, task.model)
    except Exception as error:
        return Row(task, (0, 0), (0, 0), "none", f"not exported: {_words(error)}")
    result = fuse(task.model, None, load_patterns(), Options(dry_run=True))
    assert result.verdict is not None
    verdict = result.verdict
    if verdict.reason.startswith(NOT_RUNNABLE):
        return Row(task, (0, 0), (0, 0), "none", "onnxruntime can't run the exported model")
    found = [sum(result.operators_after.get(o, 0) for o in operators) for operators in (ATTENTION, ROTARY)]
    skipped = Counter(s.reason for s in result.skipped if "attention" in s.pattern or "rotary" in s.pattern)
    remark = skipped.most_common(1)[0][0] if found[0] < called["attention"] and skipped else ""
    said = f"{verdict.verdict}, {verdict.strength}" if verdict.strength else verdict.verdict
    nodes = f"{result.nodes_before} → {result.nodes_after}"
    return Row(task, (found[0], called["attention"]), (found[1], called["rotary"]), said, remark, nodes)


HEAD = """\
# Architectures of transformers

Made by `python benchmarks/architectures.py --write` with transformers {transformers}, torch {torch} and onnxruntime
{onnxruntime}. Each network has two layers, random weights, and symbolic batch and length. torch's exporters wrote it: TorchScript
at opset 17, dynamo at opsets 18 and 23. *attention* and *rotary* are found/called: the number of operators in the fused model,
and the number of attentions and rotations of a query or a key in one forward pass of the network. At opset 23 dynamo writes
these operators by itself; what is left is to move no heads for them. An attention that takes longer when it is fused stays as
it was and does not count, as those of SAM's windows; `--prefer fusion` fuses it.

**{found} of {called} attentions and {turned} of {turns} rotary embeddings are found in {graphs} graphs;
{equivalent} of them are equivalent.**

| architecture | exporter | attention | rotary | nodes | verdict | remark |
|---|---|---:|---:|---:|---|---|
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
        **{name: version(name).partition("+")[0] for name in ("transformers", "torch", "onnxruntime")},
    )
    return head + "\n".join(map(str, measured)) + "\n"


def _words(error: Exception) -> str:
    """The kind of an error and its first sentence."""
    text = re.sub(r"\x1b\[\d+m", "", str(error)).strip()
    first = re.split(r"\.\s|\n", text)[0]
    return f"{type(error).__name__}: {first[:160]}"


def main() -> None:
    """Export and fuse; exit 1 if `fuse` fails or a model is not equivalent."""
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
            for kind in KINDS
            for name in fnmatch.filter(KINDS[kind].networks, given.only)
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
