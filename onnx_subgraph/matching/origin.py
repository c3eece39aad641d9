"""Which nodes of the user's file a node of the graph stands for: a replacement remembers what it replaced, in its metadata."""

from __future__ import annotations

import json

import onnx_ir as ir

REPLACES = "onnx_subgraph.replaces"
"""The metadata of a fused node that lists, in JSON, the names of the nodes that it stands for."""

_EQUAL = "onnx_subgraph.equal"
"""In what is noted at a node while a model is rewritten."""


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


def note_equal(kept: ir.Node, gone: ir.Node) -> None:
    """Note at a node that an equal one was merged into it, so that it stands where both were."""
    kept.meta[_EQUAL] = [*equals(kept), *stood_for(gone), *equals(gone)]


def equals(node: ir.Node) -> list[str]:
    """The names that the nodes stood for that were merged into this one."""
    return list(node.meta.get(_EQUAL, ()))
