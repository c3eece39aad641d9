"""Writes the page of `latency.py`: a row for each model, and the distance from the goals.

A number is a speed relative to the original, so higher is better. The original is 1.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from taking_turns import Ratio

COLUMNS = {"optimizer": "onnxruntime.transformers", "onnxscript": "onnxscript", "ours": "onnx-subgraph"}
NOISE = 0.98
"""Two runs of the same model differ by up to 2 %."""
PREFACE = """\
# Latency

Made by `python benchmarks/latency.py CORPUS{options} --write`
with onnxruntime {version} on {where}.

Each number is a model's speed relative to the original (2 is twice as fast): the ratio of the medians, in brackets the
least and the most of five parts of the run. All models run in turn in onnxruntime with all its optimisations. Sizes
other than the corpus's are those of `--dims`.
*onnxruntime.transformers* is its `optimizer.optimize_model` with the model's type, *onnxscript* is
`onnxscript.rewriter.ort_fusions.optimize_for_ort`. A dash is a peer that failed; the reasons are below.
{bound}"""
BOUND = """\
*at most* is the original's time divided by the time of its products with weights: the speed if everything that can be
fused took no time.
"""
MEANS = """\
A failure counts as the original. *At the longest* takes a model's row at a longer sequence or past. Models of images
and sounds have one size, so their only row is taken."""


@dataclass(frozen=True)
class Row:
    """One model. timings: speed relative to the original, by column. failures: by column. A model whose outputs are off has both.

    milliseconds: time of the original. products: time of its products with weights.
    """

    name: str
    transformer: bool
    milliseconds: float
    products: float
    timings: Mapping[str, Ratio]
    failures: Mapping[str, str]
    runs: int = 0
    threads: int = 1
    sizes: str = ""

    @classmethod
    def read(cls, path: Path) -> Row:
        """A row from the JSON that `dataclasses.asdict` makes of one."""
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**data, "timings": {name: Ratio(**timing) for name, timing in data["timings"].items()}})

    @property
    def ours(self) -> float:
        """Our ratio; NaN if there is none."""
        return self.timings["ours"].ratio if "ours" in self.timings else math.nan

    @property
    def bound(self) -> float:
        """Speed relative to the original if only the products with weights took time; NaN without any."""
        return self.milliseconds / self.products if self.products else math.nan

    @property
    def peer(self) -> float:
        """The ratio of the best peer whose model computes the same. The original counts as a peer."""
        return max([1.0, *(t.ratio for name, t in self.timings.items() if name != "ours" and name not in self.failures)])


def told(row: Row) -> str:
    """A row as a line of progress."""
    cells = [f"{name} {_cell(row, name)}" for name in COLUMNS]
    failures = [f"{name}: {why}" for name, why in row.failures.items()]
    return "  ".join([f"{row.name:32} {row.milliseconds:8.2f} ms", *cells, *failures])


def page(rows: Sequence[Row], version: str, device: str, options: str = "") -> str:
    """The page. device: what the models ran on. options: of the command, such as ` --provider X`.

    The column of the bound is left out where it was not measured.
    """
    ordered = sorted(rows, key=lambda r: r.name)
    threads = max((r.threads for r in ordered), default=1)
    where = f"{device}, {'1 thread, in processor time' if threads == 1 else f'{threads} threads'}"
    lines = [PREFACE.format(options=options, version=version, where=where, bound=BOUND if _is_bounded(rows) else "")]
    groups: dict[str, list[Row]] = {}
    for row in sorted(ordered, key=lambda r: (not r.transformer, r.sizes)):
        kind = "Transformers" if row.transformer else "Others"
        groups.setdefault(f"{kind}, {row.sizes or 'at the sizes of the corpus'}", []).append(row)
    longest = {r.name: r for r in sorted(ordered, key=lambda r: bool(r.sizes)) if r.transformer}
    once = {"Transformers, each once, at the longest": list(longest.values())} if any(r.sizes for r in ordered) else {}
    lines += ["## Geometric means", "", MEANS, "", *_means({**once, **groups}), ""]
    for title, chosen in groups.items():
        lines += [f"## {title} ({len(chosen)})", "", *_table(chosen), ""]
    lines += ["## Where we are slower than the original or, on a transformer, than the best peer", "", *_short(ordered), ""]
    told = dict.fromkeys(f"* {r.name}, {COLUMNS[c]}: {why}" for r in ordered for c, why in r.failures.items())
    failures = [textwrap.fill(line, 120, subsequent_indent="  ") for line in told]
    return "\n".join([*lines, "## Failures", "", *(failures or ["None."])]) + "\n"


def _is_bounded(rows: Sequence[Row]) -> bool:
    """Whether the time of products was measured."""
    return any(r.products for r in rows)


def _table(rows: Sequence[Row]) -> list[str]:
    head = ["model", "original, ms", *COLUMNS.values()]
    made = [[r.name, f"{r.milliseconds:.2f}", *(_cell(r, c) for c in COLUMNS)] for r in rows]
    marks = ["---", "---:", *("---" for _ in COLUMNS)]
    if _is_bounded(rows):
        head, marks = [*head, "at most"], [*marks, "---:"]
        made = [[*cells, f"{r.bound:.2f}"] for cells, r in zip(made, rows, strict=True)]
    return [f"| {' | '.join(head)} |", f"|{'|'.join(marks)}|", *(f"| {' | '.join(cells)} |" for cells in made)]


def _means(groups: Mapping[str, Sequence[Row]]) -> list[str]:
    bounded = any(_is_bounded(rows) for rows in groups.values())
    head = ["models", "number", *COLUMNS.values(), *(["at most"] if bounded else [])]
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    for title, rows in groups.items():
        means = []
        for column in COLUMNS:
            ratios = [r.timings[column].ratio if column in r.timings and column not in r.failures else 1.0 for r in rows]
            means.append(f"{_mean(ratios):.3f}")
        if bounded:
            means.append(f"{_mean([r.bound for r in rows if r.products]):.3f}")
        lines.append(f"| {title} | {len(rows)} | {' | '.join(means)} |")
    return lines


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def _short(rows: Sequence[Row]) -> list[str]:
    found = []
    for row in rows:
        if not row.ours >= NOISE:
            found.append(f"* {row.name}{row.sizes and f', {row.sizes}'}: {row.ours:.3f} of the original")
        elif row.transformer and row.ours < NOISE * row.peer:
            found.append(f"* {row.name}{row.sizes and f', {row.sizes}'}: {row.ours:.3f}, the best peer {row.peer:.3f}")
    return found or ["Nowhere."]


def _cell(row: Row, column: str) -> str:
    timing = row.timings.get(column)
    if timing is None:
        return "–"
    mark = " (outputs off)" if column in row.failures else ""
    return f"{timing.ratio:.2f} ({timing.least:.2f} to {timing.most:.2f}){mark}"
