"""Which nodes of the user's file a node of the graph comes from: a replacement records the replaced nodes in its metadata."""

from __future__ import annotations

import json

import onnx_ir as ir

REPLACES = "onnx_subgraph.replaces"
"""Metadata key of a fused node: the names of the nodes that it replaced, as a JSON list."""

RAISED = "onnx_subgraph.raised"
"""Key in `Node.meta` of a node that stands for a part of another one while patterns are matched: the name of that node."""

_EQUAL = "onnx_subgraph.equal"
"""Key in `Node.meta`, used only while a model is rewritten."""


def label(node: ir.Node) -> str:
    """The name of a node, else of its first named output, else its operator. A part has the name of the whole."""
    return node.meta.get(RAISED) or node.name or next((o.name for o in node.outputs if o.name), node.op_type)


def is_made(node: ir.Node | None) -> bool:
    """Whether a replacement made the node; then it is not in the user's file."""
    return node is not None and REPLACES in node.metadata_props


def keep_origin(node: ir.Node) -> None:
    """Record where a part comes from in the file, because it stays in the model."""
    node.metadata_props[REPLACES] = json.dumps([node.meta.pop(RAISED)], ensure_ascii=False)


def stood_for(node: ir.Node) -> list[str]:
    """The names of the user's nodes that a node comes from: its own, or those that it replaced, in topological order."""
    if REPLACES in node.metadata_props:
        try:
            return [str(n) for n in json.loads(node.metadata_props[REPLACES])]
        except ValueError:  # foreign text under our key
            return [label(node)]
    return [] if node.op_type == "Constant" else [label(node)]


def note_equal(kept: ir.Node, gone: ir.Node) -> None:
    """Record that a node equal to `kept` was merged into it, so that both origins are known."""
    kept.meta[_EQUAL] = [*equals(kept), *stood_for(gone), *equals(gone)]


def equals(node: ir.Node) -> list[str]:
    """The names of the user's nodes that were merged into this one."""
    return list(node.meta.get(_EQUAL, ()))
