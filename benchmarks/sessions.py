"""Measures what `onnx_subgraph.InferenceSession` costs when a program starts: the first time, and with a full cache.

    python benchmarks/sessions.py MODEL... [--runs 5] [--page benchmarks/sessions.md]

Each start is a process of its own that imports what it needs and makes one session. Starts with plain onnxruntime and with a full
cache run in turn. A ratio of 1 means that the cache costs nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rows import tell

PLAIN = "import sys, onnxruntime; onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])"
OURS = (
    "import sys, onnx_subgraph; s = onnx_subgraph.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider']); "
    "print(s.prepared.fusions, s.prepared.from_cache, flush=True)"
)


def start(program: str, model: Path, cache: Path) -> tuple[float, str]:
    """Seconds from the start of a Python process to its end, and its output."""
    environment = {**os.environ, "ONNX_SUBGRAPH_CACHE": str(cache), "ONNX_SUBGRAPH_STRICT": "1"}
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program, str(model)], env=environment, check=True, capture_output=True, text=True
    )
    return time.perf_counter() - begun, done.stdout.strip()


def row(model: Path, runs: int) -> str:
    """One line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        first, said = start(OURS, model, cache)
        start(OURS, model, cache)  # from now on the digest of the model file is cached too
        plain, ours, ratios = [], [], []
        for _ in range(runs):
            plain.append(start(PLAIN, model, cache)[0])
            seconds, told = start(OURS, model, cache)
            assert told.endswith("True"), told
            ours.append(seconds)
            ratios.append(seconds / plain[-1])
    size = model.stat().st_size / 2**20
    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return (
        f"| {model.stem} | {size:.0f} | {said.split()[0]} | {statistics.median(plain):.2f} | {first:.1f} "
        f"| {statistics.median(ours):.2f} | {spread} |"
    )


HEAD = """# What a start costs

Made by `python benchmarks/sessions.py MODEL…`. Times are seconds from the start of a Python process to its end. The process makes
one session. *first* fuses, verifies and fills the cache. *second* finds the model in the cache. The ratio is second to plain, the
median of {runs} pairs taken in turn, with the least and the most.

| model | MiB | fusions | plain s | first s | second s | second / plain |
|---|---:|---:|---:|---:|---:|---:|
"""


def main() -> None:
    """Measure, print, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    tell(HEAD.format(runs=arguments.runs), (row(model, arguments.runs) for model in arguments.models), arguments.page)


if __name__ == "__main__":
    main()
