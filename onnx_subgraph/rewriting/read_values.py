"""Find what is known of the values that a rewrite reads: which are equal, and which are one number or a triangle in every run."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from onnx_subgraph.matching.numbering import Numbering
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.nested import operands
from onnx_subgraph.model.repetition import Repetition, doubled, paired
from onnx_subgraph.model.triangle import Triangle, triangle
from onnx_subgraph.model.uniform import element
from onnx_subgraph.rewriting.outline import Outline

MOST_NODES = 64
"""The most nodes that are searched backwards from the values."""


def equal_values(values: Iterable[ir.Value], graph: ir.Graph, outline: Outline, constants: Constants) -> dict[ir.Value, ir.Value]:
    """Each of `values` that is congruent to an earlier one → the first such value.

    A value computed outside `graph`, or further back than the `MOST_NODES` nearest nodes, is equal only to itself. Constants are
    left out.
    """
    # No look-through: it would make a value equal to a copy of itself, which gives a cycle. Constants are left out likewise.
    read = [value for value in dict.fromkeys(values) if not constants.is_constant(value)]
    numbering = Numbering(constants, lambda n: outline.schema(n, graph))
    behind = _behind(read, graph, outline)
    read_there = (value for node in behind for value in node.inputs if value is not None)
    for further in {node for value in read_there if (node := value.producer()) is not None}.difference(behind):
        numbering.leave(further)
    for node in behind:
        numbering.add(node)
    first: dict[int, ir.Value] = {}
    found = {value: first.setdefault(numbering.of(value), value) for value in read}
    return {value: other for value, other in found.items() if value is not other}


def uniform_values(before: ir.Model, nodes: Iterable[ir.Node], constants: Constants) -> dict[str, np.ndarray]:
    """The inputs of `before` whose elements are one number in every run, as in a mask that hides nothing. nodes: of the model."""
    read = {value.name: value for node in nodes for value in operands(node)}
    numbers = ((str(v.name), element(constants, read.get(v.name))) for v in before.graph.inputs)
    return {name: number for name, number in numbers if number is not None}


def triangular_values(before: ir.Model, nodes: Iterable[ir.Node], constants: Constants) -> dict[str, Triangle]:
    """The inputs of `before` that are triangles in every run, as causal masks are, and their two numbers. nodes: of the model."""
    read = {value.name: value for node in nodes for value in operands(node)}
    found = ((str(v.name), triangle(constants, read.get(v.name))) for v in before.graph.inputs)
    return {name: numbers for name, numbers in found if numbers is not None and numbers.below is not numbers.above}


def repeating_values(before: ir.Model, nodes: Iterable[ir.Node], constants: Constants) -> dict[str, Repetition]:
    """How the inputs of `before` repeat along their last axis in every run, as tables of cosines do. nodes: of the model."""
    read = {str(value.name): value for node in nodes for value in operands(node)}
    found: dict[str, Repetition] = {}
    for name in (str(value.name) for value in before.graph.inputs):
        value = read.get(name)
        if value is not None and value.dtype is not None and value.dtype.is_floating_point():
            if doubled(constants, value):
                found[name] = "halves"
            elif paired(constants, value):
                found[name] = "pairs"
    return found


def _behind(values: Iterable[ir.Value], graph: ir.Graph, outline: Outline) -> list[ir.Node]:
    """The nearest nodes of `graph` that compute `values`, in topological order."""
    found: dict[ir.Node, None] = {}
    pending = list(values)
    for value in pending:
        node = value.producer()
        if node is not None and node.graph is graph and node not in found and len(found) < MOST_NODES:
            found[node] = None
            pending += (v for v in node.inputs if v is not None)
    return outline.in_order(found)
