"""The result of `mine`, for a person, as JSON, and as a page with drawings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from onnx_subgraph.report import json
from onnx_subgraph.report.table import Rows, grid
from onnx_subgraph.report.wording import count, milliseconds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.console import RenderableType

    from onnx_subgraph.mining.mine import Mined, Occurrence, Unit

SKETCH = 100
"""Characters of a formula in the table; `--json` and the page show all of it."""
MOST_NAMED = 3
"""The most models to name above the units; the table below names the others."""
MOST_DRAWN = 20
"""The most units on the page."""
MOST_PLACES = 500
"""The most places of a unit on the page."""


def as_text(mined: Mined, top: int) -> RenderableType:
    """The most expensive units first; at most `top` of them."""
    facts = grid()
    several = len(mined.models) > MOST_NAMED
    facts.add_row("models", str(len(mined.models)) if several else ", ".join(map(str, mined.models)))
    facts.add_row("nodes", f"{mined.nodes}, {mined.free} of them in no pattern and no product with weights")
    if mined.milliseconds is not None:
        facts.add_row("time", f"{milliseconds(mined.milliseconds / 1e3)} ms in nodes, a run of each model on one thread")
    facts.add_row("seconds", f"{sum(mined.seconds.values()):.2f}")
    shown = mined.units[:top]
    if not shown:
        return Group(facts, "", "Nothing is left to fuse: no uncovered nodes stand side by side.", "")
    timed = ("time",) if mined.milliseconds else ()
    columns = ("rank", "times", "nodes", *timed, "share", "saved")
    table = Rows(*columns, "formula", "first at", head=len(columns), right=("rank", "times", "nodes"))
    for rank, unit in enumerate(shown, start=1):
        time = (f"{(unit.milliseconds or 0.0) / mined.milliseconds:.1%}",) if mined.milliseconds else ()
        figures = (str(rank), str(unit.times), str(unit.nodes), *time, f"{unit.share:.1%}", f"{unit.saved_share:.1%}")
        table.add(*figures, _shortened(unit.formula.sketch), unit.occurrences[0].name)
    rest = len(mined.units) - len(shown)
    parts: list[RenderableType] = [facts, "", table, ""]
    parts += [Text(f"and {count(rest, 'unit')} more: --top shows them", "dim")] if rest else []
    model = shown[0].occurrences[0].model if len(mined.models) == 1 else "MODEL…"
    parts += [Text("time: of that of all nodes, measured", "dim")] if timed else []
    parts.append(Text("share, saved: of the bytes that all nodes read and write, an estimate", "dim"))
    command = f"onnx-subgraph new-pattern {model} --mined 1 --id NAME -o NAME.yaml"
    parts.append(Text(f"`{command}` writes a pattern of the first", "dim"))
    return Group(*parts, "")


def each(mined: Mined, errors: Mapping[Path, str]) -> list[json.Object]:
    """Each model: its nodes, and how many units occur in it; or why it was not mined."""
    held = Counter(model for unit in mined.units for model in {one.model for one in unit.occurrences})
    return [
        {"model": str(model), "error": errors[model]}
        if model in errors
        else dict(
            zip(("model", "nodes", "free", "units"), (str(model), *mined.each.get(model, (0, 0)), held[model]), strict=True)
        )
        for model in mined.models
    ]


def as_json(mined: Mined) -> json.Object:
    """The JSON of `mine --json`."""
    return {
        "models": [str(model) for model in mined.models],
        "nodes": mined.nodes,
        "free": mined.free,
        "milliseconds": mined.milliseconds,
        "seconds": dict(mined.seconds),
        "units": [_unit(rank, unit) for rank, unit in enumerate(mined.units, start=1)],
    }


def _unit(rank: int, unit: Unit) -> json.Object:
    return {
        "rank": rank,
        "key": unit.key,
        "times": unit.times,
        "nodes": unit.nodes,
        "bytes": unit.traffic,
        "saved_bytes": unit.saved,
        "share": unit.share,
        "milliseconds": unit.milliseconds,
        "formula": str(unit.formula),
        "places": [_place(one) for one in unit.occurrences],
    }


def _place(one: Occurrence) -> json.Object:
    return {"model": str(one.model), "node": one.name, "nodes": [node.name or "" for node in one.nodes]}


def page(mined: Mined) -> str:
    """The units as a page, each with a drawing of its first place. Raises UsageError where the extra is not installed."""
    from onnx_subgraph.report.drawing import draw
    from onnx_subgraph.report.html import rendered
    from onnx_subgraph.rewriting.excerpt import excerpt

    drawings = []
    for unit in mined.units[:MOST_DRAWN]:
        first = unit.occurrences[0]
        shown = excerpt(first.nodes, first.place.view.constants.tensor, lambda _: False)
        drawings.append(draw(shown) if shown.steps else None)
    return rendered("mined.html.jinja", mined=mined, units=list(zip(mined.units, drawings, strict=False)), most=MOST_PLACES)


def _shortened(sketch: str) -> str:
    return sketch if len(sketch) <= SKETCH else f"{sketch[: SKETCH - 1]}…"
