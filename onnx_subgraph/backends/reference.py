"""The backend `reference`: onnx's own evaluator, written for clarity.

It is slow and independent of onnxruntime: for tests, and as a judge. `verification.definitions` corrects the evaluator's errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from onnx_subgraph.backends.array import Array
from onnx_subgraph.backends.backend import Backend, Signature, opset_of, plain_array
from onnx_subgraph.evaluator.definitions import DEFINITIONS
from onnx_subgraph.evaluator.truth import without_overloads
from onnx_subgraph.model.folding import is_evaluated

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_subgraph.backends.subgraph import Subgraph


class Reference(Backend):
    """onnx's evaluator, for the operators of the standard."""

    name = "reference"
    version = onnx.__version__
    specializes = False
    concurrent = False

    def supports(self, node: ir.Node) -> bool:
        """Whether the evaluator has the operator."""
        return not node.domain and is_evaluated(node.op_type, opset_of(node))

    def compile(self, subgraph: Subgraph, signature: Signature) -> ReferenceEvaluator:
        """An evaluator of the region."""
        proto = without_overloads(onnx.load_from_string(subgraph.serialized(whole=True)))
        return ReferenceEvaluator(proto, new_ops=list(DEFINITIONS))

    def run(self, compiled: ReferenceEvaluator, inputs: Sequence[Array]) -> Sequence[Array]:
        """The outputs of the evaluator, copied because it may return an input or a weight itself."""
        with np.errstate(all="ignore"):  # an overflow gives infinity here, as in a kernel
            outputs: Any = compiled.run(None, dict(zip(compiled.input_names, map(plain_array, inputs), strict=True)))
        return [output.copy() if isinstance(output, np.ndarray) else output for output in outputs]
