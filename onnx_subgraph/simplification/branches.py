"""An If whose condition is known becomes one of its branches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import onnx_ir as ir

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.nested import graph_around, within
from onnx_subgraph.model.shapes import copied, infer_shapes, values
from onnx_subgraph.model.surgery import remove, replace


def _chosen_branch(constants: Constants, node: ir.Node) -> ir.Graph | None:
    """The branch that an If always runs; None where that is not known, and for other nodes."""
    if node.op_type != "If" or node.domain or node.inputs[0] is None:
        return None
    condition = constants.scalar(node.inputs[0])
    return None if condition is None else node.attributes["then_branch" if condition else "else_branch"].as_graph()


def decided(model: ir.Model) -> ir.Model:
    """A copy with inferred shapes where every If whose condition is known is the branch that it runs."""
    copy = copied(model)
    infer_shapes(copy)
    roots = (copy.graph, *(function.graph for function in copy.functions.values()))
    while decide(copy, Constants(copy), [graph for root in roots for graph in within(root)]):
        infer_shapes(copy)
    return copy


def decide(model: ir.Model, constants: Constants, graphs: Sequence[ir.Graph]) -> int:
    """Replace each If of these graphs whose condition is known by the branch that it runs. Returns how many there were."""
    known = [(node, branch) for graph in graphs for node in graph if (branch := _chosen_branch(constants, node)) is not None]
    replaced = 0
    for node, branch in known:
        if node.graph is not None and node.attributes:  # it is not in a branch that was removed
            _put_in_place(model, node, branch)
            replaced += 1
    return replaced


def _put_in_place(model: ir.Model, node: ir.Node, branch: ir.Graph) -> None:
    """Replace an If by the nodes of a branch."""
    graph = graph_around(node)
    taken = Counter(str(value.name) for value in values(model))
    nodes, outputs, stored = list(branch), list(branch.outputs), list(branch.initializers.values())
    branch.outputs.clear()
    branch.initializers.clear()
    branch.remove(nodes)
    graph.insert_before(node, nodes)
    for value in (*stored, *(output for inner in nodes for output in inner.outputs)):
        name = value.name or ""
        while name and taken[name] > (name == value.name):  # a value of the other branch, or of another If, has the same name
            name = f"{name}__{node.name or 'if'}"
        taken[name] += name != value.name
        value.name = name or value.name
    for value in stored:
        graph.register_initializer(value)
    for result, value in zip(node.outputs, outputs, strict=True):
        if result.is_graph_output():
            handed_on = ir.Node("", "Identity", [value])
            graph.insert_before(node, handed_on)
            replace(result, handed_on.outputs[0])
        else:
            result.replace_all_uses_with(value)
    remove(node)
