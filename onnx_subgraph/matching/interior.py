"""Check that the inside of a match is private: no inner value is read by a node that stays.

Exporters read the shape of an inner value for a Reshape that is itself matched. Such arithmetic disappears with the match, so it
does not prevent it. The rewriter checks this again with shapes; here the check decides between alternatives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import onnx_ir as ir

from onnx_subgraph.model.nested import has_bodies
from onnx_subgraph.operators.names import KNOWN_DOMAINS

PASSING_ON = frozenset({"Identity", "Dropout", "Cast", "Constant", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze"})
"""Cheap operators that only pass on what they read. At the edge of a match such nodes are kept if others read them."""
DEEPEST = 64
"""Maximum depth of the arithmetic that is followed to see whether it disappears with the match."""


def live_reader(
    nodes: Collection[ir.Node],
    provided: Collection[ir.Value],
    read: Collection[ir.Value],
    gone: Collection[ir.Node],
) -> tuple[ir.Value, ir.Node | None] | None:
    """An inner value and the node that reads it once the match is gone (None: a graph output); None where there is none.

    read: the bound values, which a replacement may read. The nodes that compute them stay, even if only the match uses them.
    gone: nodes outside the match that are removed with it.
    """
    if is_closed(nodes, provided):
        return None
    verdicts = {**_verdicts(nodes, read), **dict.fromkeys(gone, True)}
    for node in nodes:
        for value in node.outputs:
            if value not in provided:
                for reader in _readers(value, verdicts):
                    return value, reader
    return None


def is_closed(nodes: Collection[ir.Node], provided: Collection[ir.Value]) -> bool:
    """Whether only the matched nodes themselves read inner values; true for most matches."""
    inside = set(nodes)
    inner = (value for node in nodes for value in node.outputs if value not in provided)
    return all(not value.is_graph_output() and all(user in inside for user, _ in value.uses()) for value in inner)


def own_nodes(
    nodes: Sequence[ir.Node], provided: Collection[ir.Value], shared: Collection[ir.Value], read: Collection[ir.Value]
) -> tuple[ir.Node, ...]:
    """The matched nodes in topological order, without those that stay because nodes outside read them and `staying` allows it."""
    verdicts = _verdicts(nodes, read)
    stay = staying(nodes, provided, shared, lambda value: any(True for _ in _readers(value, verdicts)))
    return tuple(n for n in nodes if n not in stay)


def staying(
    nodes: Sequence[ir.Node],
    provided: Collection[ir.Value],
    shared: Collection[ir.Value],
    is_needed: Callable[[ir.Value], bool],
) -> set[ir.Node]:
    """The matched nodes that stay, because nodes outside need their results. `nodes` must be in topological order.

    Only two kinds of nodes may stay: those that compute a shared value, and those at the edge of a match that only pass a value
    on.
    """
    computing = _behind(shared, nodes)
    removed: set[ir.Value] = set()
    may_stay: set[ir.Node] = set()
    for node in nodes:
        passes_on = node.op_type in PASSING_ON and not node.domain and not any(v in removed for v in node.inputs)
        if (passes_on or node in computing) and not any(v in provided for v in node.outputs):
            may_stay.add(node)
        else:
            removed.update(node.outputs)
    stay: set[ir.Node] = set()
    for node in reversed(nodes):
        if node in may_stay and any(is_needed(v) or any(u.node in stay for u in v.uses()) for v in node.outputs):
            stay.add(node)
    return stay


def _behind(values: Collection[ir.Value], nodes: Collection[ir.Node]) -> set[ir.Node]:
    """The nodes of `nodes` that compute `values`."""
    matched, found = set(nodes), set[ir.Node]()
    queue = [v.producer() for v in values]
    while queue:
        node = queue.pop()
        if node is not None and node in matched and node not in found:
            found.add(node)
            queue += [v.producer() for v in node.inputs if v is not None]
    return found


def _verdicts(nodes: Collection[ir.Node], read: Collection[ir.Value]) -> dict[ir.Node, bool]:
    verdicts: dict[ir.Node, bool] = {n: False for v in read if (n := v.producer()) is not None}
    verdicts.update(dict.fromkeys(nodes, True))
    return verdicts


def _readers(value: ir.Value, verdicts: dict[ir.Node, bool]) -> Iterator[ir.Node | None]:
    """The nodes that need the elements of `value`, not only its shape, after the match is gone; None for a graph output."""
    if value.is_graph_output():
        yield None
    for usage in value.uses():
        if usage.node.op_type not in ("Shape", "Size") and not _disappears(usage.node, verdicts, DEEPEST):
            yield usage.node


def _disappears(node: ir.Node, verdicts: dict[ir.Node, bool], depth: int) -> bool:
    """Whether all results of `node` are read only by nodes that disappear.

    A node without readers counts only if it is known to have no side effects.
    """
    known = verdicts.get(node)
    if known is not None:
        return known
    if depth == 0 or has_bodies(node):
        return False
    verdicts[node] = False
    verdicts[node] = all(
        not value.is_graph_output() and all(_disappears(u.node, verdicts, depth - 1) for u in value.uses())
        for value in node.outputs
    ) and (node.domain in KNOWN_DOMAINS or any(value.uses() for value in node.outputs))
    return verdicts[node]
