"""What the last nodes of all bodies of an operator may be: a quick no, for the many places that none of them fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations

import onnx_ir as ir

from onnx_subgraph.matching.body.function import NEUTRAL, Body, is_static
from onnx_subgraph.matching.numbering import EXCHANGEABLE, plain_operator
from onnx_subgraph.matching.view import View

_DEEPEST = 6
"""How many nodes are looked at one behind another."""
_STATIC, _ANY = "static", "any"
"""What stands for a value that shapes decide, and for an input."""

Path = tuple[tuple[str, int], ...]
"""From the result back: operators, and which of their operands; neutral ones left out."""


class Frame:
    """What stands at each place near the end of any of the bodies."""

    def __init__(self, bodies: Iterable[Body]) -> None:
        self._allowed: dict[Path, set[str]] = {}
        for body in bodies:
            for path, operator in _operators(body, body.outputs[0], ()):
                self._allowed.setdefault(path, set()).add(operator)

    def admits(self, view: View, value: ir.Value, path: Path = ()) -> bool:
        """Whether `value` may be the result of one of the bodies, as far as its last nodes tell."""
        allowed = self._allowed.get(path)
        if allowed is None or _ANY in allowed or len(path) >= _DEEPEST:
            return True
        node, operator = _computing(view, value)
        if node is None or operator not in allowed:
            return _STATIC in allowed and is_static(view, value)
        exchangeable = len(node.inputs) == 2 and operator in EXCHANGEABLE
        return any(
            all(v is None or self.admits(view, v, (*path, (operator, i))) for i, v in enumerate(order))
            for order in (permutations(node.inputs) if exchangeable else (node.inputs,))
        )


def _operators(body: Body, value: ir.Value, path: Path) -> Iterator[tuple[Path, str]]:
    while (node := value.producer()) is not None and node.op_type in NEUTRAL and value not in body.statics:
        source = node.inputs[0]
        if source is None:
            break
        value = source
    if node is None:
        yield path, _ANY
    elif value in body.statics:
        yield path, _STATIC
    else:
        yield path, plain_operator(node)
        for index, operand in enumerate(node.inputs if len(path) < _DEEPEST else ()):
            if operand is not None:
                yield from _operators(body, operand, (*path, (plain_operator(node), index)))


def _computing(view: View, value: ir.Value) -> tuple[ir.Node | None, str]:
    """The node behind a value, and behind neutral ones, and its operator; None of a value that nothing known computes."""
    known: dict[ir.Value, tuple[ir.Node | None, str]] = view.shared("computing", dict)
    if value not in known:
        node = view.producer(value)
        while node is not None and node.op_type in NEUTRAL and not node.domain:
            source = node.inputs[0] if node.inputs else None
            node = None if source is None else view.producer(source)
        known[value] = (None, "") if node is None or node.domain else (node, plain_operator(node))
    return known[value]
