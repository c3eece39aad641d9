"""find(), as a user calls it: on a model of onnx_ir, prepared or not."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph import UsageError, find, load_patterns
from onnx_subgraph.model.shapes import infer_shapes

MATMUL_ADD = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x, float[4, 8] w, float[8] b) => (float[n, 8] y) {
  shaped = Identity (x)
  product = MatMul (shaped, w)
  y = Add (product, b)
}
"""


def model() -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(MATMUL_ADD))


def test_shapes_are_inferred_where_nobody_did() -> None:
    """A pattern that needs a shape is found in a model as it is loaded."""
    prepared = model()
    infer_shapes(prepared)
    wanted = [(match.pattern.id, len(match.nodes)) for match in find(prepared, load_patterns().patterns).matches]
    found = [(match.pattern.id, len(match.nodes)) for match in find(model(), load_patterns().patterns).matches]
    assert found == wanted and ("gemm-add", 2) in found


def test_a_model_of_another_library_is_named() -> None:
    with pytest.raises(UsageError, match="the model to search is of type ModelProto, not of onnx_ir\nhint: give one of onnx_ir"):
        find(onnx.ModelProto(), load_patterns().patterns)  # type: ignore[arg-type]
