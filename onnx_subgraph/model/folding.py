"""What one node computes from known operands, by onnx's reference evaluator.

Constants and shape inference fold through here, a node at a time and only where the operands are known. onnx is imported when the
first node is folded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir


def evaluate(node: ir.Node, operands: Sequence[np.ndarray | None], opset: int) -> list[object] | None:
    """What one node computes, by onnx's reference evaluator; None where that does not know the operator or stumbles."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    inputs = ["" if array is None else f"i{index}" for index, array in enumerate(operands)]
    feeds = {name: array for name, array in zip(inputs, operands, strict=True) if array is not None}
    outputs = [f"o{index}" for index in range(len(node.outputs))]
    proto = ir.to_proto(node)
    call = onnx.helper.make_node(node.op_type, inputs, outputs)
    call.attribute.extend(proto.attribute)
    graph = onnx.helper.make_graph(
        [call],
        "fold",
        [onnx.helper.make_tensor_value_info(name, _element_type(array), None) for name, array in feeds.items()],
        [onnx.helper.make_tensor_value_info(name, 0, None) for name in outputs],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore"):
            return list(ReferenceEvaluator(model).run(None, feeds))
    except Exception:  # The evaluator lacks an operator or a type, or the node is wrong: it is simply not folded.
        return None


def _element_type(array: np.ndarray) -> int:
    return int(ir.DataType.STRING if array.dtype.kind in "OSU" else ir.DataType.from_numpy(array.dtype))
