"""The state of a partial match. States are immutable, so backtracking needs no undo."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx_ir as ir

from onnx_subgraph.errors import Span

Visited = tuple[tuple[tuple[ir.Node, ...], Span | None], ...]
"""Matched nodes with the part of the pattern that each matched. A node may be there twice."""
NODE = 100
"""The rank that each matched node adds to a state."""
WHOLE = 3 * NODE
"""The rank that a whole match adds. Its false condition is a better reason than another form with a node or two more."""


class State:
    """Bindings, matched nodes and chosen alternatives so far. Every method returns a new state.

    rank: how far the match has got; `NODE` for each node.
    """

    __slots__ = ("bindings", "chosen", "nodes", "rank")

    def __init__(self, bindings: dict[Any, Any], nodes: Any, rank: int, chosen: dict[int, int]) -> None:
        self.bindings = bindings
        self.nodes = nodes
        self.rank = rank
        self.chosen = chosen

    def bind(self, name: object, value: object) -> State:
        """The state with `name` bound to `value`."""
        return State({**self.bindings, name: value}, self.nodes, self.rank, self.chosen)

    def visit(self, nodes: tuple[ir.Node, ...], span: Span | None = None) -> State:
        """The state with `nodes` matched, by the part of the pattern at `span`."""
        return State(self.bindings, (nodes, span, self.nodes), self.rank + NODE * len(nodes), self.chosen) if nodes else self

    def further(self, steps: int) -> State:
        """The same state with its rank changed by `steps`, to rank a failure."""
        return State(self.bindings, self.nodes, self.rank + steps, self.chosen)

    def choose(self, key: int, alternative: int) -> State:
        """The state with an alternative chosen for the `Either` with the id `key`."""
        return State(self.bindings, self.nodes, self.rank, {**self.chosen, key: alternative})

    def matched(self) -> set[ir.Node]:
        """All nodes matched so far."""
        return {node for nodes, _ in self.visited() for node in nodes}

    def span_of(self, node: ir.Node | None) -> Span | None:
        """The part of the pattern that a node matched last."""
        return next((span for nodes, span in self.visited() if node in nodes), None)

    def visited(self) -> Iterator[tuple[tuple[ir.Node, ...], Span | None]]:
        """The matched nodes with the part of the pattern that each matched, the last first."""
        link = self.nodes
        while link is not None:
            nodes, span, link = link
            yield nodes, span


EMPTY = State({}, None, 0, {})
