"""Prefilter for function bodies: which operators' bodies may end in a value, for all operators at once.

The bodies are merged into one tree of operators, from their ends backwards. So each place in the graph is visited once for all
operators, and nearly all operators are ruled out after a few nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations

import onnx_ir as ir

from onnx_subgraph.matching.body.defined import Defined
from onnx_subgraph.matching.body.function import NEUTRAL, Body, is_static
from onnx_subgraph.matching.numbering import EXCHANGEABLE, plain_operator
from onnx_subgraph.matching.view import View

_DEEPEST = 6
"""Maximum depth of the tree in nodes."""
_STATIC, _ANY = "static", "any"
"""Markers for a value that depends only on shapes, and for an input."""

Names = frozenset[str]
"""Names of operators to search for."""


@dataclass(eq=False)
class _Place:
    """A position near the end of the bodies, as a node of the tree.

    allowed: operator at this position → the operators that have such a body. behind: (operator, operand index) → position of the
    operand.
    """

    allowed: dict[str, set[str]] = field(default_factory=dict)
    behind: dict[tuple[str, int], _Place] = field(default_factory=dict)

    @cached_property
    def told(self) -> Names:
        """The operators whose bodies restrict this position."""
        return frozenset().union(*self.allowed.values()) - self.allowed.get(_ANY, set())

    def add(self, name: str, body: Body, value: ir.Value, depth: int = 0) -> None:
        """Add the computation of `value`, in a body of the operator `name`, at this position."""
        while (node := value.producer()) is not None and node.op_type in NEUTRAL and value not in body.statics:
            source = node.inputs[0]
            if source is None:
                break
            value = source
        operator = _ANY if node is None else _STATIC if value in body.statics else plain_operator(node)
        self.allowed.setdefault(operator, set()).add(name)
        if node is None or operator == _STATIC or depth + 1 == _DEEPEST:
            return
        for index, operand in enumerate(node.inputs):
            if operand is not None:
                self.behind.setdefault((operator, index), _Place()).add(name, body, operand, depth + 1)

    def admitted(self, view: View, value: ir.Value, names: Names) -> Names:
        """The operators of `names` that may have a body with `value` at this position, judged by its last nodes."""
        told = names & self.told
        if not told:
            return names
        node, operator = _computing(view, value)
        here = told & self.allowed.get(operator, set()) if node is not None else frozenset[str]()
        found = names - told
        static = (told - here) & self.allowed.get(_STATIC, set())
        if static and is_static(view, value):
            found |= static
        if not here or node is None:
            return found
        exchangeable = len(node.inputs) == 2 and operator in EXCHANGEABLE
        for operands in permutations(node.inputs) if exchangeable else (node.inputs,):
            left = here
            for index, operand in enumerate(operands):
                place = self.behind.get((operator, index))
                if operand is not None and place is not None and left:
                    left = place.admitted(view, operand, left)
            found |= left
        return found


class Frame:
    """The tree for the ends of the bodies of some operators."""

    def __init__(self, operators: Iterable[Defined]) -> None:
        self._root = _Place()
        self._ends: dict[str, set[str]] = defaultdict(set)
        for operator in operators:
            for body in operator.typical:
                self._root.add(operator.name, body, body.outputs[0])
                for end in body.ends:
                    self._ends[end].add(operator.name)

    def ending(self, view: View) -> list[ir.Node]:
        """The nodes that may be the last node of a body, last first."""
        return [n for n in reversed(view.nodes) if plain_operator(n) in self._ends and not n.domain]

    def admitted(self, view: View, node: ir.Node, names: Names) -> Names:
        """The operators of `names` whose body may end in `node`, judged by its last nodes."""
        ending = names & self._ends.get(plain_operator(node), set())
        return self._root.admitted(view, node.outputs[0], ending) if ending else ending


def _computing(view: View, value: ir.Value) -> tuple[ir.Node | None, str]:
    """The node that computes a value, skipping neutral ones, and its operator; None where no known operator computes it."""
    known: dict[ir.Value, tuple[ir.Node | None, str]] = view.shared("computing", dict)
    if value not in known:
        node = view.producer(value)
        while node is not None and node.op_type in NEUTRAL and not node.domain:
            source = node.inputs[0] if node.inputs else None
            node = None if source is None else view.producer(source)
        known[value] = (None, "") if node is None or node.domain else (node, plain_operator(node))
    return known[value]
