"""The nodes, graphs and tensors of a protobuf, and how a message names a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx


def describe(node: onnx.NodeProto) -> str:
    """A node as text for a message: its name, else its first output."""
    if node.name:
        return f"node '{node.name}' ({node.op_type})"
    made = next((name for name in node.output if name), "")
    return f"the {node.op_type} node that makes '{made}'" if made else f"a nameless {node.op_type} node"


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, including those in nested bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in graphs(attribute):
                yield from all_nodes(graph.node)


def graphs(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that an attribute holds."""
    if attribute.type == onnx.AttributeProto.GRAPH:
        yield attribute.g
    elif attribute.type == onnx.AttributeProto.GRAPHS:
        yield from attribute.graphs


def tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model: initializers and attributes, also in nested bodies and functions."""
    yield from _graph_tensors(proto.graph)
    for function in proto.functions:
        yield from _node_tensors(function.node)


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.TENSORS:
                yield from attribute.tensors
            for graph in graphs(attribute):
                yield from _graph_tensors(graph)
