"""A rewrite by itself: what was replaced and what replaces it, as two small models that yield the same results.

A cutting is taken as a rewrite is committed and shares the tensors of the model, but nothing that a later rewrite could change.
Its inputs bear the names of the values that are read, whatever reads them afterwards; constants are inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnx_subgraph.model.local_functions import called
from onnx_subgraph.model.nested import bodies, operands
from onnx_subgraph.rewriting.outline import Outline
from onnx_subgraph.rewriting.rewrite import Rewrite

ConstantOf = Callable[[ir.Value], "ir.TensorProtocol | None"]
"""The constant that a value of the graph holds, unread, or None."""


@dataclass(frozen=True, slots=True, eq=False)
class Cutting:
    """before, after: the two models. results: the name of each result in `before`, and in `after`."""

    rewrite: Rewrite
    before: ir.Model
    after: ir.Model
    results: tuple[tuple[str, str], ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of all values that either model reads, those of `before` first."""
        return tuple(dict.fromkeys(str(v.name) for model in (self.before, self.after) for v in model.graph.inputs))


def cut(
    nodes: Iterable[ir.Node], results: Sequence[ir.Value], graph: ir.Graph, outline: Outline, constant_of: ConstantOf
) -> ir.Model:
    """Those of `nodes`, which are in topological order, that `results` need, as a model that yields them."""
    needed = _needed(list(nodes), results)
    made = {v for n in needed for v in _made(n)}
    read = dict.fromkeys(v for v in (*(v for n in needed for v in operands(n)), *results) if v not in made)
    root = outline.root(graph)
    imports = outline.model.opset_imports if root is outline.model.graph else root.opset_imports
    view = ir.GraphView(list(read), list(dict.fromkeys(results)), nodes=needed, opset_imports=dict(imports), name="cutting")
    copied = view.clone()
    for value, copy in zip(read, list(copied.inputs), strict=True):
        if (tensor := constant_of(value)) is not None:
            copied.inputs.remove(copy)
            copy.const_value, copy.type = tensor, ir.TensorType(tensor.dtype)
            copied.register_initializer(copy)
    functions = [definition.clone() for definition in called(needed, outline.model.functions)]
    for definition in functions:
        for domain, version in definition.opset_imports.items():
            copied.opset_imports.setdefault(domain, version)
    return ir.Model(copied, ir_version=max(outline.model.ir_version, 4), functions=functions)


def _needed(nodes: list[ir.Node], results: Iterable[ir.Value]) -> list[ir.Node]:
    wanted = set(results)
    needed: list[ir.Node] = []
    for node in reversed(nodes):
        if any(o in wanted for o in node.outputs):
            needed.append(node)
            wanted.update(operands(node))
    return needed[::-1]


def _made(node: ir.Node) -> Iterator[ir.Value]:
    """Every value that a node makes, in its bodies too."""
    yield from node.outputs
    for body in bodies(node):
        yield from body.inputs
        yield from body.initializers.values()
        for inner in body:
            yield from _made(inner)
