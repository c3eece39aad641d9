"""Find which nodes of a model have run, from onnxruntime's profile.

A node of the main graph runs in every run. A subgraph of If, Loop or Scan has run if one of its nodes has. After inlining, a
function's nodes are recognised by the end of their names, and a call by the function, if no other graph calls it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import count

import onnx_ir as ir

from onnx_subgraph.matching.origin import label
from onnx_subgraph.model.nested import bodies, has_bodies, within
from onnx_subgraph.verification.verdict import Reached

_INLINED = "_inlfunc_"
"""The prefix of the names that onnxruntime gives to nodes inlined from a function."""


def reached(model: ir.Model, executed: Collection[str]) -> Reached:
    """The nodes of the model that ran. executed: the names that onnxruntime gave to the nodes that ran."""
    inlined = _inlined(model, executed)
    kernel = {str(node.name) for node in model.graph.all_nodes() if node.name in executed}
    found = set(kernel)
    graphs = list(_graphs(model))
    callers = Counter(called for graph, _ in graphs for called in {node.op_type for node in graph if _is_call(node, model)})
    for graph, function in graphs:
        names = {str(node.name) for node in graph if node.name}
        if function:
            kernel |= (ran := {name for name in names if any(other.endswith(f"_{name}") for other in inlined[function])})
        else:
            calls = {node.op_type for node in graph if _is_call(node, model)}
            ran = names & set(executed) or {called for called in calls if callers[called] == 1 and inlined[called]}
        if ran or graph is model.graph:
            found |= names
    return Reached(frozenset(kernel), frozenset(found))


def _inlined(model: ir.Model, executed: Collection[str]) -> Mapping[str, set[str]]:
    """Name of a function → the names of its nodes that ran. A name begins with that of the function; the longest one counts."""
    functions = sorted({function.name for function in model.functions.values()}, key=len, reverse=True)
    found: dict[str, set[str]] = defaultdict(set)
    for name in executed:
        owner = next((function for function in functions if name.startswith(f"{_INLINED}{function}_")), None)
        if owner is not None:
            found[owner].add(name)
    return found


def _is_call(node: ir.Node, model: ir.Model) -> bool:
    return node.op_identifier() in model.functions


def name_bodies(model: ir.Model) -> bool:
    """Give each node of a body or function a name that no other graph has, in place: a profile tells nodes by their names.

    A node without a name is named after its first output, with a number where that is taken. Nodes that own bodies keep theirs,
    because bodies correspond by them. Returns whether anything changed.
    """
    main, *rest = [graph for root in (model.graph, *(f.graph for f in model.functions.values())) for graph in within(root)]
    holders = Counter(name for graph in (main, *rest) for name in {node.name for node in graph if node.name})
    taken, found = set(holders), False
    for node in (node for graph in rest for node in graph):
        name, owns = label(node), has_bodies(node)
        if (node.name and (owns or holders[node.name] == 1)) or (owns and name in taken):
            continue
        node.name = next(one for one in _numbered(name) if one not in taken)
        taken.add(node.name)
        found = True
    return found


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}_{number}" for number in count(2))


def _graphs(model: ir.Model) -> Iterator[tuple[ir.Graph, str]]:
    """Every graph of the model, and the name of the function that it is inside; "" for none."""
    queue = [(model.graph, ""), *((function.graph, function.name) for function in model.functions.values())]
    while queue:
        graph, inside = queue.pop()
        yield graph, inside
        queue += [(body, inside) for node in graph for body in bodies(node)]
