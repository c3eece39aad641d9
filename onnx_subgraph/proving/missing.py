"""Say why a pattern is not found in a model, like `onnx-subgraph explain`."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.find import find
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.model.shapes import infer_shapes


def why_not_found(pattern: Pattern, proto: onnx.ModelProto) -> str:
    """How far the pattern matches in the model, and where it fails: "; nearly at …". "" where nothing of it matches."""
    model = ir.from_proto(proto)
    infer_shapes(model)
    found = find(model, [pattern], thorough=True, asked=True)
    bounded = "".join(f"; at {given_up.node} {given_up.reason}" for given_up in found.given_up)
    miss = max(found.near_misses, key=lambda near: near.matched, default=None)
    return bounded if miss is None else f"{bounded}; {_told(miss)}"


def _told(miss: NearMiss) -> str:
    place = "" if miss.span is None else f" ({miss.span})"
    nodes = f"{miss.matched} node{'' if miss.matched == 1 else 's'}"
    change = f"; {miss.change}" if miss.change else ""
    node = miss.node or "a node without a name"
    return f"nearly at {node}, where {nodes} matched: expected {miss.expected}, found {miss.found}{change}{place}"
