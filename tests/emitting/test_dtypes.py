"""Dtypes of results from the schema alone equal those that onnx infers."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph.emitting.dtypes import declared

X = ir.DataType.FLOAT


def results(line: str) -> tuple[ir.Node, ir.DataType]:
    """The node from a line of ONNX's text form, and the dtype that onnx infers for its result, with float `x` and bool `b`."""
    text = f'<ir_version: 8, opset_import: ["" : 18]>\nm (float[2, 3] x, bool[2, 3] b) => (y) {{ y = {line} }}'
    proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text), strict_mode=True)
    node = ir.from_proto(onnx.parser.parse_model(text)).graph.node(0)
    return node, ir.DataType(proto.graph.output[0].type.tensor_type.elem_type)


@pytest.mark.parametrize(
    "line",
    [
        "Shape (x)",
        "IsNaN (x)",
        "Size (x)",
        "NonZero (x)",
        "ArgMax (x)",
        "Less (x, x)",
        "And (b, b)",
        "Cast <to = 7> (x)",
        "Exp (x)",
    ],
)
def test_the_dtype_follows_from_a_schema_with_one_type_or_one_variable(line: str) -> None:
    node, inferred = results(line)
    known = {"x": X, "b": ir.DataType.BOOL}
    assert declared(node, node.outputs[0], {"": 18}, lambda value: known[value.name or ""]) == inferred
