"""Gaps: where shape inference fails, and why. Patterns that need a rank or a type cannot match behind a gap.

A gap is a node whose result has an unknown type or rank although those of its operands are known, or an input without a shape. An
unknown dimension (how many boxes a detector finds) is not a gap.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_subgraph.model.nested import bodies, operands
from onnx_subgraph.operators.names import KNOWN_DOMAINS, operator_of

PROBLEM = "onnx_subgraph.inference_problem"
"""Key in `Node.meta`: the error of the operator's shape rule. In `Model.meta`: the error that ended the inference."""

DECLARE = "declare the shapes of the inputs, or fix them: `onnx-subgraph specialize MODEL --shape INPUT=…`"
"""The advice for an unknown shape."""

_DEPENDS = "its rank depends on values that are known only when the model runs"
_BRANCHES = "its branches give results of different ranks"


@dataclass(frozen=True, slots=True)
class Gap:
    """A place where shape inference fails.

    node: the name of the node or input; "" where inference failed as a whole. operator: "" for an input. behind: the names of the
    affected nodes: those with an unknown type or rank because of the gap, and those that read such a value.
    """

    node: str
    operator: str
    reason: str
    change: str
    behind: frozenset[str]


def gaps(model: ir.Model) -> tuple[Gap, ...]:
    """The gaps of a model after inference, those that affect the most nodes first."""
    if problem := model.meta.get(PROBLEM):
        every = frozenset(_name(node) for graph in model.graphs() for node in graph)
        return (Gap("", "", f"it ended with {problem}", "please report this model", every),)
    found: list[Gap] = []
    for graph in model.graphs():
        if graph is model.graph:
            found += (_of_input(value) for value in graph.inputs if _is_unknown(value) and value.uses())
        found += (_of_node(node, model) for node in graph if _gives_up(node))
    return tuple(sorted(found, key=lambda gap: -len(gap.behind)))


def _gives_up(node: ir.Node) -> bool:
    unknown = any(_is_unknown(value) for value in node.outputs if value.uses() or value.is_graph_output())
    return unknown and not any(_is_unknown(value) for value in operands(node))


def _is_unknown(value: ir.Value | None) -> bool:
    """Whether the type of a value, or the rank of a tensor, is unknown."""
    if value is None or value.name == "":
        return False
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        return False
    return value.dtype is None or value.shape is None


def _of_input(value: ir.Value) -> Gap:
    missing = "type" if value.dtype is None else "shape"
    reason = f"the input declares no {missing}"
    return Gap(value.name or "", "", reason, f"declare the {missing} of `{value.name}`", _behind([value]))


def _of_node(node: ir.Node, model: ir.Model) -> Gap:
    operator = operator_of(node)
    unknown = [value for value in node.outputs if _is_unknown(value)]
    named = " and ".join(f"`{value.name}`" for value in unknown)
    reason = _reason(node, operator, model)
    change = f"declare the type and shape of {named}, as a value_info"
    if node.domain not in KNOWN_DOMAINS and node.op_identifier() not in model.functions:
        change += f", or name the library that has {operator}: --custom-op-library PATH"
    return Gap(_name(node), operator, reason, change, _behind(unknown))


def _reason(node: ir.Node, operator: str, model: ir.Model) -> str:
    from onnx_shape_inference import registry

    if problem := node.meta.get(PROBLEM):
        return f"its rule fails: {problem}"
    version = model.opset_imports.get(node.domain, 1)
    if node.op_identifier() not in model.functions and registry.get(node.domain, node.op_type, version=version) is None:
        return f"the shapes that {operator} gives are not known to this tool"
    ranks = [len(body.outputs[0].shape) for body in bodies(node) if body.outputs and body.outputs[0].shape is not None]
    return _BRANCHES if node.op_type == "If" and len(set(ranks)) > 1 else _DEPENDS


def _behind(values: list[ir.Value]) -> frozenset[str]:
    """The names of the nodes that read these values, or values that are unknown because of them."""
    names: set[str] = set()
    seen: set[ir.Node] = set()
    queue = [user for value in values for user, _ in value.uses()]
    while queue:
        node = queue.pop()
        if node in seen:
            continue
        seen.add(node)
        names.add(_name(node))
        queue += [inner for body in bodies(node) for inner in body if any(map(_is_unknown, inner.outputs))]
        queue += [user for value in node.outputs if _is_unknown(value) for user, _ in value.uses()]
    return frozenset(names)


def _name(node: ir.Node) -> str:
    """The name of a node, else of its first output, else its operator; the same name as in reasons."""
    return node.name or (node.outputs[0].name if node.outputs else "") or node.op_type
