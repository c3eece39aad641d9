"""Which nodes of the user's file a node of the graph stands for: a replacement remembers what it replaced, in its metadata."""

from __future__ import annotations

import json

import onnx_ir as ir

REPLACES = "onnx_subgraph.replaces"
"""The metadata of a fused node that lists, in JSON, the names of the nodes that it stands for."""


def label(node: ir.Node) -> str:
    """What a node is called: its name, else its first result's."""
    return node.name or next((o.name for o in node.outputs if o.name), node.op_type)


def is_made(node: ir.Node | None) -> bool:
    """Whether a replacement made the node, so that it is in no file of the user's."""
    return node is not None and REPLACES in node.metadata_props


def stood_for(node: ir.Node) -> list[str]:
    """The names that a node stands for: its own, or those that it replaced, in topological order."""
    if REPLACES in node.metadata_props:
        try:
            return [str(n) for n in json.loads(node.metadata_props[REPLACES])]
        except ValueError:  # somebody else's text under our key
            return [label(node)]
    return [] if node.op_type == "Constant" else [label(node)]
