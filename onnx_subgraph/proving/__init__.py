"""A pattern is its own test generator: models that must fuse, mutants that must not, and a float64 evaluation as the truth."""

from onnx_subgraph.proving.prove import Proof, prove

__all__ = ["Proof", "prove"]
