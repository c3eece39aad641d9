"""Explain why a sentence is false: the deciding part, the actual values, and what would make it true.

`x.rank == 3` is false because x.rank is 4. Of parts joined by `and`, the first false one is the reason; of those joined by `or`,
every one that does not ask whether a part of the pattern is there.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any

from onnx_subgraph.language.comparison import UnknownFact
from onnx_subgraph.language.evaluation import Names, evaluate
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.sentence import asks_presence

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

_WISHES = {
    "is_constant": "let {} be a constant",
    "is_scalar": "let {} have one element",
    "is_output": "let {} be an output of the graph",
    "is_doubled": "let {} be the same twice along its last axis",
    "is_paired": "let each two neighbours along the last axis of {} be the same",
    "is_binary": "let every element of {} be 0 or 1",
    "is_causal": "let {} be 0 on and below the diagonal, and -inf above",
}
"""What would make a fact true."""
_OPPOSITES = {
    "is_constant": "let {} be computed, not constant",
    "is_dequantized": "let {} come from no DequantizeLinear",
}
"""What would make it false."""
_SENTENCES = (ast.BoolOp, ast.Compare, ast.Attribute)
"""What a line of `let` is that a sentence could say as well."""


Let = Mapping[str, Expression]
"""The lines of a `let`: name → what it stands for."""


def deciding_part(sentence: Expression | ast.expr, names: Names, let: Let = MappingProxyType({})) -> ast.expr:
    """The part that makes a sentence false: of an `and` the first false part, else the sentence.

    Of an `or`, parts that only ask whether something is there are left out: another form of the pattern would make them true.
    A name of `let` is what it stands for.
    """
    tree = sentence.tree if isinstance(sentence, Expression) else sentence
    if isinstance(tree, ast.Name) and tree.id in let and isinstance(let[tree.id].tree, _SENTENCES):
        return deciding_part(let[tree.id], names, let)
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        for part in tree.values:
            if _is_false(part, names):
                return deciding_part(part, names, let)
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.Or):
        parts = [deciding_part(part, names, let) for part in tree.values]
        telling = [part for part in parts if not asks_presence(part)] or parts
        return tree if telling == tree.values else telling[0] if len(telling) == 1 else ast.BoolOp(ast.Or(), telling)
    if isinstance(tree, ast.Compare) and len(tree.ops) > 1:
        left = tree.left
        for op, right in zip(tree.ops, tree.comparators, strict=True):
            link = ast.copy_location(ast.Compare(left, [op], [right]), tree)
            if _is_false(link, names):
                return link
            left = right
    return tree


def spelled(part: ast.expr) -> str:
    """A part of a sentence as text, with short numbers: `low.value <= -1e+08`."""
    return ast.unparse(_Short().visit(deepcopy(part)))


class _Short(ast.NodeTransformer):
    """Writes floats with at most six digits."""

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.Name(_text(node.value)) if isinstance(node.value, float) else node


def facts(part: ast.expr, names: Names) -> str:
    """The actual values in a false part: "x.rank is 4", "a.dtype is float32, b.dtype is float16"."""
    said: dict[str, str] = {}
    for operand in _operands(part):
        words = spelled(operand)
        try:
            said.setdefault(words, f"{words} {_shown(evaluate(operand, names))}")
        except UnknownFact as unknown:
            said.setdefault(words, str(unknown))
    return ", ".join(said.values())


def wish(part: ast.expr) -> str:
    """What would make a false part true: "let x.rank be 3"; "" for a name or a call, which name nothing in the model."""
    match part:
        case ast.BoolOp(op=ast.Or(), values=values):
            return ", or ".join(filter(None, map(wish, values)))
        case ast.Name() | ast.Call() | ast.UnaryOp(op=ast.Not(), operand=ast.Name() | ast.Call()):
            return ""
        case ast.Compare(left=left, ops=[ast.Is()]):
            return f"leave {spelled(left)} out"
        case ast.Compare(left=left, ops=[ast.IsNot()]):
            return f"give {spelled(left)}"
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            if isinstance(left, ast.Constant) and not isinstance(right, ast.Constant) and isinstance(op, ast.Eq | ast.NotEq):
                left, right = right, left
            return f"let {spelled(left)} {_VERBS[type(op)]} {spelled(right)}"
        case ast.Attribute(value=ast.Name(id=name), attr=attr) if attr in _WISHES:
            return _WISHES[attr].format(name)
        case ast.UnaryOp(op=ast.Not(), operand=ast.Attribute(value=ast.Name(id=name), attr=attr)) if attr in _OPPOSITES:
            return _OPPOSITES[attr].format(name)
        case _:
            return f"make `{spelled(part)}` true"


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
