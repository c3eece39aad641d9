"""Times of models that a test decides, in place of a clock's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnx
import pytest

from onnx_subgraph.timing import Bench, BenchOptions, Ratio, Timed

Cost = Callable[[onnx.NodeProto], float]


def timed_by(monkeypatch: pytest.MonkeyPatch, costs: Mapping[str, float] | Cost) -> None:
    """Has `tune` measure the sum of what the nodes of a model cost: by operator, 1 where it is not among them, or by node."""
    cost: Cost = costs if callable(costs) else lambda node: costs.get(node.op_type, 1.0)

    def time(path: Path) -> float:
        return sum(map(cost, onnx.load(path).graph.node))

    def bench(paths: Sequence[Path], options: BenchOptions, progress: object) -> Bench:
        first = time(paths[0])
        ratios = [Ratio(time(path) / first, time(path) / first, time(path) / first) for path in paths]
        timed = tuple(Timed(path, "onnxruntime", (1.0,), None if n == 0 else ratios[n]) for n, path in enumerate(paths))
        return Bench(timed, options, {}, "")

    monkeypatch.setattr("onnx_subgraph.tuning.choosing.bench", bench)
