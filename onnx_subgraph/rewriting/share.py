"""What replacements write twice is computed once: equal nodes of ours that read the same values become one.

Layers need the same mask and the same tables of angles, and each replacement writes them for itself. The first of equal nodes in
the order of its graph stays, so every reader comes after it; nodes that the model had before are left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

import onnx_ir as ir

from onnx_subgraph.matching.view import attribute_key
from onnx_subgraph.rewriting.outline import Outline


def share(outline: Outline, ours: str, fused: Collection[str]) -> None:
    """Merge equal nodes that carry `ours` in their metadata; the nodes named `fused` stand for matches, and each is its own."""
    for graph in outline.graphs:
        first: dict[Hashable, ir.Node] = {}
        for node in list(graph):
            if ours not in node.metadata_props or node.name in fused:
                continue
            attributes = attribute_key(node)
            if attributes is None or any(output.is_graph_output() for output in node.outputs):
                continue
            present = tuple(bool(output.name) for output in node.outputs)
            key = (node.domain, node.op_type, node.overload, attributes, tuple(node.inputs), present)
            kept = first.setdefault(key, node)
            if kept is not node:
                _merge(node, kept, outline)


def _merge(node: ir.Node, kept: ir.Node, outline: Outline) -> None:
    for output, stays in zip(node.outputs, kept.outputs, strict=True):
        output.replace_all_uses_with(stays)
    for index in range(len(node.inputs)):
        node.replace_input_with(index, None)
    home = node.graph
    assert home is not None
    home.remove(node)
    outline.position.pop(node, None)
