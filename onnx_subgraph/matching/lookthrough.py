"""Look-through: nodes that only some patterns skip, namely a Cast between floats and a guard against NaN."""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir

from onnx_subgraph.matching.equalities import Identity
from onnx_subgraph.matching.remembered import remembered
from onnx_subgraph.matching.view import View
from onnx_subgraph.model.element_types import FLOATS


class Source(NamedTuple):
    """The source behind a value: the value, the skipped nodes, and the node of the graph that computes it."""

    value: ir.Value
    passed: tuple[ir.Node, ...]
    producer: ir.Node | None


class LookThrough:
    """The look-through of one kind of pattern in a view. casts: skip a Cast between floats. guards: skip a guard against NaN."""

    def __init__(self, view: View, *, casts: bool, guards: bool) -> None:
        self.view = view
        self.casts = casts
        self.guards = guards
        self.through = remembered(self._through)
        self.identity = remembered(self._identity)
        self.consumers = remembered(self._consumers) if casts or guards else view.consumers

    @classmethod
    def of(cls, view: View, *, casts: bool, guards: bool) -> LookThrough:
        """The look-through that all patterns of a kind share in a view."""
        made: LookThrough = view.shared(("look-through", casts, guards), lambda: cls(view, casts=casts, guards=guards))
        return made

    def _through(self, value: ir.Value) -> Source:
        """The source behind `value`; also skips transparent nodes."""
        source, passed = self.view.through(value)
        node = self.view.producer(source)
        while node is not None and (self.casts or self.guards):
            inner, way = self._opened(node)
            if inner is None:
                break
            source, more = self.view.through(inner)
            passed = (*passed, *way, *more)
            node = self.view.producer(source)
        return Source(source, passed, node)

    def _identity(self, value: ir.Value) -> Identity | None:
        """The operator behind `value`; None where no node computes it."""
        node = self.through(value).producer
        return None if node is None else self.view.identity[node]

    def _opened(self, node: ir.Node) -> tuple[ir.Value | None, tuple[ir.Node, ...]]:
        """The input of a Cast or guard, and its nodes; None where the node is neither."""
        if node.domain:
            return None, ()
        if self.casts and node.op_type == "Cast" and is_float_cast(node):
            return node.inputs[0], (node,)
        return guarded(self.view, node) if self.guards and node.op_type == "Where" else (None, ())

    def _consumers(self, value: ir.Value) -> tuple[ir.Node, ...]:
        """The nodes that read a value, including those behind casts and guards."""
        readers = self.view.consumers(value)
        opened = (n for n in readers if n.op_type in ("Cast", "Where") and n in self.through(n.outputs[0]).passed)
        return (*readers, *(reader for node in opened for reader in self.consumers(node.outputs[0])))


def guarded(view: View, where: ir.Node) -> tuple[ir.Value | None, tuple[ir.Node, ...]]:
    """The p of Where(IsNaN(p), 0, p), and the nodes of the guard; None for any other Where."""
    condition, zero, value = where.inputs
    if condition is None or zero is None or value is None:
        return None, ()
    test = view.producer(view.through(condition)[0])
    number = view.scalar(zero)
    if test is None or test.op_type != "IsNaN" or number is None or number.number != 0 or test.inputs[0] is None:
        return None, ()
    return (value, (where, test)) if view.same(test.inputs[0], value) else (None, ())


def is_float_cast(node: ir.Node) -> bool:
    """Whether a Cast converts one float type to another."""
    value = node.inputs[0]
    return value is not None and value.dtype in FLOATS and node.outputs[0].dtype in FLOATS
