"""A pattern held against the operator schemas."""

from __future__ import annotations

from onnx_subgraph.language.pattern import Pattern


def check(pattern: Pattern, domains: frozenset[str] = frozenset()) -> None:
    """Raises PatternError where an operator does not exist or is not called as its schema says."""
