"""Prints the rows of a page as they are measured, and keeps the page up to date, so that a run broken off leaves what it has."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def tell(head: str, rows: Iterable[str], page: Path | None) -> None:
    """Print `head` and each row; page: the file that holds them, or None."""
    text = head
    print(head, end="")
    for row in rows:
        print(row, flush=True)
        text += row + "\n"
        if page is not None:
            page.write_text(text, encoding="utf-8")
