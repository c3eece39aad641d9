"""The part of a result about one pattern, one node, or both.

`explain MODEL PATTERN --node NAME` uses it. A node is concerned by what was found at it, started from it or would have replaced
it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx_subgraph.result import FuseResult


def about(result: FuseResult, *, pattern: str | None = None, node: str | None = None) -> FuseResult:
    """`result` with only the rewrites, skips and near misses of `pattern` (None: any) that concern `node` (None: any)."""
    return replace(
        result,
        rewrites=tuple(
            r for r in result.rewrites if pattern in {None, r.pattern} and (node is None or node == r.node or node in r.replaces)
        ),
        skipped=tuple(s for s in result.skipped if pattern in {None, s.pattern} and node in {None, s.node}),
        near_misses=tuple(n for n in result.near_misses if pattern in {None, n.pattern} and node in {None, n.node, n.anchor}),
    )
