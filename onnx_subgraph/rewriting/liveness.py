"""Liveness around a match: which inner values are still needed after its removal, and which other nodes die with it.

Exporters read the shape of an inner value to feed a Reshape that is itself matched. Once the match is removed, nothing reads that
arithmetic, so it is removed too. Any other reader of an inner value blocks the removal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import onnx_ir as ir

from onnx_subgraph.emitting.known import dims_of
from onnx_subgraph.emitting.refused import Refused
from onnx_subgraph.matching.interior import Dying
from onnx_subgraph.model.nested import bodies, operands
from onnx_subgraph.model.shapes import same_dim, same_shape
from onnx_subgraph.rewriting.outline import Outline


class Liveness(Dying):
    """What is needed around the nodes of a match in `graph`, and dies with them and those of their bodies.

    kept: values that the replacement reads.
    """

    def __init__(self, outline: Outline, graph: ir.Graph, matched: Collection[ir.Node], kept: Collection[ir.Value] = ()) -> None:
        super().__init__((m for n in matched for m in (n, *(i for body in bodies(n) for i in body.all_nodes()))), kept)
        self.outline = outline
        self.graph = graph
        self.end = max(outline.position[n] for n in matched)

    def is_needed(self, value: ir.Value) -> bool:
        """Whether anything outside the match still needs `value`."""
        return value.is_graph_output() or bool(self.readers(value))

    def may_die(self, node: ir.Node) -> bool:
        """A node after the last matched node can't feed the match. In a nested graph, only the limit bounds the search."""
        return node.graph is not self.graph or self.outline.position[node] <= self.end

    def dead(self, provided: Collection[ir.Value]) -> list[ir.Node]:
        """The nodes outside the match that die because they read a matched value that is no longer provided.

        A node that was unread before stays as long as its operands do.
        """
        found: dict[ir.Node, None] = {}
        queue = [u for m in self.gone for o in m.outputs for u, _ in o.uses()]
        while queue:
            node = queue.pop()
            if node in self.gone or node in found or not self.dies(node):
                continue
            read = [(v, v.producer()) for v in operands(node)]
            gone = any((p in self.gone and v not in provided) or p in found for v, p in read if p is not None)
            if gone or any(o.uses() for o in node.outputs):
                found[node] = None
                queue += [u for o in node.outputs for u, _ in o.uses()]
        return list(found)


def orphans(nodes: Collection[ir.Node], read: Iterable[ir.Value]) -> int:
    """How many nodes compute something that only these nodes read, and that the replacement, which reads `read`, does not."""
    kept = set(read)
    given = {v for n in nodes for v in n.inputs if v is not None and v not in kept and not v.is_graph_output()}
    makers = (v.producer() for v in given if all(user in nodes for user, _ in v.uses()))
    return sum(maker is not None and maker not in nodes and maker.op_type != "Constant" for maker in makers)


@dataclass(frozen=True, slots=True)
class Redirect:
    """A reader of an inner value's shape that must read something else.

    value: the new operand, which has the same shape; None where the reader's result is assembled instead. dims: one for each
    element of that result: a number, or (value, axis) of a value that stays.
    """

    reader: ir.Node
    index: int
    value: ir.Value | None
    dims: tuple[int | tuple[ir.Value, int], ...] = ()


def redirects(
    liveness: Liveness, provided: Collection[ir.Value], staying: Collection[ir.Value], matched: Iterable[ir.Node]
) -> list[Redirect]:
    """The readers that must be redirected before the match can be removed.

    provided: values that the replacement provides. staying: values that stay in the graph in any case. Raises Refused where an
    inner value is still needed and no other value can replace it.
    """
    found: list[Redirect] = []
    for node in matched:
        for value in node.outputs:
            if value in provided:
                continue
            if value.is_graph_output():
                raise Refused(f"the inner value {value.name} is an output of the graph")
            for reader, index in liveness.readers(value):
                redirect = _redirect(liveness, value, reader, index, provided, staying)
                if redirect is None:
                    raise Refused(_needed(liveness, value, reader))
                found.append(redirect)
    return found


def _redirect(
    liveness: Liveness,
    value: ir.Value,
    reader: ir.Node,
    index: int,
    provided: Collection[ir.Value],
    staying: Collection[ir.Value],
) -> Redirect | None:
    if reader.domain or reader.op_type not in ("Shape", "Size") or value.shape is None:
        return None
    early = [v for v in staying if _is_before(liveness, v, reader)]
    same = next((v for v in (*early, *provided) if same_shape(v.shape, value.shape)), None)
    if same is not None:
        return Redirect(reader, index, same)
    if reader.op_type == "Size" or reader.outputs[0].is_graph_output():
        return None
    sources: list[int | tuple[ir.Value, int]] = []
    for dim in dims_of(reader) or ():
        source = dim if isinstance(dim, int) else _source(dim, early)
        if source is None:
            return None
        sources.append(source)
    return Redirect(reader, index, None, tuple(sources))


def _source(dim: int | ir.SymbolicDim, values: Iterable[ir.Value]) -> tuple[ir.Value, int] | None:
    """A value that has this dimension, and its axis there."""
    return next(((v, i) for v in values for i, d in enumerate(v.shape or ()) if same_dim(d, dim)), None)


def _is_before(liveness: Liveness, value: ir.Value, reader: ir.Node) -> bool:
    producer = value.producer()
    place = None if producer is None else liveness.outline.place_in(liveness.graph, producer)
    if place is None:
        return True  # an input, an initializer, or a value of an outer graph
    behind = liveness.outline.place_in(liveness.graph, reader)
    return behind is not None and liveness.outline.position[place] < liveness.outline.position[behind]


def _needed(liveness: Liveness, value: ir.Value, reader: ir.Node) -> str:
    where = "" if reader.graph is liveness.graph else ", in a nested body"
    return f"the inner value {value.name} is also used by {reader.op_type} {reader.name or ''}".rstrip() + where
