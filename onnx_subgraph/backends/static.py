"""The backend `static`: a nested session of onnxruntime for each region and each signature, in which the sizes are fixed.

When a signature is first met, constants that follow from the sizes are folded, and onnxruntime optimises the rest. The other
parts of the model keep their symbolic dimensions: a detector's backbone can be static, while the suppression of its boxes is not.
(The name and the idea are Chainer's, https://docs.chainer.org/en/stable/reference/static_graph.html.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx_subgraph.backends.onnxruntime import Nested, OnnxRuntime
from onnx_subgraph.backends.subgraph import Subgraph
from onnx_subgraph.model.specialize import specialize

if TYPE_CHECKING:
    from onnx_subgraph.backends.backend import Signature


class Static(OnnxRuntime):
    """Nested sessions, one for each signature."""

    name = "static"
    specializes = True

    def compile(self, subgraph: Subgraph, signature: Signature) -> Nested:
        """A session of the region with these sizes. Raises UsageError if they don't fit the region's declarations."""
        model = subgraph.model.clone()
        sizes = {name: shape for name, (_, shape) in zip(subgraph.inputs, signature, strict=True)}
        specialize(model, {name: tuple(size for size in shape if size is not None) for name, shape in sizes.items()})
        return super().compile(Subgraph(subgraph.name, subgraph.key, model), signature)
