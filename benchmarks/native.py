"""Times models as they are, fused for onnxruntime, and fused for our library of kernels, and writes `benchmarks/native.md`.

    python benchmarks/native.py CORPUS [--models 'bert*'] [--budget 20] [--threads 1] [--cache DIR] [--write]

All run in turn in one process, in onnxruntime with all its optimisations and the same number of threads; the native model once
for each instruction set of this processor, and once without the library. A ratio is a model's time over the original's, so that
less is better, with its least and most in five parts of the run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from latency import Task, feeds_of, runnable, tasks
from taking_turns import Ratio, open_session, ratio, seconds_of_runs

from onnx_subgraph import Options, fuse, kernels, load_patterns
from onnx_subgraph.kernels.library import ISA

PAGE = Path(__file__).with_name("native.md")
MODELS = (
    "bert_l4_sdpa.ts14",
    "distilbert.dyn18",
    "minilm_sentence.dyn18",
    "gpt2.dyn18",
    "llama.dyn18",
    "qwen2.dyn18",
    "swin_tiny.dyn18",
)
PREFACE = """\
# Models with our kernels

Made by `python benchmarks/native.py CORPUS --write` with onnxruntime {version} on {processor}, {threads}. Each number is a
model's time over the original's, both run by onnxruntime with all its optimisations, in turn: of medians, with the least and most
in five parts of the run. *onnxruntime* is `fuse`; *by definition* is `fuse --target native` without the library; the others are
with it, held to that instruction set, while the original has all that the processor has. *kernels* are the operators of ours
that a model has.
"""


@dataclass(frozen=True)
class Row:
    """One model. milliseconds: of the original. ratios: by column. operators: how many of ours."""

    name: str
    milliseconds: float
    ratios: Mapping[str, Ratio]
    operators: Mapping[str, int]


def with_library(path: Path, threads: int, isa: str) -> onnxruntime.InferenceSession:
    """A session with the library, held to an instruction set."""
    os.environ[ISA] = isa
    try:
        return open_session(path, threads, (kernels.path(),))
    finally:
        del os.environ[ISA]


def measure(task: Task) -> Row:
    """Make the models of a task, and time them in turn."""
    with tempfile.TemporaryDirectory() as folder:
        original = runnable(task, Path(folder))
        made = {target: Path(folder) / f"{target}.onnx" for target in ("onnxruntime", "native")}
        library = load_patterns()
        results = {target: fuse(original, path, library, Options(target=target, verify=False)) for target, path in made.items()}
        feeds = feeds_of(original, task)
        sessions = {
            "original": open_session(original, task.threads),
            "onnxruntime": open_session(made["onnxruntime"], task.threads),
        }
        sessions["by definition"] = open_session(made["native"], task.threads)
        for isa in kernels.describe().here[1:]:
            sessions[isa] = with_library(made["native"], task.threads, isa)
        expected = sessions["original"].run(None, feeds)
        for name, session in sessions.items():
            for a, b in zip(session.run(None, feeds), expected, strict=True):
                assert not isinstance(a, np.ndarray) or a.dtype.kind != "f" or np.allclose(a, b, rtol=1e-2, atol=1e-3), name
        times = seconds_of_runs(sessions, feeds, task.budget, task.threads)
    ratios = {name: ratio(times[name], times["original"]) for name in times if name != "original"}
    count = {op: n for op, n in results["native"].operators_after.items() if op.startswith("onnx_subgraph.")}
    return Row(task.name, float(np.median(times["original"])) * 1e3, ratios, count)


def page(rows: list[Row], threads: int) -> str:
    """The page of all rows."""
    names = list(rows[0].ratios)
    lines = [f"| model | ms | {' | '.join(names)} | kernels |", f"|---|---|{'---|' * (len(names) + 1)}"]
    for row in rows:
        cells = [f"{r.ratio:.3f} ({r.least:.2f}–{r.most:.2f})" for r in row.ratios.values()]
        used = ", ".join(f"{op.removeprefix('onnx_subgraph.')} {n}" for op, n in row.operators.items())
        lines.append(f"| {row.name} | {row.milliseconds:.1f} | {' | '.join(cells)} | {used} |")
    means = [math.exp(sum(math.log(row.ratios[name].ratio) for row in rows) / len(rows)) for name in names]
    lines.append(f"| **geometric mean** | | {' | '.join(f'**{mean:.3f}**' for mean in means)} | |")
    said = f"{threads} thread{'' if threads == 1 else 's'}"
    return PREFACE.format(version=onnxruntime.__version__, processor=processor(), threads=said) + "\n" + "\n".join(lines) + "\n"


def processor() -> str:
    """The processor and its instruction sets that matter here."""
    return f"a processor ({platform.machine()}) with {', '.join(kernels.describe().here[1:]) or 'no instruction set of ours'}"


def main() -> None:
    """Time the models."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models_or_corpus", type=Path, nargs=1, metavar="CORPUS")
    parser.add_argument("--models", default="*", help="a glob over the names of the corpus, in place of the usual ones")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of timing for one model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", type=Path, help="a folder of runnable models, filled as needed")
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.set_defaults(dims=[], shape=[], made=None)
    given = parser.parse_args()
    rows = []
    for task in tasks(given):
        if given.models != "*" or task.name in MODELS:
            rows.append(measure(task))
            print(json.dumps(asdict(rows[-1])), flush=True)
    print(text := page(rows, given.threads))
    if given.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
