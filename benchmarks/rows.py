"""Stores the rows of a benchmark as they are measured, so that an interrupted run keeps them, and writes its page."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from onnx_subgraph.timing.turns import Ratio

Row = TypeVar("Row")


def kept_row(kind: type[Row], path: Path) -> Row:
    """The row of this kind in a JSON file. Its field `ratios` maps names to ratios of times."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    return kind(**{**kept, "ratios": {name: Ratio(**one) for name, one in kept["ratios"].items()}})


def tell(head: str, rows: Iterable[str], page: Path | None) -> None:
    """Print `head` and each row; page: the file that holds them, or None."""
    text = head
    print(head, end="")
    for row in rows:
        print(row, flush=True)
        text += row + "\n"
        if page is not None:
            page.write_text(text, encoding="utf-8")


def page_path(output: Path | None, name: str, pattern: str) -> Path:
    """The path of a page: `output`, or else its place here. The page of a part of the models goes to `build`.

    pattern: the glob that selects what is measured.
    """
    here = Path(__file__).resolve().parent
    home = here if pattern == "*" else here.parent / "build"
    home.mkdir(exist_ok=True)
    return output or home / name
