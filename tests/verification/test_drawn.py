"""Sizes of drawn values: they do not contradict each other."""

from __future__ import annotations

import onnx_ir as ir

from onnx_subgraph.verification.drawn import _sizes


def test_a_dimension_that_is_an_expression_of_a_known_size_agrees_with_it() -> None:
    """A piece behind `x.reshape(3 * batch, …)` may read the batch too. Drawn apart, the sizes would contradict each other."""
    model = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
    piece (float[stacked, 4] x, float[batch, 4] z) => (float[stacked, 4] y) { y = Relu(x) }""")
    x, z = model.graph.inputs
    x.shape, z.shape = ir.Shape(["3*batch", "other"]), ir.Shape(["apart", 4])
    sizes = next(_sizes(model, {"batch": 5}))
    assert sizes["3*batch"] == 15 and "other" in sizes and "apart" in sizes
