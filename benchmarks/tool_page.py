"""Prints the rows of `tool.py` and writes its page, `tool.md`."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

OURS = "fuse"
RUN = "one run"


@dataclass(frozen=True)
class Run:
    """One run of a tool: seconds of processor time, seconds, peak memory in MB. failure: why it made no model, or ""."""

    processor: float
    wall: float
    peak: float
    failure: str = ""


@dataclass(frozen=True)
class Row:
    """The runs of all tools on one model, in turn. size: bytes of the model and its data."""

    model: str
    size: int
    runs: Mapping[str, Sequence[Run]]

    def median(self, tool: str, of: Callable[[Run], float]) -> float:
        """The median of a tool's runs."""
        return statistics.median(map(of, self.runs[tool]))

    def ratio(self, tool: str, of: Callable[[Run], float]) -> float:
        """The median of the ratios of our runs to theirs."""
        pairs = zip(self.runs[OURS], self.runs[tool], strict=True)
        return statistics.median(of(ours) / of(theirs) for ours, theirs in pairs)

    def failure(self, tool: str) -> str:
        """Why a tool made no model, or ""."""
        return next((run.failure for run in self.runs[tool] if run.failure), "")


MEASURES: Mapping[str, Callable[[Run], float]] = {
    "processor": lambda run: run.processor,
    "wall": lambda run: run.wall,
    "peak": lambda run: run.peak,
}


def told(row: Row) -> str:
    """The row as a line: ours in seconds and MB, the peers as ratios."""
    ours = [row.failure(OURS) or "{:.2f} s, wall {:.2f} s, {:.0f} MB".format(*(row.median(OURS, of) for of in MEASURES.values()))]
    return f"{row.model} ({row.size / 1e6:.0f} MB): " + "; ".join(ours + [f"{tool} {_cell(row, tool)}" for tool in _peers(row)])


def page(rows: Sequence[Row]) -> str:
    """The page."""
    peers = list(dict.fromkeys(tool for row in rows for tool in _peers(row)))
    head = ["model", "MB", "processor time", "time", "peak memory", *peers]
    lines = [
        "# The tool itself",
        "",
        "The time and memory of `fuse` to fuse, verify and write a model, compared with other tools, which verify nothing.",
        "Seconds and MB are those of `fuse` (medians). A peer's cell is `fuse` divided by the peer: processor time / time /",
        "peak memory. Below 1, `fuse` takes less. If the weights are in a separate file, `fuse` leaves them there; the others",
        "write them again. *One run*: a process that opens the original in onnxruntime as it comes, and runs it once. `fuse`",
        "runs the original and the fused model several times.",
        "",
        f"    python benchmarks/tool.py --peers PYTHON --corpus CORPUS --folder FOLDER --write   # {os.cpu_count()} processors",
        "",
        _line(head),
        _line(["---"] * len(head)),
    ]
    for row in rows:
        first, second, third = (row.median(OURS, of) for of in MEASURES.values())
        ours = [f"{first:.2f} s", f"{second:.2f} s", f"{third:.0f} MB"]
        cells = [_cell(row, tool) if tool in row.runs else "" for tool in peers]
        lines.append(
            _line([row.model, f"{row.size / 1e6:.0f}", *([row.failure(OURS), "", ""] if row.failure(OURS) else ours), *cells])
        )
    return "\n".join(lines) + "\n"


def _cell(row: Row, tool: str) -> str:
    if why := row.failure(tool) or row.failure(OURS):
        return f"fails: {why}".replace("|", "\\|")
    return " / ".join(f"{row.ratio(tool, of):.2f}" for of in MEASURES.values())


def _peers(row: Row) -> list[str]:
    return [tool for tool in row.runs if tool != OURS]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
