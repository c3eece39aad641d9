"""Turn engines and fused functions back into ordinary nodes.

onnx-ir's inliner does the work. Nodes from an engine get back the names, doc strings and metadata that they had before the
engine was made. Nodes from another call inherit its metadata, and its doc string if they have none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass, RemoveUnusedOpsetsPass
from onnx_ir.passes.common.inliner import InlinePassResult

from onnx_subgraph.emitting.definitions import drop_unused
from onnx_subgraph.engine.operator import APART
from onnx_subgraph.errors import ModelError
from onnx_subgraph.files.models import hand_on, load, save
from onnx_subgraph.matching.origin import REPLACES
from onnx_subgraph.model.naming import name_apart
from onnx_subgraph.model.shapes import DECLARED
from onnx_subgraph.operators.names import ENGINE, OWN_DOMAIN
from onnx_subgraph.partitioning import kept
from onnx_subgraph.paths import StrPath, path_of
from onnx_subgraph.regions.ground import PATTERN
from onnx_subgraph.rewriting.outline import Outline

_CALL = "onnx_subgraph.call"
"""Metadata key of a call; the nodes that replace the call inherit it."""


@dataclass(frozen=True, slots=True)
class InlineResult:
    """What `inline` did to one model. calls: the number of inlined calls."""

    model: Path
    output: Path
    nodes_before: int
    nodes_after: int
    calls: int


def inline(model: StrPath, output: StrPath) -> InlineResult:
    """Write `model` without functions to `output`; a byte-for-byte copy if it has none.

    Raises ModelError for a model that can't be read, inlined or written.
    """
    model, output = path_of(model), Path(output)
    loaded = load(model)
    before = sum(1 for _ in loaded.graph.all_nodes())
    if not loaded.functions:
        hand_on(model, output)
        return InlineResult(model, output, before, before, 0)
    try:
        calls = inline_model(loaded)
    except (ValueError, ir.passes.PassError) as error:
        cause = error.__cause__ or error
        raise ModelError(
            f"{model}: can't be inlined: {cause}", hint="its functions and the model must use the same opsets"
        ) from error
    save(loaded, output, model)
    return InlineResult(model, output, before, sum(1 for _ in loaded.graph.all_nodes()), calls)


def inline_model(model: ir.Model) -> int:
    """Inline every model-local function. Changes `model`; returns the number of calls.

    Raises ValueError or onnx-ir's PassError where functions call each other, or need another opset than the model.
    """
    graphs = (model.graph, *model.graph.subgraphs())
    declared = [(graph, [(v.type, v.shape, v.meta.get(DECLARED)) for v in graph.outputs]) for graph in graphs]
    calls = _inlined(model, lambda function: (function.domain, function.name) == (OWN_DOMAIN, ENGINE))
    old = set(model.graph.all_nodes())
    others = _inlined(model, lambda function: True)
    drop_unused(model, kept=())
    name_apart(model, old)  # the pass gives names that values in bodies may have
    RemoveUnusedOpsetsPass()(model)
    for graph, of_outputs in declared:
        for value, (type_, shape, record) in zip(graph.outputs, of_outputs, strict=True):
            value.type, value.shape = type_, shape
            if record is not None:
                value.meta[DECLARED] = record
    return calls + others


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a function, as it was in its graph. values: those of its outputs that have a name."""

    graph: object
    doc_string: str | None
    values: Mapping[str, ir.Value]
    replaced: Sequence[kept.Replaced]

    @classmethod
    def taken(cls, node: ir.Node) -> _Call:
        """The call; what it records of itself is removed, for the nodes that replace it inherit its metadata."""
        found = cls(node.graph, node.doc_string, {o.name: o for o in node.outputs if o.name}, kept.replaced(node))
        _forget(node)
        return found


def _forget(call: ir.Node) -> None:
    """Remove what a call records of itself."""
    for key in (PATTERN, REPLACES, kept.KEPT, APART):
        call.metadata_props.pop(key, None)


def _inlined(model: ir.Model, criteria: Callable[[ir.Function], bool]) -> int:
    functions = {called: function for called, function in model.functions.items() if criteria(function)}
    nodes = [node for node in model.graph.all_nodes() if node.op_identifier() in functions]
    for node in model.graph.all_nodes():
        node.metadata_props.pop(_CALL, None)  # foreign text under our key
    calls = {str(number): _Call.taken(node) for number, node in enumerate(nodes)}
    for mark, node in zip(calls, nodes, strict=True):
        node.metadata_props[_CALL] = mark
    for node in (node for function in model.functions.values() for node in function.all_nodes()):
        if node.op_identifier() in functions:
            _forget(node)
    in_bodies = sum(1 for node in nodes if node.graph is not model.graph)  # the pass does not count these
    result = InlinePass(criteria)(model)
    assert isinstance(result, InlinePassResult)
    _give_back(model, calls)
    return in_bodies + sum(count for called, count in result.id_count.items() if called in functions)


def _give_back(model: ir.Model, calls: Mapping[str, _Call]) -> None:
    """Give the nodes and values that replace calls what the calls had, and what engines recorded."""
    made: dict[str, list[ir.Node]] = defaultdict(list)
    for node in model.graph.all_nodes():
        mark = node.metadata_props.pop(_CALL, None)
        if mark is None:
            continue
        node.doc_string = node.doc_string or calls[mark].doc_string
        if node.graph is calls[mark].graph:
            made[mark].append(node)
    outline = Outline(model)
    for mark, nodes in made.items():
        for output in (output for node in nodes for output in node.outputs):
            before = calls[mark].values.get(output.name or "")
            if before is not None and (before.doc_string or before.metadata_props):
                output.doc_string = before.doc_string or output.doc_string
                output.metadata_props.update(before.metadata_props)
                if DECLARED in before.meta:  # the file holds them beside the type
                    output.meta[DECLARED] = before.meta[DECLARED]
        _rename(nodes, calls[mark].replaced, outline)


def _rename(nodes: Sequence[ir.Node], replaced: Sequence[kept.Replaced], outline: Outline) -> None:
    """Restore the nodes of a former engine. The Constant nodes at the start of its definition had no names."""
    for node, before in zip(nodes[len(nodes) - len(replaced) :], replaced, strict=False):
        node.doc_string = before.doc_string
        node.metadata_props.update(before.metadata)
        if not (name := before.name):
            continue
        node.name = name if name not in outline.names else outline.fresh(name)
        outline.names.add(name)
        for index, output in enumerate(node.outputs):
            if output.name and output.name.startswith(node.op_type.lower()) and not output.is_graph_output():
                output.name = outline.fresh(f"{name}_output_{index}")
