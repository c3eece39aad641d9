"""Model times set by a test, in place of measured ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnx
import pytest

from onnx_subgraph.timing import Bench, BenchOptions, Ratio, Timed

Cost = Callable[[onnx.NodeProto], float]
Asked = tuple[Sequence[Path], BenchOptions]


def timed_by(monkeypatch: pytest.MonkeyPatch, costs: Mapping[str, float] | Cost, spread: float = 1.0) -> list[Asked]:
    """Let `tune` measure the sum of the costs of a model's nodes: by operator (1 for others), or by node.

    Returns the models and options of each measurement, which are added as `tune` runs.

    spread: the factor between a ratio and its extremes in parts of the runs.
    """
    cost: Cost = costs if callable(costs) else lambda node: costs.get(node.op_type, 1.0)

    def time(path: Path) -> float:
        return sum(map(cost, onnx.load(path).graph.node))

    def bench(paths: Sequence[Path], options: BenchOptions, progress: object) -> Bench:
        asked.append((paths, options))
        first = time(paths[0])
        found = [time(path) / first for path in paths]
        ratios = [Ratio(ratio, ratio / spread, ratio * spread) for ratio in found]
        timed = tuple(Timed(path, "onnxruntime", (1.0,), None if n == 0 else ratios[n]) for n, path in enumerate(paths))
        return Bench(timed, options, {}, "")

    asked: list[Asked] = []
    monkeypatch.setattr("onnx_subgraph.tuning.choosing.bench", bench)
    return asked
