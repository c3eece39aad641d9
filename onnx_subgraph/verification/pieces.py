"""Cut two differing subgraphs into pairs of small pieces, at values that both have under the same name.

A node is the same in both if it has the same operator and attributes, the same constants, and the same names of operands and
results. A node with subgraphs must also have the same name; its subgraphs are compared separately. The remaining nodes are cut
wherever both subgraphs compute a value of the same name. If each piece computes its value as before from unchanged operands, so
does the whole subgraph.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

import onnx_ir as ir

from onnx_subgraph.matching.origin import label
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.nested import has_bodies, operands
from onnx_subgraph.rewriting.cutting import Cutting, between, cut
from onnx_subgraph.rewriting.outline import Outline
from onnx_subgraph.rewriting.rewrite import Place, Rewrite

Line = tuple[Hashable, ...]
"""A description of a node without its subgraphs."""


class Body(NamedTuple):
    """A subgraph, with the names of the nodes that contain it, and the constants of its model.

    part: the results that matter, and the nodes that compute them, if not all do.
    """

    scope: str
    graph: ir.Graph
    outline: Outline
    constants: Constants
    part: tuple[list[ir.Value], list[ir.Node]] | None = None

    @property
    def results(self) -> list[ir.Value]:
        return list(self.graph.outputs) if self.part is None else self.part[0]

    @property
    def nodes(self) -> list[ir.Node]:
        """In topological order."""
        return list(self.graph) if self.part is None else self.part[1]

    @property
    def outputs(self) -> list[str]:
        """The names of the results."""
        return [str(value.name) for value in self.results]

    @property
    def stored(self) -> list[Hashable]:
        """The results that no node computes: the name of each, or a digest of its constant."""
        stored = [value for value in self.results if value.producer() is None]
        tensors = [self.constants.tensor(value) for value in stored]
        return [value.name if t is None else _bytes(t) for value, t in zip(stored, tensors, strict=True)]

    def cut(self, nodes: Sequence[ir.Node], results: Sequence[ir.Value]) -> ir.Model:
        """A model of those `nodes` that the results need."""
        return cut(nodes, results, self.graph, self.outline, self.constants.tensor)


def whole(mine: Body, other: Body) -> Cutting:
    """The two subgraphs as one piece."""
    models = mine.cut(mine.nodes, mine.results), other.cut(other.nodes, other.results)
    return _cutting(mine.scope, models, (mine.results, other.results))


def pieces(mine: Body, other: Body) -> list[Cutting] | None:
    """The pieces that differ, empty where the subgraphs are the same; None where they can't be cut."""
    common = set(_lines(mine)) & set(_lines(other))
    parts = _Part(mine, common), _Part(other, common)
    both = parts[0].made.keys() & parts[1].made.keys()
    if mine.outputs != other.outputs or mine.stored != other.stored or any(part.wanted - both for part in parts):
        return None
    both = {name for name in both if any(name in part.wanted or name in part.inside for part in parts)}
    return [_piece(name, parts[0], parts[1], both) for name in parts[0].made if name in both]


class _Part:
    """The nodes of one of the subgraphs that differ. made: the values that they compute.

    wanted: those of them read by other nodes.

    inside: those of them read by differing nodes.
    """

    def __init__(self, body: Body, common: Collection[Line]) -> None:
        self.body = body
        self.nodes = [node for node in body.nodes if _line(node, body) not in common]
        self.made = {str(value.name): value for node in self.nodes for value in node.outputs if value.name}
        own = set(self.nodes)
        self.wanted = self._read_by(node for node in body.nodes if node not in own) | (set(body.outputs) & self.made.keys())
        self.inside = self._read_by(self.nodes)

    def _read_by(self, nodes: Iterable[ir.Node]) -> set[str]:
        """The values of `made` that these nodes read and that are not constant."""
        read = (value for node in nodes for value in operands(node))
        return {str(value.name) for value in read if self._varies(value)} & self.made.keys()

    def _varies(self, value: ir.Value) -> bool:
        """Whether a value is not constant."""
        return self.body.constants.tensor(value) is None

    def behind(self, name: str, known: Collection[str]) -> list[ir.Node]:
        """The nodes that compute a value from known ones."""
        found: set[ir.Node] = set()
        pending = [self.made[name]]
        while pending:
            node = pending.pop().producer()
            if node in self.nodes and node not in found:
                found.add(node)
                pending += (v for v in node.inputs if v is not None and v.name not in known and self._varies(v))
        return [node for node in self.body.graph if node in found]

    def reads(self, nodes: Sequence[ir.Node]) -> set[str]:
        """The non-constant values that nodes read and do not compute."""
        made = {value for node in nodes for value in node.outputs}
        read = (value for node in nodes for value in node.inputs if value is not None and value not in made)
        return {str(value.name) for value in read if self._varies(value)}


def _piece(name: str, mine: _Part, other: _Part, both: Collection[str]) -> Cutting:
    """The nodes that compute one value in each subgraph.

    If one side reads another form of a value, the conversion is included.
    """
    known = set(both) - {name}
    nodes = mine.behind(name, known), other.behind(name, known)
    models = _with_ways(name, mine, nodes[0], other.reads(nodes[1])), _with_ways(name, other, nodes[1], mine.reads(nodes[0]))
    return _cutting(mine.body.scope, models, ([mine.made[name]], [other.made[name]]))


def _with_ways(name: str, part: _Part, nodes: Sequence[ir.Node], others: Collection[str]) -> ir.Model:
    graph = part.body.graph
    old = [value for node in nodes for value in node.inputs if value is not None]
    values = {v.name: v for node in graph for v in (*node.inputs, *node.outputs) if v is not None}
    sources = {value for other, value in values.items() if other in others}
    ways = between(sources, (v for v in old if v.producer() not in nodes), graph, part.body.constants.tensor)
    return part.body.cut([node for node in graph if node in nodes or node in ways], [part.made[name]])


def _cutting(scope: str, models: tuple[ir.Model, ir.Model], results: tuple[Sequence[ir.Value], Sequence[ir.Value]]) -> Cutting:
    names, others = (tuple(str(value.name) for value in side) for side in results)
    rewrite = Rewrite("", "", "", (), 0, root=scope, place=Place("", scope, names))
    return Cutting(rewrite, *models, tuple(zip(names, others, strict=False)))


def _lines(body: Body) -> list[Line]:
    return [_line(node, body) for node in body.nodes]


def _line(node: ir.Node, body: Body) -> Line:
    attributes = sorted((a.name, _content(a)) for a in node.attributes.values() if a.type is not ir.AttributeType.GRAPH)
    given = tuple(value.name for value in node.outputs)
    name = label(node) if has_bodies(node) else ""  # its subgraphs are found by it
    return node.domain, node.op_type, name, tuple(_read(node, body)), given, tuple(attributes)


def _read(node: ir.Node, body: Body) -> Iterator[Hashable]:
    for value in node.inputs:
        tensor = None if value is None else body.constants.tensor(value)
        yield (None if value is None else value.name) if tensor is None else ("constant", _bytes(tensor))


def _content(attribute: ir.Attr) -> str:
    return _bytes(attribute.as_tensor()) if attribute.type is ir.AttributeType.TENSOR else str(attribute.value)


def _bytes(tensor: ir.TensorProtocol) -> str:
    """A digest of a constant."""
    content = repr(tensor.numpy().tolist()).encode() if tensor.dtype is ir.DataType.STRING else tensor.tobytes()
    return f"{tensor.dtype} {tuple(tensor.shape.numpy())} {sha256(content).hexdigest()}"
