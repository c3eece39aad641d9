"""Writes the table of equalities in docs/language.md from the table that matching reads.

`python docs/equalities.py` writes it; a test holds that it is current.
"""

from __future__ import annotations

from pathlib import Path

from onnx_subgraph.matching.equalities import equalities

PAGE = Path(__file__).resolve().parent / "language.md"
BEGIN, END = "<!-- Written by `python docs/equalities.py`. -->\n", "<!-- The end of what it writes. -->\n"


def page() -> str:
    """The whole page, with the table as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


def table() -> str:
    """A row for each equality that is about operators."""
    rows = [f"| `{row.called}` | `{row.formula}` | {row.where} |" for row in equalities()]
    return "\n".join(["", "| in the graph | in a pattern | where |", "|---|---|---|", *rows, "", ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
