"""How far a match has come: an immutable value, so that yielding is backtracking and nothing has to be undone."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

NODE = 100
"""What one matched node adds to the rank of a state."""


class State:
    """Bindings, matched nodes and chosen alternatives so far. Every method returns a new state; none changes this one.

    rank: how far it has come, `NODE` for each node.
    """

    __slots__ = ("bindings", "chosen", "nodes", "rank")

    def __init__(self, bindings: dict[Any, Any], nodes: Any, rank: int, chosen: dict[int, int]) -> None:
        self.bindings = bindings
        self.nodes = nodes
        self.rank = rank
        self.chosen = chosen

    def bind(self, name: object, value: object) -> State:
        """With `name` standing for `value`."""
        return State({**self.bindings, name: value}, self.nodes, self.rank, self.chosen)

    def visit(self, nodes: tuple[ir.Node, ...]) -> State:
        """With `nodes` matched as well."""
        return State(self.bindings, (nodes, self.nodes), self.rank + NODE * len(nodes), self.chosen) if nodes else self

    def whole(self) -> State:
        """As far as a match can come: every node matched, and only a condition left to fail."""
        return self.further(NODE // 2)

    def further(self, steps: int) -> State:
        """The same state at a higher or lower rank, to say where something failed."""
        return State(self.bindings, self.nodes, self.rank + steps, self.chosen)

    def choose(self, key: int, alternative: int) -> State:
        """With the alternative chosen for the `Either` whose id is `key`."""
        return State(self.bindings, self.nodes, self.rank, {**self.chosen, key: alternative})

    def matched(self) -> set[ir.Node]:
        """All nodes matched so far."""
        found: set[ir.Node] = set()
        link = self.nodes
        while link is not None:
            nodes, link = link
            found.update(nodes)
        return found


EMPTY = State({}, None, 0, {})
