"""Check that a model raised to a later opset still loads.

An operator without a kernel runs by its definition. onnx wrote that definition for the opset in which the operator was last
changed. onnxruntime accepts it in a model of that opset, but not in a much later one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from onnx_subgraph.errors import ModelError
from onnx_subgraph.rewriting.loadability import Loadability, Operand

_OVERFLOWING = frozenset(("Softplus",))
"""Operators whose definition in the standard overflows where a kernel does not: log(exp(x) + 1)."""
_KEEP = "keep its opset (--opset keep)"


def check_raised(model: ir.Model, loadability: Sequence[Loadability]) -> None:
    """Raise ModelError where a node has no kernel on one of the providers, and its definition does not load, or overflows."""
    opset = model.opset_imports.get("", 0)
    for node, inputs in _typed(model):
        outputs = [Operand(o.dtype or ir.DataType.UNDEFINED) if o.name else None for o in node.outputs]
        for provider in loadability:
            if not provider.inlines(node.op_type, opset, inputs):
                continue
            if node.op_type in _OVERFLOWING and ir.DataType.FLOAT16 in {one.dtype for one in inputs if one is not None}:
                raise ModelError(
                    f"raised to opset {opset}, {node.op_type} would be computed by its definition, which overflows in float16, "
                    f"on {provider.provider}",
                    hint=_KEEP,
                )
            reason = provider.definition_error(node.op_type, opset, inputs, outputs, node.attributes.values())
            if reason is not None:
                raise ModelError(
                    f"raised to opset {opset}, the model would not load: {node.op_type} on {provider.provider}: {reason}",
                    hint=_KEEP,
                )


def _typed(model: ir.Model) -> Iterator[tuple[ir.Node, list[Operand | None]]]:
    """The nodes of the default domain outside functions whose inputs are all tensors of a known type, with their operands."""
    for node in model.graph.all_nodes():
        if node.domain or not node.inputs or any(a.is_ref() for a in node.attributes.values()):
            continue
        if all(v is None or (isinstance(v.type, ir.TensorType) and v.dtype is not None) for v in node.inputs):
            yield node, [_operand(v) for v in node.inputs]


def _operand(value: ir.Value | None) -> Operand | None:
    if value is None or value.dtype is None:
        return None
    return Operand(value.dtype, None if value.shape is None else len(value.shape))
