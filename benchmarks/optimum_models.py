"""Fuses and times networks of Transformers that Optimum exported. Writes `optimum_models.md`.

    python benchmarks/optimum_models.py FOLDER [--only 'whisper*'] [--budget 2] [--jobs 1] [--write]

`exporters_optimum.py` makes the folder. It runs where Optimum is installed; this command needs neither that nor torch. `fuse`
runs with its defaults, including verification, on the unchanged exports. Times are processor time on one thread, the original and
the fused model in turn, at the sizes of `USUAL`: of a decoder with a cache, one token.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import onnx
import onnxruntime
import workers
from exported_models import Task, fused_and_timed, line
from taking_turns import Ratio

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.files.models import load  # noqa: E402
from onnx_subgraph.inputs.feeds import draw_feeds  # noqa: E402
from onnx_subgraph.inputs.sizes import symbols  # noqa: E402
from onnx_subgraph.timing.tuning import processor  # noqa: E402

LIMIT = 600.0
"""Seconds for one model, everything included."""
TOKENS, PAST = 128, 256
USUAL = {"num_channels": 3, "height": 224, "width": 224, "encoder_sequence_length": TOKENS, "sequence_length": TOKENS}
"""Dimension → its size. Other dimensions are 1, such as the batch; of a past, `PAST`; with a past, one token is computed."""
OTHER = {
    "clip": {"sequence_length": 77},
    "hubert": {"sequence_length": 16000},
    "mobilevit": {"height": 256, "width": 256},
    "siglip": {"sequence_length": 64},
    "wav2vec2": {"sequence_length": 16000},
}
"""Network → its own sizes: of the longest text, of a second of sound, and of an image that the export fixed."""

HEAD = """\
# Networks that Optimum exported

Made by `python benchmarks/optimum_models.py FOLDER --write` with onnxruntime {onnxruntime}, on
{processor}. Optimum exported the models by torch {torch} (`exporters_optimum.py`). Each
network has two layers of width 256, or a few more in networks of images, and random weights. *time* is that of the
fused model as a share of the original's: the median, with the least and most of parts of the runs, on one thread. Texts
have 128 tokens. Decoders with a cache compute one token behind 256. Weights of 8 bits (`_quantized`) and 4 bits (`_q4`)
and float16 (`_fp16`) are by onnxruntime's converters. *undone*: fusions that verification could not show to be right.

**{equivalent} of {graphs} models are equivalent. {before:,} nodes became {after:,}. The median of the times is {typical:.2f};
above 1.02: {slower}.**

| models | number | nodes | time, median | from | to |
|---|---:|---:|---:|---:|---:|
"""


@dataclass(frozen=True)
class Row:
    """What became of a model. time: of the fused model, by that of the original. is_step: whether it computes one token."""

    task: Task
    is_step: bool = False
    before: int = 0
    after: int = 0
    fusions: int = 0
    undone: int = 0
    verdict: str = ""
    time: Ratio | None = None

    @property
    def is_small(self) -> bool:
        """Whether the weights have a smaller type than float32."""
        return self.task.model.stem.endswith(("_quantized", "_q4", "_fp16"))

    def __str__(self) -> str:
        nodes = f"{self.before} → {self.after}"
        cells = (self.task.name, self.task.model.stem, nodes, str(self.fusions), self.undone, self.verdict)
        return line(*cells, time=self.time)


def measure(task: Task) -> Row:
    """Fuse a model and time it."""
    feeds, is_step = usual_feeds(task)
    result, time = fused_and_timed(task, feeds)
    assert result.verdict is not None
    counts = (result.nodes_before, result.nodes_after, len(result.rewrites), len(result.undone))
    return Row(task, is_step, *counts, result.verdict.verdict, time)


def usual_feeds(task: Task) -> tuple[Mapping[str, np.ndarray], bool]:
    """Feeds of the usual sizes, and whether the model computes one token behind others."""
    model = load(task.model)
    names = symbols(list(model.graph.inputs))
    is_step = any("past" in name for name in names)
    own = {**USUAL, **({"sequence_length": 1} if is_step else {}), **OTHER.get(task.name, {})}
    sizes = {name: PAST if "past" in name else own.get(name, 1) for name in names}
    return draw_feeds(model, sizes), is_step


def page(rows: Sequence[Row], torch: str) -> str:
    """The page: what holds for all, for each kind, and for each model."""
    times = [row.time.ratio for row in rows if row.time is not None]
    head = HEAD.format(
        onnxruntime=onnxruntime.__version__,
        processor=processor(),
        torch=torch,
        equivalent=sum(row.verdict == "equivalent" for row in rows),
        graphs=len(rows),
        before=sum(row.before for row in rows),
        after=sum(row.after for row in rows),
        typical=median(times) if times else float("nan"),
        slower=sum(time > 1.02 for time in times),
    )
    kinds = {
        "decoders with a cache, one token": [row for row in rows if row.is_step and not row.is_small],
        "others": [row for row in rows if not row.is_step and not row.is_small],
        "decoders with a cache, in smaller types": [row for row in rows if row.is_step and row.is_small],
        "others, in smaller types": [row for row in rows if not row.is_step and row.is_small],
    }
    table = "| network | model | nodes | fusions | undone | verdict | time |\n|---|---|---:|---:|---:|---|---:|"
    return head + "\n".join(
        [*(_kind(name, of_kind) for name, of_kind in kinds.items() if of_kind), "", table, *map(str, rows), ""]
    )


def _kind(name: str, rows: Sequence[Row]) -> str:
    times = [row.time.ratio for row in rows if row.time is not None]
    nodes = f"{sum(row.before for row in rows):,} → {sum(row.after for row in rows):,}"
    extent = f"{median(times):.2f} | {min(times):.2f} | {max(times):.2f}" if times else " | | "
    return f"| {name} | {len(rows)} | {nodes} | {extent} |"


def _torch(paths: Iterable[Path]) -> str:
    """The version of torch that the models name. Optimum puts its own name on those that it merges."""
    models = (onnx.load(path, load_external_data=False) for path in paths)
    return next((model.producer_version for model in models if model.producer_name == "pytorch"), "?")


def main() -> int:
    """Fuse and time; return 1 if `fuse` fails or a model is not equivalent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the exported networks are")
    parser.add_argument("--only", default="*", metavar="GLOB", help="the networks")
    parser.add_argument("--budget", type=float, default=2.0, metavar="SECONDS", help="of timing, for one model")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="write optimum_models.md")
    given = parser.parse_args()
    paths = [path for path in sorted(given.folder.glob("*/*.onnx")) if fnmatch.fnmatch(path.parent.name, given.only)]
    if not paths:
        parser.error(f"{given.folder} has no models: run exporters_optimum.py first")
    rows: list[Row] = []
    tasks = [Task(path.parent.name, "Optimum", path, given.budget) for path in paths]
    for outcome in workers.run(measure, tasks, jobs=given.jobs, limit=LIMIT):
        failure = outcome.failure.strip().splitlines()
        rows.append(outcome.result or Row(outcome.task, verdict=f"failed: {failure[-1][:160]}"))
        print(rows[-1], flush=True)
    text = page(rows, _torch(paths))
    if given.write:
        (HERE / "optimum_models.md").write_text(text, encoding="utf-8")
    else:
        print(text.split("| network |")[0])
    return int(any(row.verdict != "equivalent" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
