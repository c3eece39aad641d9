"""Nodes that a pattern looks through only where it says so: a Cast between floats, a guard against NaN."""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir

from onnx_subgraph.matching.equalities import Identity
from onnx_subgraph.matching.remembered import remembered
from onnx_subgraph.matching.view import FLOATS, View


class Source(NamedTuple):
    """What is behind a value: the value, the nodes on the way to it, and the node of the graph that computes it."""

    value: ir.Value
    passed: tuple[ir.Node, ...]
    producer: ir.Node | None


class LookThrough:
    """What one kind of pattern sees in a view. casts: through a Cast between floats. guards: through a guard against NaN."""

    def __init__(self, view: View, *, casts: bool, guards: bool) -> None:
        self.view = view
        self.casts = casts
        self.guards = guards
        self.through = remembered(self._through)
        self.identity = remembered(self._identity)
        self.consumers = remembered(self._consumers) if casts or guards else view.consumers

    @classmethod
    def of(cls, view: View, *, casts: bool, guards: bool) -> LookThrough:
        """The one of a view that all patterns of a kind share."""
        made: LookThrough = view.shared(("look-through", casts, guards), lambda: cls(view, casts=casts, guards=guards))
        return made

    def _through(self, value: ir.Value) -> Source:
        """What is behind `value`, transparent nodes passed as well."""
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
        """The operator behind `value`; None where nothing computes it."""
        node = self.through(value).producer
        return None if node is None else self.view.identity[node]

    def _opened(self, node: ir.Node) -> tuple[ir.Value | None, tuple[ir.Node, ...]]:
        """What a Cast or a guard hands on, and its nodes; None where the node is neither."""
        if node.domain:
            return None, ()
        if self.casts and node.op_type == "Cast" and is_float_cast(node):
            return node.inputs[0], (node,)
        return guarded(self.view, node) if self.guards and node.op_type == "Where" else (None, ())

    def _consumers(self, value: ir.Value) -> tuple[ir.Node, ...]:
        """The nodes that read a value, those behind the casts and guards included."""
        readers = self.view.consumers(value)
        opened = (n for n in readers if n.op_type in ("Cast", "Where") and n in self.through(n.outputs[0]).passed)
        return (*readers, *(reader for node in opened for reader in self.consumers(node.outputs[0])))


def guarded(view: View, where: ir.Node) -> tuple[ir.Value | None, tuple[ir.Node, ...]]:
    """The p of Where(IsNaN(p), 0, p), and the nodes of the guard; None where it is another Where."""
    condition, zero, value = where.inputs
    if condition is None or zero is None or value is None:
        return None, ()
    test = view.producer(view.through(condition)[0])
    number = view.scalar(zero)
    if test is None or test.op_type != "IsNaN" or number is None or number.number != 0 or test.inputs[0] is None:
        return None, ()
    return (value, (where, test)) if view.same(test.inputs[0], value) else (None, ())


def is_float_cast(node: ir.Node) -> bool:
    """Whether a Cast goes from one float type to another."""
    value = node.inputs[0]
    return value is not None and value.dtype in FLOATS and node.outputs[0].dtype in FLOATS
