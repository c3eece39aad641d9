"""Turn engines and fused functions back into ordinary nodes.

onnx-ir's inliner does the work. Nodes from an engine get back the names that they had before the engine was made.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass, RemoveUnusedOpsetsPass
from onnx_ir.passes.common.inliner import InlinePassResult

from onnx_subgraph.engine.operator import is_engine
from onnx_subgraph.errors import ModelError
from onnx_subgraph.matching.origin import REPLACES
from onnx_subgraph.model.files import hand_on, load, save
from onnx_subgraph.model.naming import name_apart
from onnx_subgraph.model.shapes import DECLARED
from onnx_subgraph.operators.names import ENGINE, OWN_DOMAIN
from onnx_subgraph.paths import StrPath
from onnx_subgraph.regions.ground import PATTERN
from onnx_subgraph.rewriting.definitions import drop_unused
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
    model, output = Path(model), Path(output)
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
    engines = {}
    for number, node in enumerate(model.graph.all_nodes()):
        if is_engine(node):
            node.metadata_props[_CALL] = str(number)
            engines[str(number)] = node.graph, _names_in(node)
    calls = _inlined(model, lambda function: (function.domain, function.name) == (OWN_DOMAIN, ENGINE))
    _name_back(model, engines)
    for node in model.graph.all_nodes():
        if node.op_identifier() in model.functions:
            node.metadata_props.pop(PATTERN, None)
            node.metadata_props.pop(REPLACES, None)
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


def _inlined(model: ir.Model, criteria: Callable[[ir.Function], bool]) -> int:
    functions = dict(model.functions)
    inner = (functions.get(node.op_identifier()) for node in model.graph.all_nodes() if node.graph is not model.graph)
    in_bodies = sum(1 for function in inner if function is not None and criteria(function))  # the pass does not count these
    result = InlinePass(criteria)(model)
    assert isinstance(result, InlinePassResult)
    return in_bodies + sum(count for called, count in result.id_count.items() if criteria(functions[called]))


def _names_in(node: ir.Node) -> list[str]:
    """The names of the nodes that an engine replaced; empty where the model does not have them any more."""
    try:
        names = json.loads(node.metadata_props.get(REPLACES, "[]"))
    except ValueError:
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


def _name_back(model: ir.Model, engines: Mapping[str, tuple[object, list[str]]]) -> None:
    groups: dict[str, list[ir.Node]] = defaultdict(list)
    for node in model.graph.all_nodes():
        mark = node.metadata_props.pop(_CALL, None)
        if mark is not None:
            node.metadata_props.pop(REPLACES, None)
            if node.graph is engines[mark][0]:
                groups[mark].append(node)
    outline = Outline(model)
    for mark, nodes in groups.items():
        _rename(nodes, engines[mark][1], outline)


def _rename(nodes: Sequence[ir.Node], names: Sequence[str], outline: Outline) -> None:
    """Name the nodes of a former engine. The Constant nodes at the start of its definition had no names."""
    for node, name in zip(nodes[len(nodes) - len(names) :], names, strict=False):
        if not name:
            continue
        node.name = name if name not in outline.names else outline.fresh(name)
        outline.names.add(name)
        for index, output in enumerate(node.outputs):
            if output.name and output.name.startswith(node.op_type.lower()) and not output.is_graph_output():
                output.name = outline.fresh(f"{name}_output_{index}")
