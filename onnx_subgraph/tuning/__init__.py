"""Tune a model: find the fastest way to fuse it on this machine, and which products may be rounded within an accuracy."""

from onnx_subgraph.tuning.choosing import BUDGET, tune

__all__ = ["BUDGET", "tune"]
