"""Group matched nodes by the lines of the pattern file that matched them, for a report."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from onnx_subgraph.facts import element_type
from onnx_subgraph.matching.match import SeenLine, SeenNode
from onnx_subgraph.matching.origin import label
from onnx_subgraph.matching.state import Visited
from onnx_subgraph.matching.view import View
from onnx_subgraph.model.dimension_names import outer
from onnx_subgraph.operators.names import operator_of


def by_line(visited: Visited) -> Iterator[tuple[str, int, str, set[ir.Node]]]:
    """File, number, text without indentation, and nodes of each line that matched nodes, in the order of the files.

    A node that several lines matched is in each.
    """
    found: dict[tuple[str, int], tuple[str, set[ir.Node]]] = {}
    for nodes, span in visited:
        if span is not None:
            found.setdefault((span.file, span.line), (span.text.strip(), set()))[1].update(nodes)
    for file, number in sorted(found):
        yield file, number, *found[file, number]


def seen_lines(view: View, visited: Visited) -> tuple[SeenLine, ...]:
    """The lines that nodes matched before a failure, with the nodes as text."""
    return tuple(
        SeenLine(file, number, text, tuple(map(_seen, sorted(nodes, key=lambda node: view.position.get(node, -1)))))
        for file, number, text, nodes in by_line(visited)
    )


def _seen(node: ir.Node) -> SeenNode:
    value = next(iter(node.outputs), None)
    return SeenNode(label(node), operator_of(node), "" if value is None else _type(value))


def _type(value: ir.Value) -> str:
    shape = "" if value.shape is None else f"[{', '.join(map(_dimension, value.shape))}]"
    return f"{element_type(value) or ''} {shape}".strip()


def _dimension(size: int | ir.SymbolicDimProtocol) -> str:
    return str(size) if isinstance(size, int) else outer(size.value or "?")
