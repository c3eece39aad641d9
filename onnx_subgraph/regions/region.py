"""Regions: maximal sets of nodes that one node can replace.

`grow` gives the regions of supported nodes. `grow_from` gives the regions that a subgraph selector chooses. A region lies in one
graph and is connected and convex: no path leaves it and comes back. All regions of a graph can be replaced together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import onnx_ir as ir

from onnx_subgraph.model.nested import bodies, reads
from onnx_subgraph.regions.convex import Joins, convex_parts


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A convex, connected set of nodes of one graph.

    nodes: in the order of the graph. inputs: the values that the nodes read and do not compute, in the order of first use;
    includes initializers and values that nested graphs capture. outputs: the values that the nodes compute and other nodes read,
    in order; includes graph outputs.
    """

    graph: ir.Graph
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]

    @classmethod
    def of(cls, graph: ir.Graph, nodes: Sequence[ir.Node]) -> Region:
        """The region of `nodes`, which must be in the order of `graph`."""
        inside = {n for node in nodes for n in (node, *(m for body in bodies(node) for m in body.all_nodes()))}
        computed = {o for n in nodes for o in n.outputs}
        read = dict.fromkeys(v for n in nodes for v in reads(n) if v not in computed)
        outputs = [o for n in nodes for o in n.outputs if o.is_graph_output() or any(u not in inside for u, _ in o.uses())]
        return cls(graph, tuple(nodes), tuple(read), tuple(outputs))


class Questions(Protocol):
    """Decides where regions start and how far they grow. Called in the order of the graph."""

    def select(self, node: ir.Node) -> bool:
        """Whether a region may start here. If so, a new region begins, and the next calls of the other methods are about it."""
        ...

    def select_input(self, node: ir.Node, producer: ir.Node) -> bool:
        """Whether the region of `node` may grow to `producer`, which computes an input of it."""
        ...

    def select_output(self, node: ir.Node, consumer: ir.Node) -> bool:
        """Whether the region of `node` may grow to `consumer`, which reads an output of it."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Wiring:
    """The edges of a graph, with nodes as numbers: the producers and the consumers of each node, without repetition."""

    nodes: tuple[ir.Node, ...]
    sources: tuple[list[int], ...]
    consumers: tuple[list[int], ...]

    @classmethod
    def of(cls, graph: ir.Graph) -> Wiring:
        """The edges of a graph in topological order."""
        nodes = tuple(graph)
        position = {node: i for i, node in enumerate(nodes)}
        sources: list[list[int]] = []
        consumers: tuple[list[int], ...] = tuple([] for _ in nodes)
        for number, node in enumerate(nodes):
            producers = [v.producer() for v in reads(node)]
            sources.append(list(dict.fromkeys([position[p] for p in producers if p is not None and p in position])))
            for source in sources[-1]:
                consumers[source].append(number)
        return cls(nodes, tuple(sources), consumers)

    def parts(self, members: Collection[int], joins: Joins) -> list[list[ir.Node]]:
        """Partition the members into convex parts (`convex_parts`). Only nodes between two members need to be considered."""
        if not members:
            return []
        after, before = set(members), set(members)
        for node in range(min(members), len(self.nodes)):
            if not after.isdisjoint(self.sources[node]):
                after.add(node)
        for node in range(max(members), -1, -1):
            if not before.isdisjoint(self.consumers[node]):
                before.add(node)
        kept = sorted(after & before)
        number = {node: i for i, node in enumerate(kept)}
        reading = [[number[s] for s in self.sources[node] if s in number] for node in kept]
        parts = convex_parts(reading, [node in members for node in kept], lambda a, b: joins(kept[a], kept[b]))
        return [[self.nodes[kept[i]] for i in part] for part in parts]


def grow(graph: ir.Graph, supported: Callable[[ir.Node], bool]) -> list[Region]:
    """The regions of the supported nodes of `graph`, in the order of their first nodes.

    Regions are maximal: no two neighbouring regions could be merged. Nodes inside the bodies of If, Loop and Scan are not asked
    about; such a node includes everything in its bodies. `graph` must be in topological order, as ONNX requires. Deterministic;
    takes time linear in the size of the graph.
    """
    wiring = Wiring.of(graph)
    members = {number for number, node in enumerate(wiring.nodes) if supported(node)}
    return [Region.of(graph, part) for part in wiring.parts(members, lambda first, second: True)]


def grow_from(graph: ir.Graph, questions: Questions, wiring: Wiring | None = None) -> list[Region]:
    """The regions of `graph` that `questions` chooses, in the order of their first nodes. wiring: the graph's, if already known.

    Visits the nodes in the order of the graph. A node that is in no region yet may start one; the region then takes every node
    that it may grow to and that no other region has. If a region is not convex, because it has grown around a node that it may
    not take, it is split into convex parts. A part in which no region may start is dropped.
    """
    wiring = wiring or Wiring.of(graph)
    nodes = wiring.nodes
    owner: dict[int, int] = {}
    joined: set[tuple[int, int]] = set()
    for start in range(len(nodes)):
        if start in owner or not questions.select(nodes[start]):
            continue
        owner[start] = start
        queue = deque([start])
        while queue:
            node = queue.popleft()
            for around, question in ((wiring.sources, questions.select_input), (wiring.consumers, questions.select_output)):
                for other in around[node]:
                    edge = (other, node) if other < node else (node, other)
                    if owner.get(other, start) != start or edge in joined or not question(nodes[node], nodes[other]):
                        continue
                    joined.add(edge)
                    if other not in owner:
                        owner[other] = start
                        queue.append(other)
    started = {nodes[i] for i in owner.values()}
    return [
        Region.of(graph, part)
        for part in wiring.parts(owner.keys(), lambda first, second: (first, second) in joined)
        if not started.isdisjoint(part) or any(map(questions.select, part))
    ]
