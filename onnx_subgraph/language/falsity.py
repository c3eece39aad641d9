"""Explain why a sentence is false: the deciding part, the actual values, and what would make it true.

`x.rank == 3` is false because x.rank is 4. Of parts joined by `and`, the first false one is the reason.
"""

from __future__ import annotations

import ast
import math
from typing import Any

from onnx_subgraph.language.comparison import UnknownFact
from onnx_subgraph.language.evaluation import Names, evaluate
from onnx_subgraph.language.expression import Expression

_VERBS: dict[type[ast.cmpop], str] = {
    ast.Eq: "be",
    ast.NotEq: "not be",
    ast.Lt: "be less than",
    ast.LtE: "be at most",
    ast.Gt: "be more than",
    ast.GtE: "be at least",
    ast.In: "be one of",
    ast.NotIn: "be none of",
}


def deciding_part(sentence: Expression | ast.expr, names: Names) -> ast.expr:
    """The part that makes a sentence false: the first false part of an `and`, else the sentence."""
    tree = sentence.tree if isinstance(sentence, Expression) else sentence
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        for part in tree.values:
            if _is_false(part, names):
                return deciding_part(part, names)
    if isinstance(tree, ast.Compare) and len(tree.ops) > 1:
        left = tree.left
        for op, right in zip(tree.ops, tree.comparators, strict=True):
            link = ast.copy_location(ast.Compare(left, [op], [right]), tree)
            if _is_false(link, names):
                return link
            left = right
    return tree


def facts(part: ast.expr, names: Names) -> str:
    """The actual values in a false part: "x.rank is 4", "a.dtype is float32, b.dtype is float16"."""
    said: dict[str, str] = {}
    for operand in _operands(part):
        words = ast.unparse(operand)
        try:
            said.setdefault(words, f"{words} {_shown(evaluate(operand, names))}")
        except UnknownFact as unknown:
            said.setdefault(words, str(unknown))
    return ", ".join(said.values())


def wish(part: ast.expr) -> str:
    """What would make a false part true: "let x.rank be 3"."""
    match part:
        case ast.Compare(left=left, ops=[ast.Is()]):
            return f"leave {ast.unparse(left)} out"
        case ast.Compare(left=left, ops=[ast.IsNot()]):
            return f"give {ast.unparse(left)}"
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            if isinstance(left, ast.Constant) and not isinstance(right, ast.Constant) and isinstance(op, ast.Eq | ast.NotEq):
                left, right = right, left
            return f"let {ast.unparse(left)} {_VERBS[type(op)]} {ast.unparse(right)}"
        case ast.Attribute(value=ast.Name(id=name), attr="is_constant"):
            return f"let {name} be a constant"
        case ast.Attribute(value=ast.Name(id=name), attr="is_scalar"):
            return f"let {name} have one element"
        case ast.Attribute(value=ast.Name(id=name), attr="is_output"):
            return f"let {name} be an output of the graph"
        case ast.Attribute(value=ast.Name(id=name), attr="is_doubled"):
            return f"let {name} be the same twice along its last axis"
        case ast.Attribute(value=ast.Name(id=name), attr="is_paired"):
            return f"let each two neighbours along the last axis of {name} be the same"
        case ast.Attribute(value=ast.Name(id=name), attr="is_binary"):
            return f"let every element of {name} be 0 or 1"
        case ast.UnaryOp(op=ast.Not(), operand=ast.Attribute(value=ast.Name(id=name), attr="is_constant")):
            return f"let {name} be computed, not constant"
        case ast.UnaryOp(op=ast.Not(), operand=ast.Attribute(value=ast.Name(id=name), attr="is_dequantized")):
            return f"let {name} come from no DequantizeLinear"
        case _:
            return f"make `{ast.unparse(part)}` true"


def _is_false(part: ast.expr, names: Names) -> bool:
    try:
        return not evaluate(part, names)
    except UnknownFact:
        return False


def _operands(part: ast.expr) -> list[ast.expr]:
    """The largest parts that have a value of their own and are not literals."""
    match part:
        case ast.BoolOp(values=values):
            return [operand for value in values for operand in _operands(value)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _operands(operand)
        case ast.Compare(left=left, comparators=comparators):
            return [operand for side in (left, *comparators) for operand in _operands(side)]
        case _:
            return [part] if any(isinstance(n, ast.Attribute | ast.Name) for n in ast.walk(part)) and not _is_word(part) else []


def _is_word(part: ast.expr) -> bool:
    """Whether a part only names constants of the language: `float32`, `inf`, `[float16, float32]`."""
    from onnx_subgraph.language.vocabulary import is_word

    names = [n for n in ast.walk(part) if isinstance(n, ast.Name)]
    return bool(names) and all(is_word(n.id) for n in names) and not any(isinstance(n, ast.Attribute) for n in ast.walk(part))


def _shown(value: Any) -> str:
    if value is None:
        return "is absent"
    if hasattr(value, "rank"):
        return "is there"
    return f"is {_text(value)}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.6g}"
    if isinstance(value, tuple | list):
        shown = [_text(v) for v in value[:8]]
        return f"[{', '.join(shown)}{', …' if len(value) > 8 else ''}]"
    return str(value)
