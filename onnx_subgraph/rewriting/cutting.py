"""Extract one rewrite as two small models: the replaced nodes and the replacement. Both yield the same results.

A cutting is made when a rewrite is committed. It shares tensors with the model, but nothing that a later rewrite could change.
Its inputs have the names of the values that are read; constants are inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.local_functions import called
from onnx_subgraph.model.nested import behind, bodies, has_bodies, operands
from onnx_subgraph.model.repetition import Repetition
from onnx_subgraph.model.triangle import Triangle
from onnx_subgraph.operators.randomness import RANDOM
from onnx_subgraph.rewriting.outline import Outline
from onnx_subgraph.rewriting.rewrite import Rewrite

MOST_BETWEEN = 8
"""The most nodes that are searched between a value that the match reads and one that the replacement reads."""

ConstantOf = Callable[[ir.Value], "ir.TensorProtocol | None"]
"""The constant that a value of the graph holds, not yet read from disk, or None."""


@dataclass(frozen=True, slots=True, eq=False)
class Cutting:
    """before, after: the two models. results: the name of each result in `before` and in `after`.

    equal: the name of a value that is read → the name of an earlier value that always equals it. uniform: the name of a value
    that `before` reads → the number that each of its elements is in every run. triangles: such a name → its two numbers, as of a
    causal mask. repeating: such a name → how it repeats.
    """

    rewrite: Rewrite
    before: ir.Model
    after: ir.Model
    results: tuple[tuple[str, str], ...]
    equal: Mapping[str, str] = field(default_factory=dict)
    uniform: Mapping[str, np.ndarray] = field(default_factory=dict)
    triangles: Mapping[str, Triangle] = field(default_factory=dict)
    repeating: Mapping[str, Repetition] = field(default_factory=dict)

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of all values that either model reads, those of `before` first."""
        return tuple(dict.fromkeys(str(v.name) for model in (self.before, self.after) for v in model.graph.inputs))


def cut(
    nodes: Iterable[ir.Node],
    results: Sequence[ir.Value],
    graph: ir.Graph,
    outline: Outline,
    constant_of: ConstantOf,
    equal: Mapping[ir.Value, ir.Value] = MappingProxyType({}),
) -> ir.Model:
    """A model of those `nodes` that `results` need. nodes: in topological order.

    equal: value → another that always equals it. If the other one is computed inside, it is used instead of an input.
    """
    nodes = list(nodes)
    inside = {v for n in nodes for v in _made(n)}
    twins = {value: other for value, other in equal.items() if value not in inside and other in inside}
    needed = _needed(nodes, results, twins)
    made = {v for n in needed for v in _made(n)} | twins.keys()
    read = dict.fromkeys(v for v in (*(v for n in needed for v in operands(n)), *results) if v not in made)
    read |= dict.fromkeys(v for n in needed for v in operands(n) if v in twins)
    imports = dict(outline.root(graph).opset_imports)
    view = ir.GraphView(list(read), list(dict.fromkeys(results)), nodes=needed, opset_imports=imports, name="cutting")
    copied = view.clone()
    copies = {v.name: v for n in copied for v in n.outputs}
    for value, copy in zip(read, list(copied.inputs), strict=True):
        if value in twins:
            copied.inputs.remove(copy)
            copy.replace_all_uses_with(copies[twins[value].name])
        elif (tensor := constant_of(value)) is not None:
            copied.inputs.remove(copy)
            copy.const_value, copy.type = tensor, ir.TensorType(tensor.dtype)
            copied.register_initializer(copy)
    if twins:
        copied.sort()
    functions = [definition.clone() for definition in called(needed, outline.model.functions)]
    for definition in functions:
        for domain, version in definition.opset_imports.items():
            copied.opset_imports.setdefault(domain, version)
    return ir.Model(copied, ir_version=max(outline.model.ir_version, 4), functions=functions)


def between(sources: Collection[ir.Value], values: Iterable[ir.Value], graph: ir.Graph, constant_of: ConstantOf) -> list[ir.Node]:
    """The nodes of `graph` on the paths from `sources` to `values`, in no order.

    Ignores values too far from `sources`, and paths through random nodes or nodes with subgraphs.
    """
    found: dict[ir.Node, None] = {}
    for value in values:
        if value not in sources:
            found |= dict.fromkeys(_way(value, sources, graph, constant_of, {}) or ())
    return list(found)


def _way(
    value: ir.Value,
    sources: Collection[ir.Value],
    graph: ir.Graph,
    constant_of: ConstantOf,
    seen: dict[ir.Node, list[ir.Node]],
) -> list[ir.Node]:
    """The nodes between `sources` and a value; empty where the value does not depend on them. seen: node → its result."""
    node = value.producer()
    if node is None or node.graph is not graph or value in sources or constant_of(value) is not None:
        return []
    if node.op_type in RANDOM or has_bodies(node) or len(seen) >= MOST_BETWEEN:
        return []
    if node not in seen:
        seen[node] = []
        read = [v for v in node.inputs if v is not None]
        before = [inner for v in read for inner in _way(v, sources, graph, constant_of, seen)]
        seen[node] = [*before, node] if before or any(v in sources for v in read) else []
    return seen[node]


def _needed(nodes: list[ir.Node], results: Iterable[ir.Value], twins: Mapping[ir.Value, ir.Value]) -> list[ir.Node]:
    """The nodes that `results` need, in order."""
    makers = {output: node for node in nodes for output in node.outputs}
    needed = behind(results, lambda value: makers.get(twins.get(value, value)))
    return [node for node in nodes if node in needed]


def _made(node: ir.Node) -> Iterator[ir.Value]:
    """Every value that a node defines, also in its subgraphs."""
    yield from node.outputs
    for body in bodies(node):
        yield from body.inputs
        yield from body.initializers.values()
        for inner in body:
            yield from _made(inner)
