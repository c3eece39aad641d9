"""A model of one node, to ask a library whether it can run the node.

Dtypes, known sizes, attributes and small constant inputs are those of the node; large constants are inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_subgraph.backends.subgraph import constant
from onnx_subgraph.model.nested import has_bodies, reads

SMALL = 1 << 12
"""The largest constants, in bytes, that are part of the model."""


@dataclass(frozen=True, slots=True)
class SingleNode:
    """A model of one node. key: equal for nodes that a library can't tell apart."""

    node: ir.Node
    key: object

    @classmethod
    def of(cls, node: ir.Node) -> SingleNode | None:
        """The model for `node`; None if the dtype of an input is not known."""
        if any(value.dtype is None for value in reads(node)):
            return None
        if has_bodies(node):
            return cls(node, node)
        attributes = tuple(sorted((name, _text(attribute)) for name, attribute in node.attributes.items()))
        inputs = tuple(map(_described, node.inputs))
        return cls(node, (node.op_identifier(), _opsets(node), inputs, len(node.outputs), attributes))

    def serialized(self) -> bytes:
        """The model as ONNX."""
        read = tuple(dict.fromkeys(reads(self.node)))
        outputs = [value for value in self.node.outputs if value.name]
        graph = ir.GraphView(read, outputs, nodes=[self.node], opset_imports=dict(_opsets(self.node)), name="single").clone()
        for value, original in tuple(zip(graph.inputs, read, strict=True)):
            value.const_value = _small(original)
            value.shape = None if value.shape is None else ir.Shape(_sizes(value))
            if value.const_value is not None:
                graph.inputs.remove(value)
                graph.register_initializer(value)
        for value in graph.outputs:
            value.shape = None
        content: bytes = ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString()
        return content


def _small(value: ir.Value) -> ir.TensorProtocol | None:
    tensor = constant(value)
    return tensor if tensor is not None and tensor.nbytes <= SMALL else None


def _opsets(node: ir.Node) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((node.graph.opset_imports if node.graph is not None else {}).items()))


def _described(value: ir.Value | None) -> object:
    if value is None:
        return None
    if (tensor := _small(value)) is not None:
        return value.dtype, tuple(tensor.shape.numpy()), tensor.tobytes()
    return value.dtype, None if value.shape is None else tuple(_sizes(value))


def _sizes(value: ir.Value) -> list[int | None]:
    return [dim if isinstance(dim, int) else None for dim in value.shape or ()]


def _text(attribute: ir.Attr) -> str:
    if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
        return f"{attribute.value.dtype}{attribute.value.shape}"
    return str(attribute.value)
