"""Time models side by side, and profile them."""

from onnx_subgraph.timing.bench import Bench, BenchOptions, Timed, bench
from onnx_subgraph.timing.turns import Ratio

__all__ = ["Bench", "BenchOptions", "Ratio", "Timed", "bench"]
