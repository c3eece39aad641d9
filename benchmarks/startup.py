"""Measures the start of a command: processor time of small commands, and of many small models in one run.

    python benchmarks/startup.py [--rounds 5] [--models 300] [--jobs 2] [--write]

The floor is a bare interpreter that imports numpy, onnx and onnxruntime and opens one session. No tool that runs models in Python
takes less. Each command runs in a process of its own, in turn with the floor. The figures are medians of processor time, with
all child processes, and of the ratios to the floor. Linux only, because it has to wait for children of children.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import onnx
import onnx.parser

HERE = Path(__file__).resolve().parent
PAGE = HERE / "startup.md"
SET_CHILD_SUBREAPER = 36
"""`PR_SET_CHILD_SUBREAPER` of Linux: a process that loses its parent becomes a child of this process."""
FLOOR = "floor"
MANY = "fuse, many models"
GELU = """
<ir_version: 8, opset_import: ["" : 17]>
gelu (float[batch, {width}] x) => (float[batch, {width}] y)
<float root = {{1.4142135}}, float one = {{1}}, float half = {{0.5}}>
{{
  scaled = Div (x, root)
  erf = Erf (scaled)
  sum = Add (erf, one)
  product = Mul (x, sum)
  y = Mul (product, half)
}}
"""


def make_models(folder: Path, count: int) -> list[Path]:
    """Models of a GELU with five nodes each and different widths."""
    paths = [folder / f"gelu{width}.onnx" for width in range(8, 8 + count)]
    for width, path in enumerate(paths, 8):
        onnx.save(onnx.parser.parse_model(GELU.format(width=width)), path)
    return paths


def commands(models: Sequence[Path], jobs: int) -> dict[str, list[str]]:
    """The commands, by the names that the page gives them."""
    session = f"import numpy, onnx, onnxruntime; onnxruntime.InferenceSession({str(models[0])!r})"
    ours = [sys.executable, "-m", "onnx_subgraph"]
    return {
        FLOOR: [sys.executable, "-c", session],
        "--version": [*ours, "--version"],
        "list-patterns": [*ours, "list-patterns"],
        "fuse, one model": [*ours, "fuse", str(models[0]), "--output-dir", "one"],
        MANY: [*ours, "fuse", "-j", str(jobs), "--output-dir", "many", *map(str, models)],
    }


def processor_time(command: Sequence[str]) -> float:
    """Seconds of all processes that a command starts. Raises RuntimeError if it fails."""
    before = _used()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, as in an installed tool
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        with suppress(ChildProcessError):  # until none is left
            while True:
                os.wait()
    return _used() - before


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(wanted: Mapping[str, Sequence[str]], rounds: int) -> dict[str, list[float]]:
    """The times of the commands, which run in turn. The first turn is not counted."""
    found: dict[str, list[float]] = {name: [] for name in wanted}
    for turn in range(rounds + 1):
        for name, command in wanted.items():
            seconds = processor_time(command)
            if turn:
                found[name].append(seconds)
    return found


def rows(times: Mapping[str, Sequence[float]], models: int) -> list[list[str]]:
    """The rows of the table: name of the command, seconds, ratio to the floor, seconds per model."""
    shown = []
    for name, seconds in times.items():
        middle = statistics.median(seconds)
        ratio = statistics.median(ours / floor for ours, floor in zip(seconds, times[FLOOR], strict=True))
        each = f"{middle / models:.3f}" if name == MANY else ""
        shown.append([name, f"{middle:.2f}", f"{ratio:.2f}", each])
    return shown


def page(shown: Sequence[Sequence[str]], models: int, jobs: int) -> str:
    """The page."""
    lines = [
        "# The start of the tool",
        "",
        "Processor time of all processes that a command starts, in seconds, and its ratio to the floor: medians. All",
        "commands run in turn. The floor is a bare interpreter that imports numpy, onnx and onnxruntime and opens a session.",
        f"A model is a GELU of five nodes. *many models* are {models} of them, with `-j {jobs}`. `fuse` verifies each.",
        "",
        f"    python benchmarks/startup.py --write   # {os.cpu_count()} processors",
        "",
        "| command | seconds | of the floor | seconds a model |",
        "| --- | --- | --- | --- |",
        *(f"| {' | '.join(row)} |" for row in shown),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, print, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each command that count (default: 5)")
    parser.add_argument("--models", type=int, default=300, help="how many models are many (default: 300)")
    parser.add_argument("--jobs", type=int, default=2, help="how many of them at a time (default: 2)")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as folder:
        models = make_models(Path(folder), options.models)
        shown = rows(measured(commands(models, options.jobs), options.rounds), options.models)
    for row in shown:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, (20, 8, 8, 8), strict=True)).rstrip())
    if options.write:
        PAGE.write_text(page(shown, options.models, options.jobs), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
