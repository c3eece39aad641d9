"""An index of a model: the owner of each subgraph, the order of nodes, and the names in use.

Built once for a round of rewriting, and updated by every commit. onnx-ir knows the users of a value, but not the node that owns a
subgraph, nor which of two nodes comes first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import onnx_ir as ir

from onnx_subgraph.emitting.definitions import Definitions
from onnx_subgraph.matching.origin import label
from onnx_subgraph.model.nested import bodies
from onnx_subgraph.model.surgery import few_bytes
from onnx_subgraph.operators import Schema, schema

_NAMES = "onnx_subgraph.names"
"""Key in `Model.meta`: every name that the model has had since it was loaded."""


class Outline:
    """The index of `model`.

    position: node → position in its graph; only the order matters. names: those that are taken, by values, nodes, initializers,
    and `fresh`. Without a set for them they are kept with the model, for its next outline. definitions: those of our own
    operators.
    """

    def __init__(self, model: ir.Model, names: set[str] | None = None) -> None:
        self.model = model
        self.position: dict[ir.Node, float] = {}
        # A name of a removed value is not reused in a later round, because names identify values across rewrites.
        self.names: set[str] = model.meta.setdefault(_NAMES, set()) if names is None else names
        self.definitions = Definitions(model.functions)
        self._owner: dict[ir.Graph, ir.Node | None] = {}
        self._root: dict[ir.Graph, ir.Graph | ir.Function] = {}
        self._constants: dict[tuple[int, tuple[int, ...], bytes], ir.Value] | None = None
        self._counter: dict[str, int] = {}
        self._below: dict[ir.Node, float] = {}
        self._enter(model.graph, None, model.graph)
        for function in model.functions.values():
            self._enter(function.graph, None, function)

    def _enter(self, graph: ir.Graph, owner: ir.Node | None, root: ir.Graph | ir.Function) -> None:
        self._owner[graph], self._root[graph] = owner, root
        self.names.update(v.name for v in graph.inputs if v.name)
        self.names.update(graph.initializers)
        for place, node in enumerate(graph):
            self.position[node] = float(place)
            if node.name:
                self.names.add(node.name)
            self.names.update(v.name for v in node.outputs if v.name)
            for body in bodies(node):
                self._enter(body, node, root)

    @property
    def graphs(self) -> list[ir.Graph]:
        """Every graph of the model: the main one first, each before its subgraphs, then the functions."""
        return list(self._owner)

    def root(self, graph: ir.Graph) -> ir.Graph | ir.Function:
        """The main graph or the function that contains `graph`, or is it."""
        return self._root[graph]

    def schema(self, node: ir.Node, graph: ir.Graph) -> Schema | None:
        """The schema of a node at the opset of `graph`; None for an unknown operator."""
        opsets = {**self.model.opset_imports, **self._root[graph].opset_imports}
        return schema(node.op_type, node.domain, opsets.get(node.domain, 1))

    def scope(self, graph: ir.Graph) -> str:
        """The path of `graph`: "" for the main one, else its function, the nodes that contain it, and the attribute."""
        owner = self._owner[graph]
        if owner is None:
            root = self._root[graph]
            return "" if root is self.model.graph else f"{root.domain}::{root.name}"  # type: ignore[union-attr]
        home = owner.graph
        assert isinstance(home, ir.Graph)
        name = next((key for key, a in owner.attributes.items() if _holds(a, graph)), "")
        outer = self.scope(home)
        return f"{outer}/{label(owner)}.{name}" if outer else f"{label(owner)}.{name}"

    def in_order(self, nodes: Iterable[ir.Node]) -> list[ir.Node]:
        """Nodes of one graph in its order."""
        return sorted(nodes, key=self.position.__getitem__)

    def place_in(self, graph: ir.Graph, node: ir.Node) -> ir.Node | None:
        """The ancestor of `node` in `graph`: the node itself, or the one that contains it; None where there is none."""
        current: ir.Node | None = node
        while current is not None:
            home = current.graph
            if home is graph:
                return current
            current = self._owner.get(home) if home is not None else None
        return None

    def place_at(self, node: ir.Node, come: Sequence[ir.Node]) -> None:
        """Give nodes ascending positions from after what precedes `node` up to its own."""
        above = self.position[node]
        # Original nodes have whole numbers.
        below = self._below.get(node, above - 1)
        step = (above - below) / max(1, len(come))
        places = [below, *(below + step * (index + 1) for index in range(len(come) - 1)), above]
        if all(a < b for a, b in itertools.pairwise(places)):
            self.position.update(zip(come, places[1:], strict=False))
            self._below.update(zip(come, places, strict=False))
            return
        graph = node.graph
        assert graph is not None
        for place, other in enumerate(graph):
            self.position[other] = float(place)
            self._below.pop(other, None)

    def fresh(self, stem: str) -> str:
        """A new name: the stem, or the stem and a number. The name then counts as used."""
        name = stem
        while name in self.names:
            self._counter[stem] = self._counter.get(stem, 1) + 1
            name = f"{stem}_{self._counter[stem]}"
        self.names.add(name)
        return name

    def shared_constant(self, tensor: ir.TensorProtocol) -> ir.Value | None:
        """An initializer of the main graph with the same few bytes that a caller can't override, or None."""
        if self._constants is None:
            self._constants = {}
            for value in self.model.graph.initializers.values():
                self.remember_constant(value)
        key = few_bytes(tensor)
        found = None if key is None else self._constants.get(key)
        if found is None or found.name is None or self.model.graph.initializers.get(found.name) is not found:
            return None
        return found

    def remember_constant(self, value: ir.Value) -> None:
        """Let later constants with the same few bytes share this initializer."""
        if self._constants is None or value.const_value is None or value.is_graph_input() or value.is_graph_output():
            return
        if (key := few_bytes(value.const_value)) is not None:
            self._constants.setdefault(key, value)


def _holds(attribute: ir.Attr, graph: ir.Graph) -> bool:
    return not attribute.is_ref() and (
        attribute.value is graph
        or (attribute.type == ir.AttributeType.GRAPHS and any(body is graph for body in attribute.as_graphs()))
    )


def shared_path(names: Iterable[str]) -> str:
    """The common module path of these node names, such as "/encoder/layer.0/output/"; "" if there is none."""
    shared = ""
    for parts in zip(*(name.split("/")[:-1] for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        shared += f"{parts[0]}/"
    return shared
