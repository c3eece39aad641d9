"""Taking nodes out of a graph, with all that only they read; what takes their place keeps the names of their results."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from onnx_subgraph.model.nested import bodies, operands, within
from onnx_subgraph.model.shapes import DECLARED


def remove(node: ir.Node) -> None:
    """Remove a node that nothing reads, and what only it read; one that is read stays."""
    if not is_read(node):
        sweep(_detached(node))


def sweep(unread: Iterable[ir.Value]) -> None:
    """Remove what computes these values and is no longer read, and initializers that no longer are, but for inputs."""
    waiting = list(unread)
    while waiting:
        value = waiting.pop()
        producer = value.producer()
        if producer is not None and producer.graph is not None and not is_read(producer):
            waiting += _detached(producer)
        elif value.is_initializer() and not (value.uses() or value.is_graph_input() or value.is_graph_output()):
            assert value.graph is not None and value.name is not None
            del value.graph.initializers[value.name]


def replace(old: ir.Value, new: ir.Value) -> None:
    """Put a new value in the place of one, with its name, and what the file declares of it."""
    name, declared = old.name, old.meta.pop(DECLARED, None)
    new.type, new.shape = new.type or old.type, new.shape or old.shape
    new.meta.pop(DECLARED, None)
    new.meta.update({key: value for key, value in old.meta.items() if key not in new.meta})
    if declared is not None:
        new.meta[DECLARED] = declared
    old.name = None
    new.name = name
    old.replace_all_uses_with(new, replace_graph_outputs=True)


def is_read(node: ir.Node) -> bool:
    """Whether anything reads a result of the node."""
    return any(output.uses() or output.is_graph_output() for output in node.outputs)


def _detached(node: ir.Node) -> list[ir.Value]:
    """Take a node out of its graph, so that it and its bodies read nothing. What they read."""
    read = list(operands(node))
    inside = [graph for body in bodies(node) for graph in within(body)]
    for graph in inside:
        graph.outputs.clear()
    for one in (node, *(inner for graph in inside for inner in graph)):
        for index in range(len(one.inputs)):
            one.replace_input_with(index, None)
    assert node.graph is not None
    node.graph.remove(node)
    return read
