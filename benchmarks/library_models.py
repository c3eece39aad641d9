"""Exports networks of several libraries by both exporters of torch, fuses and times them. Writes `library_models.md`.

    pip install vit-pytorch x-transformers monai segmentation-models-pytorch ultralytics torch torchvision onnxscript
    python benchmarks/library_models.py [--only 'MONAI*'] [--models DIR] [--budget 2] [--jobs 1] [--write]

Most of these libraries write attention and norms by hand, each in its own way. The networks have random weights and fixed sizes.
`fuse` runs with its defaults, including verification, on the unchanged exports. Times are processor time on one thread, the
original and the fused model in turn.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from exported_models import Task, command_line, export_options, fused_and_timed, line, rows
from library_networks import LISTS, NETWORKS, Part
from rows import tell
from taking_turns import Ratio, open_session

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.timing.tuning import processor  # noqa: E402

if TYPE_CHECKING:
    import torch

NONE = "no model that onnxruntime runs"
"""The verdict where torch does not export a network, or onnxruntime refuses the export."""
LIMIT = 600.0
"""Seconds for one network, everything included."""
PACKAGES = ("vit-pytorch", "x-transformers", "monai", "segmentation-models-pytorch", "ultralytics", "torchvision")

HEAD = """\
# Networks of six libraries

Made by `python benchmarks/library_models.py --write` with
{packages},
torch {torch} and onnxruntime {onnxruntime}, on an {processor}. Each network has random
weights and fixed sizes. torch's exporters wrote it: TorchScript at opset 17, dynamo at opset 18. *time* is that of the
fused model as a share of the original's: the median, with the least and most of parts of the runs, on one thread.
*undone*: fusions that verification could not show to be right.

**{equivalent} of {graphs} graphs are equivalent. {before:,} nodes became {after:,}. The median of the times is {typical:.2f};
above 1.02: {slower}.**

| library | graphs | nodes | time, median | from | to |
|---|---:|---:|---:|---:|---:|
{libraries}

| network | exporter | nodes | fusions | undone | verdict | time |
|---|---|---:|---:|---:|---|---:|
"""


@dataclass(frozen=True)
class Row:
    """What became of a network. time: of the fused model, by that of the original."""

    task: Task
    before: int = 0
    after: int = 0
    fusions: int = 0
    undone: int = 0
    verdict: str = ""
    time: Ratio | None = None

    @property
    def library(self) -> str:
        """The library that the network is from."""
        return self.task.name.split(": ")[0]

    def __str__(self) -> str:
        if self.verdict == NONE:
            return f"| {self.task.name} | {self.task.exporter} | | | | {NONE} | |"
        nodes = f"{self.before} → {self.after}"
        cells = (self.task.name, self.task.exporter, nodes, str(self.fusions), self.undone, self.verdict)
        return line(*cells, time=self.time)


def measure(task: Task) -> Row:
    """Make the network, export it, fuse it, time it."""
    try:
        feeds = exported(task)
    except Exception:  # of torch's exporter, or of onnxruntime, which refuses some of its models
        return Row(task, verdict=NONE)
    result, time = fused_and_timed(task, feeds)
    assert result.verdict is not None
    counts = (result.nodes_before, result.nodes_after, len(result.rewrites), len(result.undone))
    return Row(task, *counts, result.verdict.verdict, time)


def exported(task: Task) -> dict[str, np.ndarray]:
    """Write the model of a network, if it is not there, and run it. Returns feeds for it."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    if not task.model.exists():
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            _export(task)
    session = open_session(task.model, 1)
    feeds = {value.name: drawn for value, drawn in zip(session.get_inputs(), _values(task), strict=True)}
    session.run(None, feeds)
    return feeds


def _export(task: Task) -> None:
    import torch

    torch.manual_seed(0)
    network = _made(NETWORKS[task.name][0]).eval()
    for parameter in network.parameters():
        if not parameter.any():  # gates and last layers begin with zeros, which would hide what is in front of them
            parameter.data.normal_(0, 0.1)
    for module in network.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
        if hasattr(module, "export"):  # a head of ultralytics
            module.export, module.format = True, "onnx"
    values = [torch.from_numpy(drawn) for drawn in _values(task)]
    given = (values,) if task.name in LISTS else tuple(values)
    torch.onnx.export(network, given, str(task.model), **export_options(task.exporter))


def _made(part: Part) -> torch.nn.Module:
    """The network, with its parts made first."""
    module, name = part.path.rsplit(".", 1)
    settings = {key: _made(value) if isinstance(value, Part) else value for key, value in part.settings.items()}
    made: torch.nn.Module = getattr(import_module(module), name)(**settings)
    return made


def _values(task: Task) -> list[np.ndarray]:
    """A value for each input; networks that take a list take images without a batch."""
    values = map(_drawn, NETWORKS[task.name][1])
    return [value[0] for value in values] if task.name in LISTS else list(values)


def _drawn(given: tuple[int, ...] | str) -> np.ndarray:
    """Numbers of a shape, or whole numbers: "ids 32 256" and "time 1000"."""
    draw = np.random.default_rng(0)
    if isinstance(given, str):
        kind, *length, most = given.split(" ")
        return draw.integers(0, int(most), (1, *map(int, length)) if kind == "ids" else (1,))
    return draw.random(given, np.float32)


def head(measured: Sequence[Row]) -> str:
    """The text before the rows."""
    good = [row for row in measured if row.verdict != NONE]
    times = _times(good)
    return HEAD.format(
        processor=processor(),
        packages=",\n".join(", ".join(map(_package, some)) for some in (PACKAGES[:3], PACKAGES[3:])),
        libraries="\n".join(_library(name, list(rows)) for name, rows in groupby(good, lambda row: row.library)),
        equivalent=sum(row.verdict == "equivalent" for row in good),
        graphs=len(good),
        before=sum(row.before for row in good),
        after=sum(row.after for row in good),
        typical=median(times) if times else float("nan"),
        slower=sum(time > 1.02 for time in times),
        **{name: version(name).partition("+")[0] for name in ("torch", "onnxruntime")},
    )


def _package(name: str) -> str:
    return f"{name} {version(name).partition('+')[0]}"


def _library(name: str, rows: Sequence[Row]) -> str:
    times = _times(rows)
    nodes = f"{sum(row.before for row in rows):,} → {sum(row.after for row in rows):,}"
    shares = f"{median(times):.2f} | {min(times):.2f} | {max(times):.2f}" if times else " | | "
    return f"| {name} | {len(rows)} | {nodes} | {shares} |"


def _times(rows: Sequence[Row]) -> list[float]:
    return [row.time.ratio for row in rows if row.time is not None]


def main() -> int:
    """Export, fuse and time; return 1 if `fuse` fails or a model is not equivalent."""
    given = command_line(__doc__, "library_models.md", 2.0)
    measured = rows(given, NETWORKS, measure, lambda task, why: Row(task, verdict=why), LIMIT)
    tell(head(measured), map(str, measured), HERE / "library_models.md" if given.write else None)
    return int(any(row.verdict not in ("equivalent", NONE) for row in measured))


if __name__ == "__main__":
    sys.exit(main())
