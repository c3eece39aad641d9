"""Find the values of the main graph that only subgraphs read that no run took: no output that was compared depends on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import onnx_ir as ir

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.nested import behind, bodies, operands
from onnx_subgraph.rewriting.outline import Outline
from onnx_subgraph.verification.pieces import Body

Side = tuple[Outline, Constants]
"""The index of a model, and its constants."""


def hidden(before: Side, after: Side, untaken: Collection[str]) -> tuple[str, Body, Body] | None:
    """What computes such values in both models, and a subgraph that reads one of them; None where there are none.

    untaken: the scopes of the subgraphs that no run took. Values of one name are compared, as in subgraphs. What computes them
    begins at values of one name in both models that outputs depend on.
    """
    shown = [_shown(outline, untaken) for outline, _ in (before, after)]
    made = [{str(v.name): v for node in outline.model.graph for v in node.outputs} for outline, _ in (before, after)]
    read = _read_in(*after, untaken)
    found = [name for name in read if name in made[0] and not all(name in names for names in shown)]
    if not found:
        return None
    mine, other = (
        _part(side, [values[name] for name in found], shown[0] & shown[1])
        for side, values in zip((before, after), made, strict=True)
    )
    return read[found[0]], mine, other


def _part(side: Side, results: list[ir.Value], known: Collection[str]) -> Body:
    outline, constants = side
    graph = outline.model.graph
    needed = behind(results, lambda value: None if value.name in known else value.producer())
    return Body("", graph, outline, constants, (results, [node for node in graph if node in needed]))


def _read_in(outline: Outline, constants: Constants, untaken: Collection[str]) -> Mapping[str, str]:
    """The name of each value of the main graph that such a subgraph reads and that varies → the scope of the subgraph."""
    main = outline.model.graph
    found: dict[str, str] = {}
    for graph in outline.graphs:
        if (scope := outline.scope(graph)) in untaken:
            read = [*(value for node in graph for value in operands(node)), *graph.outputs]
            outer = (v for v in read if (maker := v.producer()) is not None and maker.graph is main)
            found = {str(v.name): scope for v in outer if constants.tensor(v) is None} | found
    return found


def _shown(outline: Outline, untaken: Collection[str]) -> set[str]:
    """The names of the values of the main graph that its outputs depend on."""
    main = outline.model.graph
    skipped = {graph for graph in outline.graphs if outline.scope(graph) in untaken}
    found: set[str] = set()
    pending = list(main.outputs)
    while pending:
        value = pending.pop()
        if value.name not in found and (node := value.producer()) is not None:
            found.add(str(value.name))
            pending += _reads(node, skipped.__contains__)
    return found


def _reads(node: ir.Node, is_skipped: Callable[[ir.Graph], bool]) -> Iterator[ir.Value]:
    yield from (value for value in node.inputs if value is not None)
    for body in bodies(node):
        if not is_skipped(body):
            for inner in body:
                yield from _reads(inner, is_skipped)
            yield from body.outputs
