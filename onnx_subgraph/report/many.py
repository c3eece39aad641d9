"""Many models in one table: what was found in each, the verdict or the gain, and the error of each that failed.

Tables are made from the JSON objects of the models, which may come from an earlier run. A failure has the key `error`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from onnx_subgraph.report.table import Rows
from onnx_subgraph.report.wording import count

if TYPE_CHECKING:
    from rich.console import RenderableType

    from onnx_subgraph.report.json import Object

NONE = "–"


def fused(models: Sequence[Object], outcomes: Sequence[str], good: int) -> RenderableType:
    """The result of `fuse` for each model. outcomes: in a few words, whether it may be used. good: how many may."""
    table = Rows("model", "nodes", "fusions", "verdict", "outcome", head=4, right=("nodes", "fusions"))
    for model, outcome in zip(models, outcomes, strict=True):
        if "error" in model:
            table.add(model["model"], NONE, NONE, NONE, Text(outcome, "red"))
            continue
        nodes, verdict = model["nodes"], model["verification"]["verdict"].replace("-", " ")
        table.add(model["model"], f"{nodes['before']} → {nodes['after']}", _times(model["fusions"]), verdict, outcome)
    return Group(_title(len(models), good, "passed"), "", table, "")


def explained(models: Sequence[Object]) -> RenderableType:
    """The result of `explain` for each model."""
    numbers = ("nodes", "matched", "not replaced", "nearly")
    table = Rows("model", *numbers, "why not", head=5, right=numbers)
    for model in models:
        if "error" in model:
            table.add(model["model"], NONE, NONE, NONE, NONE, Text(_first_line(model), "red"))
            continue
        counts = (_times(model[key]) for key in ("fusions", "skipped", "near_misses"))
        table.add(model["model"], str(model["nodes"]), *counts, "")
    return Group("", _title(len(models), sum("error" not in model for model in models), "explained"), "", table, "")


def benched(models: Sequence[Object]) -> RenderableType:
    """The time of each model against its comparison: the ratios, and its own time."""
    table = Rows("model", "time", "spread", "p50 ms", "candidate", head=4, right=("time", "spread", "p50 ms"))
    for model in models:
        if "models" not in model:
            reason = Text(_first_line(model), "red") if "error" in model else model["note"]
            table.add(model["model"], NONE, NONE, NONE, reason)
            continue
        first, *others = model["models"]
        for other in others:
            own = f"{first['p50_ms']:.3g}"
            name = f"{Path(other['model']).name} in {other['runtime']}"
            if "problem" in other:
                table.add(model["model"], NONE, NONE, own, Text(f"{name}: {other['problem']}", "red"))
                continue
            ratio = other["ratio"]
            table.add(model["model"], f"{ratio['ratio']:.3f}", f"{ratio['least']:.2f}–{ratio['most']:.2f}", own, name)
    return Group(_title(len(models), sum("error" not in model for model in models), "measured"), "", table, "")


def mined(models: Sequence[Object]) -> RenderableType:
    """The result of `mine` for each model."""
    table = Rows("model", "nodes", "free", "units", "why not", head=4, right=("nodes", "free", "units"))
    for model in models:
        if "error" in model:
            table.add(model["model"], NONE, NONE, NONE, Text(_first_line(model), "red"))
        else:
            table.add(model["model"], str(model["nodes"]), str(model["free"]), str(model["units"]), "")
    return Group(_title(len(models), sum("error" not in model for model in models), "mined"), "", table, "")


def _title(number: int, good: int, what: str) -> Text:
    return Text(f"{good} of {count(number, 'model')} {what}", "bold")


def _times(groups: Sequence[Object]) -> str:
    return str(sum(group["count"] for group in groups))


def _first_line(model: Object) -> str:
    return str(model["error"]).partition("\n")[0]
