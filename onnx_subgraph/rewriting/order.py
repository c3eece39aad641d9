"""Find the position of a replacement in topological order, and the nodes that must be moved before it."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_subgraph.emitting.fragment import Fragment
from onnx_subgraph.emitting.refused import Refused
from onnx_subgraph.model.nested import operands
from onnx_subgraph.rewriting.liveness import Redirect
from onnx_subgraph.rewriting.outline import Outline


def place(
    matched: Sequence[ir.Node],
    graph: ir.Graph,
    fragment: Fragment,
    replaced: dict[ir.Value, ir.Value],
    removed: Sequence[ir.Node],
    redirected: Sequence[Redirect],
    outline: Outline,
) -> tuple[ir.Node | None, tuple[ir.Node, ...]]:
    """The node that the fragment must precede (None: put it after the last matched node), and the nodes to move in front of it.

    Raises Refused for a cycle: what the replacement reads depends on what it provides.
    """
    position, gone = outline.position, set(removed)
    readers = {u for old in replaced for u, _ in old.uses()} | {
        r.reader for r in redirected if r.value is not None and r.value in replaced
    }
    places = {p for u in readers - gone if (p := outline.place_in(graph, u)) is not None}
    last = max(position[n] for n in matched)
    first = min(places, key=lambda n: position[n], default=None)
    if first is None or position[first] > last:
        return None, ()
    ancestors: set[ir.Node] = set()
    queue = [v.producer() for v in fragment.read.values()]
    while queue:
        node = queue.pop()
        if node is None or node in ancestors or outline.place_in(graph, node) is not node:
            continue
        if node in places or node in matched:
            reason = "the replacement would make a cycle: its inputs depend on its results"
            raise Refused(reason, change="compute what it reads from something else")
        if position[node] > position[first]:
            ancestors.add(node)
            queue += [v.producer() for v in operands(node)]
    return first, tuple(outline.in_order(ancestors))
