"""Regions: runs of nodes as large as they can be, that one node can take the place of.

`grow` gives the regions of the nodes that somebody supports; `grow_from` asks the questions of a subgraph selector. A region is
connected and convex (no path leaves it and comes back), lies in one graph, and all regions of a graph can be replaced together.
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

    nodes: in the order of the graph. inputs: what they read and do not compute, initializers and what their bodies capture
    included, in the order of the first use. outputs: what they compute and others read, graph outputs included, in their order.
    """

    graph: ir.Graph
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]

    @classmethod
    def of(cls, graph: ir.Graph, nodes: Sequence[ir.Node]) -> Region:
        """The region of `nodes`, which are given in the order of `graph`."""
        inside = {n for node in nodes for n in (node, *(m for body in bodies(node) for m in body.all_nodes()))}
        computed = {o for n in nodes for o in n.outputs}
        read = dict.fromkeys(v for n in nodes for v in reads(n) if v not in computed)
        outputs = [o for n in nodes for o in n.outputs if o.is_graph_output() or any(u not in inside for u, _ in o.uses())]
        return cls(graph, tuple(nodes), tuple(read), tuple(outputs))


class Questions(Protocol):
    """What decides where regions begin and how far they grow. Asked in the order of the graph."""

    def select(self, node: ir.Node) -> bool:
        """May a region start here? A yes begins a new region; the other questions are then asked about this one."""
        ...

    def select_input(self, node: ir.Node, producer: ir.Node) -> bool:
        """May the region that `node` is in grow to `producer`, which computes an input of it?"""
        ...

    def select_output(self, node: ir.Node, consumer: ir.Node) -> bool:
        """May the region that `node` is in grow to `consumer`, which reads an output of it?"""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Wiring:
    """The nodes of a graph as numbers, in its order: for each the nodes that it reads, and those that read it, each once."""

    nodes: tuple[ir.Node, ...]
    sources: tuple[list[int], ...]
    consumers: tuple[list[int], ...]

    @classmethod
    def of(cls, graph: ir.Graph) -> Wiring:
        """The wiring of a graph in topological order."""
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
        """The members in convex parts (`convex_parts`). Only what lies between two members can lie between two parts."""
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
    """The regions of the nodes of `graph` that are supported, in the order of their first nodes.

    A region can't be made larger by another one beside it. Nodes inside the bodies of If, Loop and Scan are not asked for: such a
    node stands for all that is in it. `graph` is in topological order, as ONNX demands. Deterministic, and linear in its size.
    """
    wiring = Wiring.of(graph)
    members = {number for number, node in enumerate(wiring.nodes) if supported(node)}
    return [Region.of(graph, part) for part in wiring.parts(members, lambda first, second: True)]


def grow_from(graph: ir.Graph, questions: Questions, wiring: Wiring | None = None) -> list[Region]:
    """The regions that `questions` let grow in `graph`, in the order of their first nodes. wiring: that of the graph, if known.

    Each node that is not yet in a region is asked whether one may start there, in the order of the graph; the region then takes
    all that it may grow to and no other has taken. Where it has grown around a node that it could not take, it falls into convex
    parts, and those in which no region may start are left out.
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
            around = [(other, (other, node)) for other in wiring.sources[node]]
            around += [(other, (node, other)) for other in wiring.consumers[node]]
            for other, edge in around:
                question = questions.select_input if other == edge[0] else questions.select_output
                if edge in joined or owner.get(other, start) != start or not question(nodes[node], nodes[other]):
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
