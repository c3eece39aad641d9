"""Names that nothing else in a model has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import onnx_ir as ir

from onnx_subgraph.model.shapes import values


def name_apart(model: ir.Model, old: Collection[ir.Node]) -> None:
    """Rename new nodes, and their results, whose name another node or another value has. old: the nodes that keep theirs.

    A result that took the place of another value has its name alone, and keeps it. So do the outputs of the model.
    """
    outputs = set(model.graph.outputs)
    nodes = [node for graph in model.graphs() for node in graph]
    of_nodes, of_values = Counter(node.name for node in nodes), Counter(value.name for value in values(model))
    for node in nodes:
        if node in old:
            continue
        node.name = _apart(node.name, of_nodes)
        for output in node.outputs:
            if output not in outputs:
                output.name = _apart(output.name, of_values)


def _apart(name: str | None, counts: Counter[str | None]) -> str | None:
    """The name, or one with a number that is new. counts: how often each name is used."""
    if not name or counts[name] < 2:
        return name
    counts[name] -= 1
    number = 2
    while counts[f"{name}_{number}"]:
        number += 1
    counts[f"{name}_{number}"] = 1
    return f"{name}_{number}"
