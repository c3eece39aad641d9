"""The share of a model's time in products with weights, which no fusion makes shorter."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose", "LSTM", "GRU", "RNN")
"""Suffixes of the operators' names. They cover onnxruntime's own, such as FusedMatMul and FusedConv."""
RUNS = 12


def seconds_of_products(model: Path, feeds: Mapping[str, np.ndarray], threads: int) -> float:
    """Seconds of the products with weights in one run of a model. Each product counts with its quickest run.

    A product counts if it has a name and one of its inputs is an initializer of at least two dimensions. Both are read from the
    graph that onnxruntime makes of the model with all its optimisations.
    """
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        for _ in range(RUNS):
            session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        counted = products(onnx.load(options.optimized_model_filepath, load_external_data=False).graph)
    quickest: dict[str, float] = {}
    for event in events:
        name = event["name"].removesuffix("_kernel_time")
        if name in counted and name != event["name"]:
            quickest[name] = min(event["dur"] * 1e-6, quickest.get(name, float("inf")))
    return sum(quickest.values())


def products(graph: onnx.GraphProto) -> set[str]:
    """The names of the nodes that multiply by weights."""
    weights = {t.name for t in graph.initializer if len(t.dims) >= 2}
    return {n.name for n in graph.node if n.op_type.endswith(PRODUCTS) and weights.intersection(n.input)} - {""}
