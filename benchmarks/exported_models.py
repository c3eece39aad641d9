"""What benchmarks share that export networks of libraries: the exporters, one task, fusing and timing, and the command line."""

from __future__ import annotations

import argparse
import fnmatch
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import workers
from taking_turns import Ratio, open_session, ratio, seconds_of_runs

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.options import Options
from onnx_subgraph.pipeline import fuse

if TYPE_CHECKING:
    from onnx_subgraph.result import FuseResult

Row = TypeVar("Row")

EXPORTERS = {"TorchScript": 17, "dynamo": 18}
"""torch's exporters and their opsets."""


@dataclass(frozen=True)
class Task:
    """One network through one exporter. model: the file that it becomes. budget: seconds of timing."""

    name: str
    exporter: str
    model: Path
    budget: float


def export_options(exporter: str) -> dict[str, Any]:
    """The options of `torch.onnx.export` for one exporter."""
    how = {"dynamo": False} if exporter == "TorchScript" else {"dynamo": True, "external_data": False, "verbose": False}
    return {"opset_version": EXPORTERS[exporter], **how}


def fused_and_timed(task: Task, feeds: Mapping[str, np.ndarray]) -> tuple[FuseResult, Ratio | None]:
    """Fuse a model with the defaults of `fuse`. Also returns the time of the result by that of the original, on one thread."""
    with tempfile.TemporaryDirectory() as folder:
        fused = Path(folder, "fused.onnx")
        result = fuse(task.model, fused, load_patterns(), Options())
        if not fused.exists():
            return result, None
        sessions = {"original": open_session(task.model, 1), "fused": open_session(fused, 1)}
        times = seconds_of_runs(sessions, feeds, task.budget, 1)
        return result, ratio(times["fused"], times["original"])


def line(*cells: object, time: Ratio | None) -> str:
    """A row of a page: the cells, and the time with the least and the most of parts of the runs. Zeros are left empty."""
    said = "" if time is None else f"{time.ratio:.2f} ({time.least:.2f} to {time.most:.2f})"
    return f"| {' | '.join(str(cell or '') for cell in (*cells, said))} |"


def command_line(description: str | None, page: str, budget: float) -> argparse.Namespace:
    """The options of a benchmark that writes `page`. budget: the seconds of timing, if none are given."""
    arguments = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", default="*", metavar="GLOB", help="the networks")
    arguments.add_argument("--models", type=Path, metavar="DIR", help="a folder that keeps the exported models")
    timing = f"of timing, for one network ({budget:g})"
    arguments.add_argument("--budget", type=float, default=budget, metavar="SECONDS", help=timing)
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--write", action="store_true", help=f"write {page}")
    return arguments.parse_args()


def rows(
    given: argparse.Namespace,
    names: Iterable[str],
    measure: Callable[[Task], Row],
    failed: Callable[[Task, str], Row],
    limit: float,
) -> list[Row]:
    """Measure each network through each exporter, and print its row. limit: seconds for one, everything included."""
    measured: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        models = given.models or Path(folder)
        models.mkdir(parents=True, exist_ok=True)
        tasks = [
            Task(name, exporter, models / f"{name.replace(': ', '.')}.{exporter}.onnx", given.budget)
            for name in fnmatch.filter(names, given.only)
            for exporter in EXPORTERS
        ]
        for outcome in workers.run(measure, tasks, jobs=given.jobs, limit=limit):
            failure = outcome.failure.strip().splitlines()
            measured.append(outcome.result or failed(outcome.task, f"failed: {failure[-1][:160]}"))
            print(measured[-1], flush=True)
    return measured
