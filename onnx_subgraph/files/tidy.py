"""Repair what onnxruntime tolerates: the long name of the default domain, missing imports, unsorted nodes.

Names of nodes are not changed, even where they are empty or repeated. Names of values are unique.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnx
import onnx_ir as ir

from onnx_subgraph.errors import ModelError
from onnx_subgraph.files.protobuf import tensors
from onnx_subgraph.model.nested import bodies, graph_of, operands

_LONG_NAME = "ai.onnx"
_PLACE = ("location", "offset", "length", "checksum", "basepath")
"""The keys of external data that the standard has."""


def tidy_protobuf(proto: onnx.ModelProto) -> None:
    """Use the short name of the default domain in imports (onnx-ir does so for nodes), and drop overridden constants.

    Also drop keys of external data that onnx does not know: it ignores them, with a warning for each tensor.
    """
    _drop_overruled_constants(proto.graph)
    for tensor in tensors(proto):
        for index in reversed(range(len(tensor.external_data))):
            if tensor.external_data[index].key not in _PLACE:
                del tensor.external_data[index]
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

    def is_sorted(graph: ir.Graph) -> bool:
        for node in graph:
            if not done.issuperset(_read_from(node.inputs)) or not all(map(is_sorted, bodies(node))):
                return False
            done.add(node)
        return True

    return is_sorted(graph)


def _on_a_cycle(graph: ir.Graph) -> str:
    """A node on a cycle, as text for a message."""
    unresolved = {node: _read_from(operands(node)) for node in graph}
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


def _read_from(values: Iterable[ir.Value | None]) -> list[ir.Node]:
    """The nodes that compute these values."""
    return [node for value in values if value is not None and (node := value.producer()) is not None]
