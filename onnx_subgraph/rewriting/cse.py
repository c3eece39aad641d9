"""Common-subexpression elimination over the nodes that replacements add.

Several layers need the same mask and the same tables of angles. Each replacement adds its own, and some exporters write the mask
in every layer too. Equal nodes with equal operands are merged. The first in graph order stays, so every reader comes after it.
Original nodes of the model are merged only where every reader was added by a rewrite, or is itself such a node.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

import onnx_ir as ir

from onnx_subgraph.matching.numbering import Numbering
from onnx_subgraph.matching.origin import note_equal
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.surgery import remove
from onnx_subgraph.rewriting.outline import Outline


def eliminate_common(outline: Outline, constants: Constants, ours: str, fused: Collection[str]) -> None:
    """Merge equal nodes that carry `ours` in their metadata. The nodes named in `fused` represent matches, and are not merged."""
    for graph in outline.graphs:
        shared = _shared(graph, ours, fused)
        if shared:
            _merge_equals(graph, shared, outline, constants, ours)


def _merge_equals(graph: ir.Graph, shared: Collection[ir.Node], outline: Outline, constants: Constants, ours: str) -> None:
    numbering = Numbering(
        constants, lambda n: outline.schema(n, graph), repeats=lambda n: not n.domain or ours in n.metadata_props
    )
    first: dict[Hashable, ir.Node] = {}
    for node in tuple(graph):
        key = numbering.add(node)
        if key is None or node not in shared:
            continue
        key = (key, tuple(bool(output.name) for output in node.outputs))
        kept = first.get(key)
        if kept is None or kept.graph is None:  # a merge can leave the nodes before it without a reader
            first[key] = node
        else:
            _merge(node, kept)


def _shared(graph: ir.Graph, ours: str, fused: Collection[str]) -> set[ir.Node]:
    """The nodes that may be merged: those that rewrites added, and standard ones that only such nodes and fused ones read."""
    added: set[ir.Node] = set()
    for node in reversed(graph):
        readers = {user for output in node.outputs for user, _ in output.uses()}
        inner = not node.domain and readers and readers <= added and not _is_result(node)
        if inner or ours in node.metadata_props:
            added.add(node)
    return {node for node in added if node.name not in fused and not _is_result(node)}


def _is_result(node: ir.Node) -> bool:
    return any(output.is_graph_output() for output in node.outputs)


def _merge(node: ir.Node, kept: ir.Node) -> None:
    note_equal(kept, node)
    for output, stays in zip(node.outputs, kept.outputs, strict=True):
        output.replace_all_uses_with(stays)
    remove(node)
