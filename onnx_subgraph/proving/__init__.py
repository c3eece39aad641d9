"""Prove patterns: generate models from a pattern that must fuse and mutants that must not, and compare all with float64."""

from onnx_subgraph.proving.prove import Proof, prove

__all__ = ["Proof", "prove"]
