"""A mask of zeros and ones is known by its elements, or by how it is computed from such masks."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from onnx_subgraph.model.binary import binary
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import infer_shapes

STORED = """float[2, 3] tri = {1, 0, 0, 1, 1, 0}, float[3] half = {0, 0.5, 1}, float one = {1}, float two = {2},
    int64[1] zero = {0}"""


def known(body: str) -> tuple[bool | None, onnx.ModelProto]:
    head = f'<ir_version: 8, opset_import: ["" : 17]> g (float[3] x, bool[3] c, int64[1] d) => (float[3] y) <{STORED}> {{'
    proto = onnx.parser.parse_model(f"{head} {body} y = Add(x, one) }}")
    model = ir.from_proto(proto)
    infer_shapes(model)
    value = next(output for node in model.graph for output in node.outputs if output.name == "b")
    return binary(Constants(model), value), proto


BINARY = {
    "a part of a triangle": "rows = Slice(tri, zero, d, zero) b = Transpose(rows)",
    "a Cast of a condition": "b = Cast<to = 1>(c)",
    "the opposite of a mask": "m = Cast<to = 1>(c) b = Sub(one, m)",
    "two masks together": "m = Cast<to = 1>(c) r = Gather(tri, d) b = Mul(m, r)",
    "what a condition chooses": "r = Gather(tri, d) b = Where(c, r, one)",
    "masks in a row": "e = Gather(tri, d) f = Concat<axis = 0>(e, tri) b = Trilu<upper = 1>(f)",
}


@pytest.mark.parametrize("body", BINARY.values(), ids=BINARY)
def test_a_mask_is_known_and_holds_zeros_and_ones(body: str) -> None:
    found, proto = known(body)
    assert found
    proto.graph.output.append(onnx.helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"x": np.ones(3, np.float32), "c": np.array([True, False, True]), "d": np.array([1])}
    assert set(np.unique(session.run(["b"], feeds)[0])) <= {0, 1}


def test_a_value_that_is_read_many_times_is_looked_at_once() -> None:
    """3⁶⁰ paths lead to the mask."""
    lines = [f"m{n} = Max(m{n - 1}, m{n - 1}, m{n - 1})" for n in range(1, 61)]
    assert known(f"m0 = Cast<to = 1>(c) {' '.join(lines)} b = Identity(m60)")[0]


@pytest.mark.parametrize(
    "body",
    [
        "b = Relu(x)",
        "b = Gather(half, d)",
        "b = Identity(half)",
        "m = Cast<to = 1>(c) b = Sub(two, m)",
        "m = Cast<to = 1>(c) b = Sub(m, one)",
        "m = Cast<to = 1>(c) b = Mul(m, x)",
        "m = Cast<to = 1>(c) b = Add(m, m)",
        "m = Cast<to = 1>(c) b = Where(c, m, x)",
        "m = Cast<to = 1>(c) b = Concat<axis = 0>(m, x)",
    ],
)
def test_other_values_are_not_taken_for_masks(body: str) -> None:
    assert not known(body)[0]
