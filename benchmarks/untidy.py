"""The ways in which files that onnxruntime loads break the ONNX specification.

They are read from the protobuf, without nested bodies: what is counted is what a reader of the file has to tolerate.
"""

from __future__ import annotations

import onnx

LONG_NAME = "default domain named ai.onnx"
UNSORTED = "nodes out of order"
NO_IMPORT = "com.microsoft used and not imported"
EARLY = "LayerNormalization before opset 17"
TWICE = "value or output declared twice"
NEGATIVE = "negative size in a shape"
WAYS = (LONG_NAME, UNSORTED, NO_IMPORT, EARLY, TWICE, NEGATIVE)
"""All ways, in the order of the table."""


def ways(model: onnx.ModelProto) -> tuple[str, ...]:
    """The ways in which `model` is untidy."""
    found = {
        LONG_NAME: any(o.domain == "ai.onnx" for o in model.opset_import),
        UNSORTED: _is_unsorted(model.graph),
        NO_IMPORT: _lacks_import(model),
        EARLY: _is_early(model),
        TWICE: _declares_twice(model.graph),
        NEGATIVE: any(
            d.HasField("dim_value") and d.dim_value < 0
            for v in (*model.graph.input, *model.graph.output)
            for d in v.type.tensor_type.shape.dim
        ),
    }
    return tuple(way for way in WAYS if found[way])


def _is_unsorted(graph: onnx.GraphProto) -> bool:
    made = {o for n in graph.node for o in n.output if o}
    seen: set[str] = set()
    for node in graph.node:
        if any(i in made and i not in seen for i in node.input):
            return True
        seen.update(node.output)
    return False


def _lacks_import(model: onnx.ModelProto) -> bool:
    return any(n.domain == "com.microsoft" for n in model.graph.node) and all(
        o.domain != "com.microsoft" for o in model.opset_import
    )


def _is_early(model: onnx.ModelProto) -> bool:
    """LayerNormalization before opset 17: onnxruntime has its own operator of this name."""
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    return opset < 17 and any(n.op_type == "LayerNormalization" and n.domain in ("", "ai.onnx") for n in model.graph.node)


def _declares_twice(graph: onnx.GraphProto) -> bool:
    outputs, made = [o.name for o in graph.output], [o for n in graph.node for o in n.output if o]
    return (
        len(set(outputs)) < len(outputs) or len(set(made)) < len(made) or bool({v.name for v in graph.value_info} & set(outputs))
    )
