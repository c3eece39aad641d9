"""What a node holds beyond its inputs: the bodies of If, Loop and Scan, and the values of outer graphs that they read."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

_GRAPHS = frozenset({ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS})


def bodies(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs among a node's attributes."""
    for attribute in node.attributes.data.values():  # the mapping itself, which is quicker to walk
        if attribute.type not in _GRAPHS or attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        else:
            yield from attribute.as_graphs()


def within(graph: ir.Graph) -> list[ir.Graph]:
    """A graph and every body nested in it, each before those inside it. `Graph.subgraphs` gives the same, more slowly."""
    found = [graph]
    for node in graph:
        if node.attributes.data:
            for body in bodies(node):
                found += within(body)
    return found


def graph_of(owner: ir.Graph | ir.Function) -> ir.Graph:
    """The graph of a function; a graph is its own."""
    return owner.graph if isinstance(owner, ir.Function) else owner


def count(node: ir.Node) -> int:
    """How many nodes a node is, those in its bodies counted."""
    return 1 + sum(count(inner) for body in bodies(node) for inner in body)


def operands(node: ir.Node) -> Iterator[ir.Value]:
    """Every value that a node reads, in its bodies too."""
    yield from (v for v in node.inputs if v is not None)
    for body in bodies(node):
        for inner in body:
            yield from operands(inner)
        yield from body.outputs


def reads(node: ir.Node) -> list[ir.Value]:
    """Every value that a node reads and does not hold itself: its inputs, and what its bodies capture."""
    inner = {graph for body in bodies(node) for graph in within(body)} if node.attributes.data else set()
    if not inner:  # as of nearly every node
        return [v for v in node.inputs if v is not None]
    return [v for v in operands(node) if v.graph not in inner]
