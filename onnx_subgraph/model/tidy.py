"""Repair what onnxruntime tolerates: the long name of the default domain, missing imports, unsorted nodes.

Names of nodes are not changed, even where they are empty or repeated. Names of values are unique.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir

from onnx_subgraph.errors import ModelError
from onnx_subgraph.model.nested import graph_of

_LONG_NAME = "ai.onnx"


def tidy_protobuf(proto: onnx.ModelProto) -> None:
    """Use the short name of the default domain in imports (onnx-ir does so for nodes), and drop overridden constants."""
    _drop_overruled_constants(proto.graph)
    for owner in (proto, *proto.functions):
        names = {opset.domain for opset in owner.opset_import}
        kept = [opset for opset in owner.opset_import if not (opset.domain == _LONG_NAME and "" in names)]
        imports = [
            onnx.OperatorSetIdProto(domain="" if opset.domain == _LONG_NAME else opset.domain, version=opset.version)
            for opset in kept
        ]
        del owner.opset_import[:]
        owner.opset_import.extend(imports)


def _drop_overruled_constants(graph: onnx.GraphProto) -> None:
    """Drop `Constant` nodes that a later one with the same output overrides; onnxruntime uses the last."""
    last: dict[str, int] = {}
    overruled = []
    for index, node in enumerate(graph.node):
        if node.op_type == "Constant" and len(node.output) == 1:
            overruled += [last[node.output[0]]] if node.output[0] in last else []
            last[node.output[0]] = index
    for index in sorted(overruled, reverse=True):
        del graph.node[index]


def tidy(model: ir.Model, path: Path) -> None:
    """Sort unsorted nodes, and import com.microsoft where it is used. Raises ModelError naming a node on a cycle."""
    owners: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for owner in owners:
        if any(node.domain == "com.microsoft" for node in owner.all_nodes()):
            owner.opset_imports.setdefault("com.microsoft", 1)
    for owner in owners:
        graph = graph_of(owner)
        if _is_sorted(graph):
            continue
        try:
            owner.sort()
        except ValueError:
            raise ModelError(
                f"{path}: the graph has a cycle: {_on_a_cycle(graph)}", hint="a value may not depend on itself"
            ) from None


def _is_sorted(graph: ir.Graph) -> bool:
    """Whether every node, also in nested bodies, comes after the nodes that it reads from."""
    done: set[ir.Node] = set()
    stack = [iter(graph)]
    owners: list[ir.Node | None] = [None]
    while stack:
        node = next(stack[-1], None)
        if node is None:
            stack.pop()
            owner = owners.pop()
            if owner is not None:
                done.add(owner)
            continue
        for value in node.inputs:
            producer = value.producer() if value is not None else None
            if producer is not None and producer not in done:
                return False
        bodies = [body for attribute in node.attributes.values() for body in _bodies(attribute)]
        if not bodies:
            done.add(node)
            continue
        # The node is done when its last body is; the bodies are visited last to first.
        for index, body in enumerate(bodies):
            stack.append(iter(body))
            owners.append(node if index == 0 else None)
    return True


def _bodies(attribute: ir.Attr) -> list[ir.Graph]:
    if attribute.is_ref():
        return []
    if attribute.type == ir.AttributeType.GRAPH:
        return [attribute.as_graph()]
    return list(attribute.as_graphs()) if attribute.type == ir.AttributeType.GRAPHS else []


def _on_a_cycle(graph: ir.Graph) -> str:
    """A node on a cycle, as text for a message."""
    unresolved = {node: _reads(node) for node in graph}
    while ready := [node for node, reads in unresolved.items() if not any(other in unresolved for other in reads)]:
        for node in ready:
            del unresolved[node]
    if not unresolved:
        return "inside a nested body"
    # Every remaining node reads from another remaining one, so walking backwards ends in a cycle.
    node, seen = next(iter(unresolved)), []
    while node not in seen:
        seen.append(node)
        node = next(other for other in unresolved[node] if other in unresolved)
    name = node.name or next((value.name for value in node.outputs if value.name), "?")
    return f"node '{name}' ({node.op_type}) depends on its own result"


def _reads(node: ir.Node) -> list[ir.Node]:
    producers = [value.producer() for value in node.inputs if value is not None]
    for attribute in node.attributes.values():
        for body in _bodies(attribute):
            producers += [value.producer() for inner in body.all_nodes() for value in inner.inputs if value is not None]
    return [producer for producer in producers if producer is not None]
