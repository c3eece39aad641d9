"""Regions that a user marks in a model: the nodes between given values, or a module of the exported network.

Both give regions that one operator can replace. The nodes between values depend on a first value and are needed for a last value.
The module of a node comes from the exporter: dynamo records it in the node's metadata, TorchScript in the node's name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence

import onnx_ir as ir

from onnx_subgraph.errors import UsageError
from onnx_subgraph.model.nested import reads
from onnx_subgraph.regions.region import Region

NAME_SCOPES = "pkg.torch.onnx.name_scopes"
"""Metadata key of torch's dynamo exporter: the modules of a node, as the text of a Python list, outermost first."""


def between(graph: ir.Graph, first: Sequence[str], last: Sequence[str]) -> Region:
    """The region of the nodes that depend on one of the values `first` and are needed for one of the values `last`.

    Raises UsageError for an unknown value, and where no node lies between them.
    """
    values = _values(graph)
    starts, ends = [[_value(graph, values, name) for name in names] for names in (first, last)]
    after, before = _dependants(graph, starts), _needed(graph, ends)
    nodes = [node for node in graph if node in after and node in before]
    if not nodes:
        raise UsageError(
            f"nothing lies between {', '.join(first)} and {', '.join(last)}", hint="is the second computed from the first?"
        )
    return Region.of(graph, nodes)


def modules(graph: ir.Graph, pattern: str, paths_of: Callable[[ir.Node], Sequence[str]] | None = None) -> dict[str, Region]:
    """The regions of the modules whose paths fit `pattern`, by path, in the order of the graph.

    A path is written with dots: `encoder.layer.0.attention`. In a pattern, `*` stands for any part of one name, and the pattern
    may begin at any name of a path. A node between two nodes of a module belongs to the module, whatever the exporter recorded.
    paths_of: the modules of a node, for a graph whose nodes are no longer the exporter's; None reads what the exporter recorded.
    Raises UsageError where no module fits, or where two modules cannot be separated.
    """
    fits = re.compile(r"(?:.*\.)?" + r"[^.]*".join(map(re.escape, pattern.split("*"))))
    found: dict[str, list[ir.Node]] = {}
    for node in graph:
        if node.op_type == "Constant":  # A constant belongs to the node that reads it.
            continue
        for path in (paths_of or paths)(node):
            if fits.fullmatch(path):
                found.setdefault(path, []).append(node)
                break
    if not found:
        raise UsageError(f"no module of the model fits {pattern!r}", hint=_known(graph))
    owner = {node: path for path, nodes in found.items() for node in nodes}
    return {path: _closed(graph, path, nodes, owner) for path, nodes in found.items()}


def paths(node: ir.Node) -> list[str]:
    """The paths of the modules that contain a node, outermost first; empty where the exporter recorded none."""
    recorded = node.metadata_props.get(NAME_SCOPES)
    if recorded is not None:
        try:
            scopes = ast.literal_eval(recorded)
        except (ValueError, SyntaxError):
            return []
        return [str(scope) for scope in scopes if scope][:-1] if isinstance(scopes, list) else []
    parts = [part for part in (node.name or "").split("/")[:-1] if part]
    return [".".join(parts[: end + 1]) for end in range(len(parts))] if (node.name or "").startswith("/") else []


def _closed(graph: ir.Graph, path: str, nodes: Sequence[ir.Node], owner: dict[ir.Node, str]) -> Region:
    """The region of these nodes and of every node on a path between two of them."""
    outputs = [output for node in nodes for output in node.outputs]
    after, before = _dependants(graph, outputs), _needed(graph, outputs)
    inside = set(nodes)
    closed = [node for node in graph if node in inside or (node in after and node in before)]
    for node in closed:
        if owner.setdefault(node, path) != path:
            raise UsageError(
                f"a path leads out of the module {path} through {owner[node]} and back",
                hint="mark an outer module, or one of them",
            )
    return Region.of(graph, closed)


def _dependants(graph: ir.Graph, values: Iterable[ir.Value]) -> set[ir.Node]:
    known, found = set(values), set()
    for node in graph:  # topological order
        if any(value in known for value in reads(node)):
            found.add(node)
            known.update(node.outputs)
    return found


def _needed(graph: ir.Graph, values: Iterable[ir.Value]) -> set[ir.Node]:
    wanted, found = set(values), set()
    for node in reversed(graph):
        if any(output in wanted for output in node.outputs):
            found.add(node)
            wanted.update(reads(node))
    return found


def _values(graph: ir.Graph) -> dict[str, ir.Value]:
    values = [*graph.inputs, *graph.initializers.values(), *(output for node in graph for output in node.outputs)]
    return {value.name: value for value in values if value.name}


def _value(graph: ir.Graph, values: dict[str, ir.Value], name: str) -> ir.Value:
    if name in values:
        return values[name]
    if any(output.name == name for node in graph.all_nodes() for output in node.outputs):
        raise UsageError(f"{name} is in the body of an If, Loop or Scan", hint="mark what lies in the main graph")
    import difflib

    near = difflib.get_close_matches(name, values, 1)
    example = next((value.name for value in graph.outputs), name)
    hint = f"did you mean {near[0]!r}?" if near else f"name an input, a result of a node or an output, such as {example!r}"
    raise UsageError(f"the model has no value {name!r}", hint=hint)


def _known(graph: ir.Graph) -> str:
    seen = dict.fromkeys(path for node in graph for path in paths(node))
    if not seen:
        return "its exporter recorded no modules; name values with --from and --to"
    shown = list(seen)[:8]
    return f"its modules are {', '.join(shown)}{' …' if len(seen) > len(shown) else ''}"
