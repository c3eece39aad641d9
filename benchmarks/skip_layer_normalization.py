"""Prints what SkipLayerNormalization costs on the CPU, as a ratio to the Add and LayerNormalization that it replaces.

    python benchmarks/skip_layer_normalization.py [--runs 60]

Both run in one process, in turn, with one thread and without graph optimisation: median (least to most) of the ratios.
Above 1 the fused operator is slower.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import onnx.parser
import onnxruntime

HIDDEN = 768
SIZES = ((1, 16), (1, 128), (4, 256))
BODIES = {
    "apart": "t = Add(x, skip) y = LayerNormalization<epsilon = 1e-05>(t, scale, bias)",
    "fused": "y = com.microsoft.SkipLayerNormalization<epsilon = 1e-05>(x, skip, scale, bias)",
}


def session(body: str) -> onnxruntime.InferenceSession:
    """A session for one of the two bodies."""
    inputs = f"float[b, s, {HIDDEN}] x, float[b, s, {HIDDEN}] skip, float[{HIDDEN}] scale, float[{HIDDEN}] bias"
    header = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    model = onnx.parser.parse_model(f"{header} g ({inputs}) => (float[b, s, {HIDDEN}] y) {{ {body} }}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def seconds(made: onnxruntime.InferenceSession, feeds: dict[str, np.ndarray]) -> float:
    """The time of one run."""
    begun = time.perf_counter()
    made.run(None, feeds)
    return time.perf_counter() - begun


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=60)
    runs = arguments.parse_args().runs
    apart, fused = session(BODIES["apart"]), session(BODIES["fused"])
    draw = np.random.default_rng(0)
    for batch, length in SIZES:
        shapes = {"x": (batch, length, HIDDEN), "skip": (batch, length, HIDDEN), "scale": (HIDDEN,), "bias": (HIDDEN,)}
        feeds = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        ratios = [seconds(fused, feeds) / seconds(apart, feeds) for _ in range(runs)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}, {runs} runs"
        print(f"float32[{batch}, {length}, {HIDDEN}]  {statistics.median(ratios):.2f}  ({spread})")


if __name__ == "__main__":
    main()
