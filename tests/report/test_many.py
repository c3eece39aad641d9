"""The tables of many models: each number is in its column, and a problem is in one line."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console, RenderableType

from onnx_subgraph.report import many

FAILED = {"model": "b.onnx", "error": "b.onnx: is empty\nhint: export it again"}
BENCHED = {
    "model": "a.onnx",
    "models": [
        {"model": "a.onnx", "p50_ms": 2.5},
        {"model": "out/a.fused.onnx", "runtime": "onnxruntime", "ratio": {"ratio": 0.5, "least": 0.25, "most": 0.75}},
        {"model": "out/a.wrong.onnx", "runtime": "openvino", "problem": "another shape"},
    ],
}


def rows(answer: RenderableType) -> list[list[str]]:
    """The words of each line below the head of a table."""
    out = StringIO()
    Console(file=out, width=160).print(answer)
    return [line.split() for line in out.getvalue().partition("\nmodel ")[2].splitlines()[1:] if line.strip()]


def groups(*counts: int) -> list[dict[str, int]]:
    return [{"count": count} for count in counts]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            many.benched([BENCHED, FAILED]),
            ["a.onnx 0.500 0.25–0.75 2.5 a.fused.onnx in onnxruntime", "a.onnx – – 2.5 a.wrong.onnx in openvino: another shape"],
        ),
        (many.mined([{"model": "a.onnx", "nodes": 9, "free": 7, "units": 2}, FAILED]), ["a.onnx 9 7 2"]),
        (
            many.explained(
                [{"model": "a.onnx", "nodes": 9, "fusions": groups(4, 5), "skipped": groups(3), "near_misses": []}, FAILED]
            ),
            ["a.onnx 9 9 3 0"],
        ),
    ],
    ids=["bench", "mine", "explain"],
)
def test_each_number_is_in_its_column(answer: Any, said: list[str]) -> None:
    *good, bad = [" ".join(row) for row in rows(answer)]
    assert [row for row in good if not set(row) <= set("─ ")] == said
    assert bad.startswith("b.onnx – –") and bad.endswith("b.onnx: is empty")
