"""Regions: runs of nodes as large as they can be, that one node can take the place of.

`grow` gives the regions of the nodes that somebody supports; `grow_from` asks the questions of a subgraph selector. A region is
connected and convex (no path leaves it and comes back), lies in one graph, and all regions of a graph can be replaced together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import onnx_ir as ir

from onnx_subgraph.matching.convex import convex_parts
from onnx_subgraph.model.nested import bodies, reads


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


def grow(graph: ir.Graph, supported: Callable[[ir.Node], bool]) -> list[Region]:
    """The regions of the nodes of `graph` that are supported, in the order of their first nodes.

    A region can't be made larger by another one beside it. Nodes inside the bodies of If, Loop and Scan are not asked for: such a
    node stands for all that is in it. `graph` is in topological order, as ONNX demands. Deterministic, and linear in its size.
    """
    nodes = tuple(graph)
    members = [bool(supported(node)) for node in nodes]
    return [
        Region.of(graph, [nodes[i] for i in part]) for part in convex_parts(_sources(nodes), members, lambda first, second: True)
    ]


def grow_from(graph: ir.Graph, questions: Questions) -> list[Region]:
    """The regions that `questions` let grow in `graph`, in the order of their first nodes.

    Each node that is not yet in a region is asked whether one may start there, in the order of the graph; the region then takes
    all that it may grow to and no other has taken. Where it has grown around a node that it could not take, it falls into convex
    parts, and those in which no region may start are left out.
    """
    nodes = tuple(graph)
    sources = _sources(nodes)
    consumers: list[list[int]] = [[] for _ in nodes]
    for node, read in enumerate(sources):
        for source in read:
            consumers[source].append(node)
    owner: dict[int, int] = {}
    joined: set[tuple[int, int]] = set()
    for start in range(len(nodes)):
        if start in owner or not questions.select(nodes[start]):
            continue
        owner[start] = start
        queue = deque([start])
        while queue:
            node = queue.popleft()
            around = [(other, (other, node)) for other in sources[node]] + [(other, (node, other)) for other in consumers[node]]
            for other, edge in around:
                question = questions.select_input if other == edge[0] else questions.select_output
                if edge in joined or owner.get(other, start) != start or not question(nodes[node], nodes[other]):
                    continue
                joined.add(edge)
                if other not in owner:
                    owner[other] = start
                    queue.append(other)
    parts = convex_parts(sources, [i in owner for i in range(len(nodes))], lambda first, second: (first, second) in joined)
    started = set(owner.values())
    return [
        Region.of(graph, [nodes[i] for i in part])
        for part in parts
        if any(i in started for i in part) or any(questions.select(nodes[i]) for i in part)
    ]


def _sources(nodes: Sequence[ir.Node]) -> list[list[int]]:
    """For each node the nodes that it reads, by position, each once."""
    position = {node: i for i, node in enumerate(nodes)}
    found: list[list[int]] = []
    for node in nodes:
        producers = (v.producer() for v in reads(node))
        found.append(list(dict.fromkeys(position[p] for p in producers if p is not None and p in position)))
    return found
