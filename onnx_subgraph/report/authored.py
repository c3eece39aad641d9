"""The output of `new-pattern`, for a person and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from onnx_subgraph.report import json
from onnx_subgraph.report.proofs import proofs
from onnx_subgraph.report.wording import count

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from onnx_subgraph.authoring.author import Authored


def as_text(made: Authored, output: Path) -> RenderableType:
    """The file, the reason for each choice, its proof, and where it matches."""
    parts: list[RenderableType] = [Text(str(output), "bold"), "", Text(made.formula)]
    parts += ["", *(Text(f"* {line}") for line in made.grounds), "", proofs([made.proof]), ""]
    for model, times in made.found.items():
        parts.append(f"found at {count(times, 'place')} of {model}")
    if sum(made.found.values()) < made.places:
        parts.append(Text(f"It was written from {count(made.places, 'place')}: some are not found.", "red"))
    return Group(*parts, "")


def as_json(made: Authored, output: Path) -> json.Object:
    """What `new-pattern --json` prints."""
    return {
        "output": str(output),
        "pattern": made.pattern.id,
        "match": made.formula,
        "grounds": list(made.grounds),
        "places": made.places,
        "found": [{"model": str(model), "count": times} for model, times in made.found.items()],
        "proof": json.proof(made.proof),
    }
