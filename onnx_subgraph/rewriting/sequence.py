"""The order in which matches are replaced, because matches that overlap exclude each other.

The user's patterns come first, then larger matches, then the pattern's order, then the position in the graph. There is one
exception. A match may end in nodes that only change the layout of its result, and a larger match may take these. Then the smaller
one comes first. An attention is still found without the reshape that ends a rotary embedding. The rotary embedding is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import onnx_ir as ir

from onnx_subgraph.language.library import is_built_in
from onnx_subgraph.matching.match import Match
from onnx_subgraph.model.nested import graph_of
from onnx_subgraph.rewriting.outline import Outline

_LAYOUT = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that change the layout or the type of a value, and compute nothing."""


def in_sequence(matches: Iterable[Match], outline: Outline) -> list[Match]:
    """The matches in the order in which to try them. Equal input gives equal output."""
    graphs = {graph: index for index, graph in enumerate(outline.graphs)}

    def key(match: Match) -> tuple[bool, int, int, int, float]:
        graph = graph_of(match.graph)
        root = max(outline.position[n] for n in match.nodes)
        size = sum(n.op_type != "Identity" for n in match.nodes)
        return is_built_in(match.pattern.file), -size, match.pattern.order, graphs[graph], root

    ordered = sorted(matches, key=key)
    places = {id(match): float(place) for place, match in enumerate(ordered)}
    largest: dict[ir.Node, tuple[Match, set[ir.Node]]] = {}
    for match in ordered:
        rivals = {id(found[0]): found for node in match.nodes if (found := largest.get(node)) is not None}
        if rivals and all(_comes_first(match, larger, taken) for larger, taken in rivals.values()):
            places[id(match)] = min(places[larger] for larger in rivals) - 0.5
        takes = {*match.nodes, *_layout_of_operands(match)}
        for node in takes:
            largest.setdefault(node, (match, takes))
    return sorted(ordered, key=lambda match: places[id(match)])


def _layout_of_operands(match: Match) -> Iterable[ir.Node]:
    """The nodes before a match that only change the layout of what it reads: its replacement may read what is before them."""
    nodes = set(match.nodes)
    for value in match.bindings.values():
        node = value.producer() if isinstance(value, ir.Value) else None
        while node is not None and node not in nodes and node.op_type in _LAYOUT:
            yield node
            node = None if node.inputs[0] is None else node.inputs[0].producer()


def _comes_first(match: Match, larger: Match, taken: Collection[ir.Node]) -> bool:
    """Whether the nodes that a larger match takes are the last ones of a match, and only change the layout of its result."""
    if is_built_in(match.pattern.file) and not is_built_in(larger.pattern.file):
        return False
    own = [node for node in match.nodes if node not in taken]
    shared = {node for node in match.nodes if node in taken}
    if any(node.op_type not in _LAYOUT for node in shared) or all(node.op_type in _LAYOUT for node in own):
        return False
    return not any(value is not None and value.producer() in shared for node in own for value in node.inputs)
