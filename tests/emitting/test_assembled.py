"""A shape is assembled from those of other values, with few nodes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnx_subgraph.emitting.assembled import assembled
from tests.rewriting.stage import run

FEEDS = {"x": np.zeros((2, 3, 5), np.float32), "y": np.zeros((7, 11), np.float32)}


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize(
    ("sizes", "operators"),
    [
        ([("x", 1)], ["Shape"]),
        ([("x", 1), ("x", 2)], ["Shape"]),
        ([("x", 2), ("x", 1)], ["Shape", "Shape", "Concat"]),
        ([("x", 0), 4, 6, ("y", 1)], ["Shape", "Constant", "Shape", "Concat"]),
        ([("x", 0), ("y", 1)], ["Shape", "Shape", "Concat"]),
        ([4, 6], ["Constant"]),
        ([], ["Constant"]),
    ],
)
def test_sizes(sizes: list[int | tuple[str, int]], operators: list[str], opset: int) -> None:
    values = {
        name: ir.val(name, shape=[f"{name}{axis}" for axis in range(array.ndim)], dtype=ir.DataType.FLOAT)
        for name, array in FEEDS.items()
    }
    nodes = assembled([size if isinstance(size, int) else (values[size[0]], size[1]) for size in sizes], opset)
    made = [node.op_type for node in nodes]
    early = [part for operator in operators for part in (("Shape", "Constant", "Gather") if operator == "Shape" else (operator,))]
    assert made == (operators if opset >= 15 else early)
    result = nodes[-1].outputs[0]
    result.name, result.type, result.shape = "s", ir.TensorType(ir.DataType.INT64), ir.Shape([len(sizes)])
    for number, node in enumerate(nodes[:-1]):
        node.outputs[0].name = f"n{number}"
    graph = ir.Graph(list(values.values()), [result], nodes=nodes, opset_imports={"": opset}, name="g")
    (found,) = run(ir.to_proto(ir.Model(graph, ir_version=8)), FEEDS)
    expected = [size if isinstance(size, int) else FEEDS[size[0]].shape[size[1]] for size in sizes]
    np.testing.assert_array_equal(found, np.array(expected, np.int64))
