"""Derive from a pattern's sentences which names must or must not be constant, so that the matcher checks it before binding."""

from __future__ import annotations

import ast
from collections.abc import Collection

from onnx_subgraph.language.pattern import Pattern


def constancy(pattern: Pattern, statics: Collection[str]) -> dict[str, bool]:
    """Name → whether it must be constant (`a.is_constant`) or must not (`not x.is_constant`). statics: names that must be."""
    found = dict.fromkeys(statics, True)
    pending = [sentence.tree for sentence in pattern.where]
    while pending:
        match pending.pop():
            case ast.BoolOp(op=ast.And(), values=values):
                pending += values
            case ast.Attribute(value=ast.Name(id=name), attr="is_constant"):
                found[name] = True
            case ast.BoolOp(op=ast.Or(), values=[ast.Compare(ops=[ast.Is()]) as absent, other]):
                # `k is None or k.is_constant`: if `k` is present, it is constant.
                name = getattr(absent.left, "id", "")
                parts = other.values if isinstance(other, ast.BoolOp) and isinstance(other.op, ast.And) else [other]
                pending += [p for p in parts if isinstance(p, ast.Attribute) and getattr(p.value, "id", None) == name]
            case ast.UnaryOp(op=ast.Not(), operand=ast.Attribute(value=ast.Name(id=name), attr="is_constant")):
                found[name] = False
    return found
