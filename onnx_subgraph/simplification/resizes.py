"""A Resize to multiples of the sizes, as one by scales.

`F.interpolate(x, size=(2 * h, 2 * w))` computes the sizes in every run. By the standard a scale is the new size divided by the
old one, so a whole multiple is the same scale.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import Constants
from onnx_subgraph.model.dimension_names import Dim
from onnx_subgraph.model.shapes import same_dim
from onnx_subgraph.model.surgery import constant

_WITHOUT_REGION = 13
"""The first opset in which the region of a Resize may be left out."""


def as_scaled(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """The Resize by scales, behind them, that gives the result of one to computed sizes; [] for other nodes.

    Shapes must follow from the inputs (`proved_only`).
    """
    if node.op_type != "Resize" or node.domain or len(node.inputs) < 4 or constants.opset(node) < _WITHOUT_REGION:
        return []
    source, sizes, result = node.inputs[0], node.inputs[3], node.outputs[0]
    if source is None or sizes is None or constants.is_constant(sizes) or any(a.is_ref() for a in node.attributes.values()):
        return []
    if "axes" in node.attributes or node.attributes.get_string("keep_aspect_ratio_policy", "stretch") != "stretch":
        return []
    if node.attributes.get_string("coordinate_transformation_mode", "") == "tf_crop_and_resize":
        return []
    if source.shape is None or result.shape is None or len(source.shape) != len(result.shape):
        return []
    factors = [_factor(before, after) for before, after in zip(source.shape, result.shape, strict=True)]
    if None in factors:
        return []
    scales = constant(np.array(factors, np.float32), f"{result.name}__scales")
    name = f"{node.name or result.name}_scaled"
    return [scales, ir.Node("", "Resize", [source, None, scales.outputs[0]], list(node.attributes.values()), name=name)]


def _factor(before: Dim, after: Dim) -> int | None:
    """The whole number that one size is times another; None where there is none."""
    if same_dim(before, after):
        return 1
    if isinstance(before, int) and isinstance(after, int):
        return after // before if before > 0 and after > 0 and after % before == 0 else None
    import sympy

    from onnx_subgraph.model.broadcasting import expression_of

    small, large = expression_of(before), expression_of(after)
    if small is None or large is None or small == 0:
        return None
    quotient = sympy.cancel(large / small)
    return int(quotient) if quotient.is_Integer and quotient > 0 else None
