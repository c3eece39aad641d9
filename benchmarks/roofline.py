"""The time of a native model by operator, beside what this processor can do."""

from __future__ import annotations

import json
import math
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

RUNS = 20
Shape = Sequence[int]


@dataclass(frozen=True)
class Spent:
    """One operator of a model. nodes: their number. milliseconds, operations, nbytes: of all of them in one run. operations
    counts products and sums of products with weights, nbytes each operand and result once.
    """

    operator: str
    nodes: int
    milliseconds: float
    operations: float
    nbytes: float


def spent(model: Path, feeds: Mapping[str, np.ndarray], library: Path) -> list[Spent]:
    """The time of each operator on one thread. The time of a node is the 33rd percentile of its runs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    options.log_severity_level = 4
    options.register_custom_ops_library(str(library))
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        for _ in range(RUNS):
            session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    nodes: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            nodes[event["name"]].append(event)
    found: dict[str, list[Spent]] = defaultdict(list)
    for runs in nodes.values():
        arguments = runs[-1]["args"]
        shapes = [_shapes(arguments[key]) for key in ("input_type_shape", "output_type_shape")]
        operator = arguments["op_name"]
        time = float(np.quantile([run["dur"] for run in runs], 1 / 3)) / 1e3
        nbytes = 4.0 * sum(math.prod(shape) for shape in (*shapes[0], *shapes[1]))
        found[operator].append(Spent(operator, 1, time, _operations(operator, *shapes), nbytes))
    rows = [
        Spent(
            name,
            len(each),
            sum(one.milliseconds for one in each),
            sum(one.operations for one in each),
            sum(one.nbytes for one in each),
        )
        for name, each in found.items()
    ]
    return sorted(rows, key=lambda row: -row.milliseconds)


def _shapes(said: Sequence[Mapping[str, Shape]]) -> list[Shape]:
    return [shape for one in said for shape in one.values()]


def _operations(operator: str, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> float:
    """Number of products and sums in a product with weights or in attention; 0 for operators that are bound by memory."""
    if operator in ("Linear", "MatMul", "Gemm", "FusedGemm"):
        return 2.0 * math.prod(outputs[0]) * inputs[0][-1]
    if operator == "Attention" and len(inputs) >= 3:
        keys = inputs[1][-2]
        return 4.0 * math.prod(inputs[0]) * keys
    return 0.0
