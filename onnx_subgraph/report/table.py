"""Tables for a terminal: one entry a line and no frames, so that a CI log can be searched."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


class Rows:
    """A table with one entry a line. If it is too wide, the last columns of an entry are below its first ones.

    head: how many columns stay beside each other: ids and numbers. The others hold names and sentences of any length.
    """

    def __init__(self, *columns: str, head: int, right: Container[str] = ()) -> None:
        self.columns = columns
        self.head = head
        self.right = right
        self.entries: list[tuple[str | Text, ...]] = []

    def add(self, *cells: str | Text) -> None:
        self.entries.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [max(map(_width, column)) for column in zip(self.columns, *self.entries, strict=True)]
        fits = sum(widths) + 2 * (len(widths) - 1) <= options.max_width
        shown = len(self.columns) if fits else self.head
        if fits or shown == len(self.columns):
            yield self._table(self.entries, shown, widths, header=True)
            return
        for position, entry in enumerate(self.entries):
            yield self._table([entry], shown, widths, header=position == 0)
            below = grid()
            for name, cell in zip(self.columns[shown:], entry[shown:], strict=True):
                below.add_row(f"  {name}", cell)
            yield below

    def _table(self, entries: Sequence[tuple[str | Text, ...]], shown: int, widths: Sequence[int], *, header: bool) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=header)
        for name, width in zip(self.columns[:shown], widths, strict=False):
            table.add_column(name, overflow="fold", min_width=min(width, 12), justify="right" if name in self.right else "left")
        if not header or len(entries) == 1:
            for column, width in zip(table.columns, widths, strict=False):
                column.width = width
        for entry in entries:
            table.add_row(*entry[:shown])
        return table


def _width(cell: str | Text) -> int:
    return max(map(cell_len, str(cell).splitlines()), default=0)


def grid() -> Table:
    """A table of facts: name and value."""
    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    return grid
