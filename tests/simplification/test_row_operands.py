"""One row of a node's result depends on the rows of the operands that `row_operands` names, and on no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.simplification.row_operands import Places, row_operands
from tests.simplification.test_simplify import run

Expected = list[Places | None]
X = "float[2, 3, 4] x"
FIRST: Expected = [[(0, axis)] for axis in range(3)]
BOTH: Expected = [[(0, axis), (1, axis)] for axis in range(3)]

NODES: dict[str, tuple[str, str, Expected]] = {
    "one operand": ("y = Relu(x)", X, FIRST),
    "two alike": ("y = Add(x, z)", f"{X}, float[2, 3, 4] z", BOTH),
    "an operand of lower rank": ("y = Add(x, z)", f"{X}, float[3, 4] z", [[(0, 0)], [(0, 1), (1, 0)], [(0, 2), (1, 1)]]),
    "an operand with an axis of size 1": (
        "y = Add(z, x)",
        f"{X}, float[2, 1, 4] z",
        [[(0, 0), (1, 0)], [(1, 1)], [(0, 2), (1, 2)]],
    ),
    "one number": ("y = Mul(x, z)", f"{X}, float z", FIRST),
    "three operands": ("y = Where(c, x, z)", f"{X}, bool[3, 1] c, float[4] z", [[(1, 0)], [(0, 0), (1, 1)], [(1, 2), (2, 0)]]),
    "bounds of Clip": ("y = Clip(x, z)", f"{X}, float z", FIRST),
    "a type": ("y = CastLike(x, z)", f"{X}, float[5] z", FIRST),
    "a slope": ("y = PRelu(x, z)", f"{X}, float[3, 1] z", [[(0, 0)], [(0, 1), (1, 0)], [(0, 2)]]),
    "a product": ("y = MatMul(x, z)", f"{X}, float[4, 5] z", [[(0, 0)], [(0, 1)], None]),
    "a product in a batch": ("y = MatMul(x, z)", f"{X}, float[2, 4, 5] z", [[(0, 0), (1, 0)], [(0, 1)], None]),
    "a product with a smaller batch": ("y = MatMul(z, x)", f"{X}, float[1, 5, 3] z", [[(1, 0)], [(0, 1)], None]),
    "a product with a vector": ("y = MatMul(x, z)", f"{X}, float[4] z", [None, None]),
    "a Gemm": ("y = Gemm(x, z)", "float[3, 4] x, float[4, 5] z", [[(0, 0)], None]),
    "a Gemm with an addend": ("y = Gemm(x, z, c)", "float[3, 4] x, float[4, 5] z, float[3, 1] c", [[(0, 0), (2, 0)], None]),
    "a Gemm with a bias": ("y = Gemm(x, z, c)", "float[3, 4] x, float[4, 5] z, float[5] c", [[(0, 0)], None]),
    "a transposed Gemm": ("y = Gemm<transA = 1>(x, z)", "float[4, 3] x, float[4, 5] z", [None, None]),
    "a Transpose": ("y = Transpose<perm = [2, 0, 1]>(x)", X, [[(0, 2)], [(0, 0)], [(0, 1)]]),
    "an Unsqueeze": ("y = Unsqueeze(x, one)", X, [[(0, 0)], None, [(0, 1)], [(0, 2)]]),
    "a Squeeze": ("y = Squeeze(x, one)", "float[2, 1, 4] x", [[(0, 0)], [(0, 2)]]),
    "a Reshape": ("y = Reshape(x, shape)", "float[2, 3, 8] x", [[(0, 0)], [(0, 1)], None, None]),
    "a Reshape that moves no axis there": ("y = Reshape(x, moved)", "float[4, 5, 4] x", [[(0, 0)], None, None]),
    "a Reshape of merged axes": ("y = Reshape(x, merged)", "float[2, 3, 4] x", [None, [(0, 2)]]),
    "a Reshape that copies the size of the row": ("y = Reshape(x, copied)", "float[5, 5, 4] x", [None, [(0, 0)], None, [(0, 2)]]),
    "a Concat": ("y = Concat<axis = 1>(x, z)", f"{X}, float[2, 5, 4] z", [[(0, 0), (1, 0)], None, [(0, 2), (1, 2)]]),
    "a Split": ("y, z = Split<axis = 2>(x)", X, [[(0, 0)], [(0, 1)], None]),
    "a Slice": ("y = Slice(x, one, two, one)", X, [[(0, 0)], None, [(0, 2)]]),
    "a Slice of all axes": ("y = Slice(x, ones, twos)", X, [None, None, None]),
    "a Softmax": ("y = Softmax<axis = 1>(x)", X, [[(0, 0)], None, [(0, 2)]]),
    "a LayerNormalization": ("y = LayerNormalization(x, z)", f"{X}, float[4] z", [[(0, 0)], [(0, 1)], None]),
    "one of two axes": ("y = LayerNormalization<axis = 1>(x, z)", f"{X}, float[3, 4] z", [[(0, 0)], None, None]),
    "a scale with rows": ("y = LayerNormalization(x, z)", f"{X}, float[2, 3, 4] z", [None, None, None]),
    "a mean": ("y = ReduceMean<axes = [1]>(x)", X, [[(0, 0)], None, [(0, 2)]]),
    "a mean without its axis": ("y = ReduceMean<axes = [1], keepdims = 0>(x)", X, [[(0, 0)], [(0, 2)]]),
    "a mean of everything": ("y = ReduceMean(x)", X, [None, None, None]),
    "a quantization": ("y = QuantizeLinear(x, z)", f"{X}, float z", FIRST),
    "a quantization of channels": ("y = QuantizeLinear<axis = 1>(x, z)", f"{X}, float[3] z", [None, None, None]),
    "a sum over rows": ("y = CumSum(x, one)", X, [None, None, None]),
    "an image": ("y = GlobalAveragePool(x)", X, [None, None, None]),
}
CONSTANTS = (
    "int64[1] one = {1}, int64[1] two = {2}, int64[3] ones = {0, 1, 0}, int64[3] twos = {2, 2, 4}, "
    "int64[4] shape = {0, -1, 2, 4}, int64[3] moved = {4, 4, 5}, int64[2] merged = {6, 4}, int64[4] copied = {1, 0, 5, 4}"
)


def drawn(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    draw, feeds = np.random.default_rng(0), dict[str, Any]()
    for value in proto.graph.input:
        array = np.asarray(draw.random([dim.dim_value for dim in value.type.tensor_type.shape.dim])) + np.array(0.1)
        feeds[value.name] = np.array(array, onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
    return feeds


@pytest.mark.parametrize("name", NODES)
def test_a_row_depends_on_the_rows_of_these_operands(name: str) -> None:
    """Computed from one row of each, and from all of the others, it is the same."""
    body, inputs, expected = NODES[name]
    kind = "uint8" if "Quantize" in body else "float"
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({kind}[A] y) <{CONSTANTS}> {{ {body} }}'
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    model = ir.from_proto(proto)
    infer_shapes(model)
    constants, node, feeds = Constants(model), model.graph.node(0), drawn(proto)
    (whole,) = run(proto, feeds)
    assert [row_operands(constants, node, axis) for axis in range(whole.ndim)] == expected
    for axis, places in enumerate(expected):
        for row in range(whole.shape[axis]) if places is not None else ():
            given = dict(feeds)
            for index, at in places or ():
                operand = proto.graph.node[0].input[index]
                given[operand] = feeds[operand].take([row], at)
            wanted = whole.take([row], axis)
            found = given["x"].reshape(wanted.shape) if node.op_type == "Reshape" else run(free(proto), given)[0]
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


def free(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with inputs of any size."""
    copy = onnx.ModelProto.FromString(proto.SerializeToString())
    for value in copy.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    return copy
