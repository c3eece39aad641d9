"""Which ways to fuse a model pay on this machine, by measuring it, and which products may be rounded within an accuracy."""

from onnx_subgraph.tuning.choosing import BUDGET, tune

__all__ = ["BUDGET", "tune"]
