"""What an engine keeps of the nodes that it replaces, for `inline`: their names, doc strings and metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from onnx_subgraph.engine.operator import is_engine
from onnx_subgraph.matching.origin import REPLACES

KEPT = "onnx_subgraph.kept"
"""Metadata key of an engine: [doc string, metadata] of each node in `REPLACES`, as a JSON list; absent if no node has any."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A node that an engine replaced."""

    name: str
    doc_string: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


def keep(engine: ir.Node, nodes: Sequence[ir.Node]) -> None:
    """Record doc strings and metadata of the nodes that an engine replaces."""
    kept = [[node.doc_string or "", dict(node.metadata_props)] for node in nodes]
    if any(doc_string or metadata for doc_string, metadata in kept):
        engine.metadata_props[KEPT] = json.dumps(kept, ensure_ascii=False)


def replaced(node: ir.Node) -> list[Replaced]:
    """The nodes that an engine replaced; empty where the model does not say so any more, or for another node."""
    if not is_engine(node):
        return []
    found = [Replaced(str(name)) for name in _listed(node, REPLACES)]
    try:
        pairs = [(str(doc) or None, {str(k): str(v) for k, v in metadata.items()}) for doc, metadata in _listed(node, KEPT)]
        return [Replaced(one.name, *pair) for one, pair in zip(found, pairs, strict=True)]
    except (AttributeError, TypeError, ValueError):  # absent, or foreign text under our key
        return found


def _listed(node: ir.Node, key: str) -> list[Any]:
    try:
        listed = json.loads(node.metadata_props.get(key, "[]"))
    except ValueError:
        return []
    return listed if isinstance(listed, list) else []
