"""The nested graphs of a node (bodies of If, Loop and Scan), and the outer values that they read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import onnx_ir as ir

_GRAPHS = frozenset({ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS})


def bodies(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs in a node's attributes."""
    for attribute in node.attributes.data.values():  # walking the underlying dictionary is faster
        if attribute.type not in _GRAPHS or attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        else:
            yield from attribute.as_graphs()


def has_bodies(node: ir.Node) -> bool:
    """Whether a graph is in a node's attributes."""
    return any(attribute.type in _GRAPHS for attribute in node.attributes.data.values())


def within(graph: ir.Graph) -> list[ir.Graph]:
    """A graph and every body nested in it, each before those inside it. `Graph.subgraphs` gives the same, more slowly."""
    found = [graph]
    for node in graph:
        if node.attributes.data:
            for body in bodies(node):
                found += within(body)
    return found


def within_proved(graph: ir.Graph) -> list[ir.Graph]:
    """A graph and the bodies of Ifs and Loops in it, each before those inside it.

    Their shapes follow from the values that they get (`proved_only`). Other bodies, such as that of a Scan, declare the sizes of
    their inputs, and one name may stand for several sizes there.
    """
    found = (body for node in graph if node.op_type in ("If", "Loop") and not node.domain for body in bodies(node))
    return [graph, *(inner for body in found for inner in within_proved(body))]


def graph_of(owner: ir.Graph | ir.Function) -> ir.Graph:
    """The graph of a function; a graph is returned as it is."""
    return owner.graph if isinstance(owner, ir.Function) else owner


def graph_around(node: ir.Node) -> ir.Graph:
    """The graph that a node is in. The node must be in one."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    return graph


def count(node: ir.Node) -> int:
    """The number of nodes, including those in nested bodies."""
    return 1 + sum(count(inner) for body in bodies(node) for inner in body)


def operands(node: ir.Node) -> Iterator[ir.Value]:
    """Every value that a node reads, including those read in its bodies."""
    yield from (v for v in node.inputs if v is not None)
    for body in bodies(node):
        for inner in body:
            yield from operands(inner)
        yield from body.outputs


def reads(node: ir.Node) -> list[ir.Value]:
    """Every outside value that a node reads: its inputs, and the values that its bodies capture."""
    inner = {graph for body in bodies(node) for graph in within(body)} if node.attributes.data else set()
    if not inner:  # the common case
        return [v for v in node.inputs if v is not None]
    return [v for v in operands(node) if v.graph not in inner]


def behind(values: Iterable[ir.Value], maker: Callable[[ir.Value], ir.Node | None]) -> set[ir.Node]:
    """The nodes that compute values. maker: the node that computes a value; None where the search ends."""
    found: set[ir.Node] = set()
    pending = list(values)
    while pending:
        node = maker(pending.pop())
        if node is not None and node not in found:
            found.add(node)
            pending += operands(node)
    return found


def live(graph: ir.Graph) -> list[ir.Node]:
    """The nodes of a graph that its outputs depend on, the last one first."""
    needed = set(graph.outputs)
    found = []
    for node in reversed(graph):
        if not needed.isdisjoint(node.outputs):
            found.append(node)
            needed.update(reads(node))
    return found
