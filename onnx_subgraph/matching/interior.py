"""Check that the inside of a match is private: no inner value is read by a node that stays.

Exporters read the shape of an inner value for a Reshape that is itself matched. Such arithmetic disappears with the match, so it
does not prevent it. The rewriter checks this again with shapes; here the check decides between alternatives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import onnx_ir as ir

from onnx_subgraph.matching.equalities import REARRANGING
from onnx_subgraph.model.asked import Constants
from onnx_subgraph.model.nested import behind, has_bodies
from onnx_subgraph.model.transparent import passed_on
from onnx_subgraph.operators.names import KNOWN_DOMAINS

PASSING_ON = REARRANGING | {"Identity", "Dropout", "Cast", "Constant", "Neg"}
"""Cheap operators that pass on what they read, or its negative. At the edge of a match they are kept if others read them."""
DYING_LIMIT = 256
"""The most nodes outside a match that are searched. Beyond it, nodes count as alive."""


class Order(NamedTuple):
    """The order of a graph. useless: the nodes of known operators on which no output depends."""

    position: Mapping[ir.Node, float]
    useless: frozenset[ir.Node]

    @classmethod
    def of(cls, position: Mapping[ir.Node, float]) -> Order:
        """The order of a graph with the nodes in `position`."""
        useless: set[ir.Node] = set()
        pending = [node for node in position if not any(output.uses() for output in node.outputs)]
        while pending:
            node = pending.pop()
            users = (user for output in node.outputs for user, _ in output.uses())
            ends = has_bodies(node) or any(output.is_graph_output() for output in node.outputs)
            if node.domain in KNOWN_DOMAINS and not ends and all(user in useless for user in users):
                useless.add(node)
                sources = (value.producer() for value in node.inputs if value is not None)
                pending += [source for source in sources if source is not None and source in position]
        return cls(position, frozenset(useless))


class Dying:
    """The nodes that die with a match, because only its nodes and other dying nodes read their results.

    gone: the matched nodes, and others that are removed with them. kept: values that are read afterwards. order: of the graph
    that is searched.
    """

    def __init__(self, gone: Iterable[ir.Node], kept: Iterable[ir.Value] = (), order: Order | None = None) -> None:
        self.gone = frozenset(gone)
        self.kept = frozenset(kept)
        self.order = order or Order({}, frozenset())
        self.end: float = max((self.order.position[node] for node in self.gone if node in self.order.position), default=0)
        self._known: dict[ir.Node, bool] = {}

    def readers(self, value: ir.Value) -> list[tuple[ir.Node, int]]:
        """The uses of `value` that stay alive when the match is removed."""
        return [(node, index) for node, index in value.uses() if not self.dies(node)]

    def dies(self, node: ir.Node) -> bool:
        """Whether a node has no live reader when the match is removed.

        A node that nothing read before counts only if it is known to have no side effects.
        """
        if node in self.gone:
            return True
        if node not in self._known:
            self._known[node] = False
            self._known[node] = len(self._known) <= DYING_LIMIT and self._has_no_live_reader(node)
        return self._known[node]

    def _has_no_live_reader(self, node: ir.Node) -> bool:
        if has_bodies(node) or any(o.is_graph_output() or o in self.kept for o in node.outputs):
            return False
        users = {user for output in node.outputs for user, _ in output.uses()}
        return self.may_die(node) and all(map(self.dies, users)) if users else node.domain in KNOWN_DOMAINS

    def may_die(self, node: ir.Node) -> bool:
        """Whether it is worth searching the readers of a node: one after the last matched node can't feed the match."""
        return self.order.position.get(node, self.end) <= self.end or node in self.order.useless


def live_reader(
    nodes: Collection[ir.Node],
    provided: Collection[ir.Value],
    read: Collection[ir.Value],
    gone: Collection[ir.Node],
    order: Order,
) -> tuple[ir.Value, ir.Node | None] | None:
    """An inner value and the node that reads it once the match is gone (None: a graph output); None where there is none.

    read: the bound values, which a replacement may read. The nodes that compute them stay, even if only the match uses them.
    gone: nodes outside the match that are removed with it. order: of the graph.
    """
    if is_closed(nodes, provided):
        return None
    dying = Dying((*nodes, *gone), read, order)
    inner = (value for node in nodes for value in node.outputs if value not in provided)
    return next(((value, reader) for value in inner for reader in _readers(value, dying)), None)


def is_closed(nodes: Collection[ir.Node], provided: Collection[ir.Value]) -> bool:
    """Whether only the matched nodes themselves read inner values; true for most matches."""
    inside = set(nodes)
    inner = (value for node in nodes for value in node.outputs if value not in provided)
    return all(not value.is_graph_output() and all(user in inside for user, _ in value.uses()) for value in inner)


def own_nodes(
    nodes: Sequence[ir.Node],
    provided: Collection[ir.Value],
    shared: Collection[ir.Value],
    read: Collection[ir.Value],
    constants: Constants,
    order: Order,
) -> tuple[ir.Node, ...]:
    """The matched nodes in topological order, without those that stay because nodes outside read them and `staying` allows it."""
    dying = Dying(nodes, read, order)
    stay = staying(nodes, provided, shared, lambda value: any(True for _ in _readers(value, dying)), constants)
    return tuple(n for n in nodes if n not in stay)


def staying(
    nodes: Sequence[ir.Node],
    provided: Collection[ir.Value],
    shared: Collection[ir.Value],
    is_needed: Callable[[ir.Value], bool],
    constants: Constants,
) -> set[ir.Node]:
    """The matched nodes that stay, because nodes outside need their results. `nodes` must be in topological order.

    Only two kinds of nodes may stay: those that compute a shared value, and those at the edge of a match that only pass a value
    on, or its negative.
    """
    matched = {output: node for node in nodes for output in node.outputs}
    computing = behind(shared, matched.get)
    removed: set[ir.Value] = set()
    may_stay: set[ir.Node] = set()
    for node in nodes:
        at_edge = not any(v in removed for v in node.inputs)
        if (node in computing or (at_edge and _passes_on(node, constants))) and not any(v in provided for v in node.outputs):
            may_stay.add(node)
        else:
            removed.update(node.outputs)
    stay: set[ir.Node] = set()
    for node in reversed(nodes):
        if node in may_stay and any(is_needed(v) or any(u.node in stay for u in v.uses()) for v in node.outputs):
            stay.add(node)
    return stay


def _passes_on(node: ir.Node, constants: Constants) -> bool:
    """Whether a node only passes on what it reads: in another layout or type, negated, or as it is, such as a quotient by one."""
    return not node.domain and (node.op_type in PASSING_ON or passed_on(constants, node.outputs[0]) is not None)


def _readers(value: ir.Value, dying: Dying) -> Iterator[ir.Node | None]:
    """The nodes that need the elements of `value`, not only its shape, after the match is gone; None for a graph output."""
    if value.is_graph_output():
        yield None
    for node, _ in value.uses():
        if node.op_type not in ("Shape", "Size") and not dying.dies(node):
            yield node
