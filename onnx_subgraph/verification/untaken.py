"""Bodies of If, Loop and Scan that no run of the candidate took, and that are not what they were: each is held by itself.

Such a body is a site whose values can't be captured (`site`): the reference's body and the candidate's are run on drawn values,
and held against a float64 evaluation of the reference's. A body is known by the names of the nodes that own it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import onnx_ir as ir

from onnx_subgraph.model.shapes import infer_shapes
from onnx_subgraph.rewriting.cutting import Cutting, cut
from onnx_subgraph.rewriting.outline import Outline
from onnx_subgraph.rewriting.rewrite import Place, Rewrite
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.site import SiteCheck, check_sites


def check_untaken(
    reference: ir.Model, candidate: ir.Model, source: Path, provider: str, cases: Sequence[Case], reached: Collection[str]
) -> tuple[SiteCheck, ...]:
    """Holds every body that no run took and that differs between the two models, whose shapes are inferred.

    source: the file of the reference. reached: the names of the candidate's nodes that have run.
    """
    before, after = Outline(reference), Outline(candidate)
    theirs = {after.scope(graph): graph for graph in after.graphs}
    cuttings = []
    for graph in before.graphs:
        scope = before.scope(graph)
        other = theirs.get(scope)
        if graph is reference.graph or other is None or not _is_untaken(other, reached) or _is_same(graph, other):
            continue
        names = tuple(str(value.name) for value in graph.outputs)
        rewrite = Rewrite("", "", "", (), 0, root=scope, place=Place("", scope, names))
        mine, changed = _cut(graph, before), _cut(other, after)
        results = zip(names, (str(value.name) for value in other.outputs), strict=False)
        cuttings.append(Cutting(rewrite, mine, changed, tuple(results)))
    return check_sites(reference, source, cuttings, provider, cases)


def inferred(model: ir.Model) -> ir.Model:
    """A copy with the shapes that can be known."""
    copy = model.clone()
    infer_shapes(copy)
    return copy


def _is_untaken(graph: ir.Graph, reached: Collection[str]) -> bool:
    """Whether no node of a body has run; of one whose nodes have no names that can't be told, and it counts as taken."""
    names = [node.name for node in graph if node.name]
    return bool(names) and not any(name in reached for name in names)


def _is_same(one: ir.Graph, other: ir.Graph) -> bool:
    return list(_lines(one)) == list(_lines(other))


def _lines(graph: ir.Graph) -> Iterator[tuple[object, ...]]:
    for node in graph:
        read = tuple(None if value is None else value.name for value in node.inputs)
        attributes = sorted((a.name, _content(a)) for a in node.attributes.values() if a.type is not ir.AttributeType.GRAPH)
        yield node.domain, node.op_type, read, tuple(value.name for value in node.outputs), tuple(attributes)
    yield from ((name, _bytes(value.const_value)) for name, value in sorted(graph.initializers.items()))


def _content(attribute: ir.Attr) -> str:
    return str(_bytes(attribute.as_tensor()) if attribute.type is ir.AttributeType.TENSOR else attribute.value)


def _bytes(tensor: ir.TensorProtocol | None) -> bytes:
    if tensor is None or tensor.dtype is ir.DataType.STRING:
        return b"" if tensor is None else repr(tensor.numpy().tolist()).encode()
    return tensor.tobytes()


def _cut(graph: ir.Graph, outline: Outline) -> ir.Model:
    return cut(list(graph), list(graph.outputs), graph, outline, _constant)


def _constant(value: ir.Value) -> ir.TensorProtocol | None:
    return value.const_value if value.is_initializer() and not value.is_graph_input() else None
