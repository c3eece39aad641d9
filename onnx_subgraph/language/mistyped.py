"""Refuse sentences whose answer does not depend on the model, because of their types: `x.rank == "2"` is never true.

The type of a part is a number, text, a list, a condition, or not known: what attributes, `.value` and names of `let` are is
seen only in a match.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from enum import Enum

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language.grammar import Code
from onnx_subgraph.language.vocabulary import CONSTANTS, DTYPES


class Type(Enum):
    """The type of a part of a sentence, in words."""

    NUMBER = "a number"
    TEXT = "text"
    LIST = "a list"
    CONDITION = "true or false"


_FACTS = {
    "dtype": Type.TEXT,
    "shape": Type.LIST,
    "rank": Type.NUMBER,
    **dict.fromkeys(("is_constant", "is_scalar", "is_output", "is_doubled", "is_paired"), Type.CONDITION),
    **dict.fromkeys(("is_binary", "is_causal", "is_dequantized"), Type.CONDITION),
    "lower_bound": Type.NUMBER,
}
_CONDITIONS = ("all", "any", "known")
"""Functions whose result is true or false."""
_ELEMENT_TYPES = "the element types are written by name, `float32`"


def check_condition(node: ast.expr, code: Code) -> None:
    """Raise PatternError, with the place, where a sentence of the vocabulary is no condition, or a part of it is mistyped."""
    _Checker(code).condition(node)


def check_value(node: ast.expr, code: Code) -> None:
    """Raise PatternError, with the place, where a part of an expression of the vocabulary is mistyped."""
    _Checker(code).type_of(node)


class _Checker:
    """Checks the parts of a sentence in source text. Every method raises PatternError, with the place."""

    def __init__(self, code: Code) -> None:
        self.code = code

    def condition(self, node: ast.expr) -> None:
        """Check a part that is true or false."""
        found, words = self.type_of(node), self.code.words(node)
        if found is Type.NUMBER:
            raise self.error(node, f"`{words}` is a number, and no condition", f"write `{words} != 0`")
        if found is Type.LIST:
            raise self.error(node, f"`{words}` is a list, and no condition", f"write `len({words}) > 0`")
        if found is Type.TEXT:
            raise self.error(node, f"`{words}` is text, and no condition", 'write `x.dtype == float32`, or `mode == "linear"`')

    def type_of(self, node: ast.expr) -> Type | None:
        """The type of a part, which is checked; None where a match decides it."""
        match node:
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                for part in parts:
                    self.type_of(part)
                return Type.LIST
            case ast.BoolOp() | ast.UnaryOp():
                return self.operation(node)
            case ast.BinOp():
                return self.arithmetic(node)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                for one, op, other in zip((left, *comparators), ops, comparators, strict=False):
                    self.comparison(one, op, other)
                return Type.CONDITION
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.condition(test)
                then, otherwise = self.type_of(body), self.type_of(orelse)
                return then if then is otherwise else None
            case ast.Subscript(value=value, slice=index):
                return self.part(value, index)
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self.call(name, arguments)
        return _of_leaf(node)

    def operation(self, node: ast.BoolOp | ast.UnaryOp) -> Type:
        """Check `and`, `or`, `not`, or a minus."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self.number(node.operand)
        for part in node.values if isinstance(node, ast.BoolOp) else [node.operand]:
            self.condition(part)
        return Type.CONDITION

    def number(self, node: ast.expr) -> Type:
        """Check a part that must be a number."""
        found = self.type_of(node)
        if found in (Type.TEXT, Type.LIST):
            is_shape = isinstance(node, ast.Attribute) and found is Type.LIST
            hint = f"write a part of it, `{self.code.words(node)}[0]`" if is_shape else None
            raise self.error(node, f"`{self.code.words(node)}` is {found.value}, and no number", hint)
        return Type.NUMBER

    def arithmetic(self, node: ast.BinOp) -> Type | None:
        """Check a sum, a product or another computation. Lists can be added."""
        left, right = self.type_of(node.left), self.type_of(node.right)
        if isinstance(node.op, ast.Add) and Type.LIST in (left, right):
            if {left, right} <= {Type.LIST, None}:
                return Type.LIST
        elif isinstance(node.op, ast.Add) and {left, right} == {None}:
            return None
        divides = isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod)
        if divides and isinstance(node.right, ast.Constant) and not node.right.value:
            raise self.error(node.right, "a division by 0 has no result", None)
        self.number(node.left)
        return self.number(node.right)

    def comparison(self, one: ast.expr, op: ast.cmpop, other: ast.expr) -> None:
        """Check a comparison of two parts."""
        if isinstance(op, ast.Is | ast.IsNot):
            self.type_of(one)
        elif isinstance(op, ast.Eq | ast.NotEq):
            self.same(one, other)
        elif isinstance(op, ast.In | ast.NotIn):
            self.contained(one, other)
        else:
            self.number(one)
            self.number(other)

    def contained(self, one: ast.expr, other: ast.expr) -> None:
        """Check `one in other`: a list, or for text another text, which it must equal."""
        left, right, words = self.type_of(one), self.type_of(other), self.code.words(other)
        if right in (Type.NUMBER, Type.CONDITION) or (right is Type.TEXT and left not in (Type.TEXT, None)):
            raise self.error(other, f"`{words}` is {right.value}, and no list", f"write `[{words}]`")
        if isinstance(other, ast.List | ast.Tuple):
            for part in other.elts:
                self.same(one, part)

    def same(self, one: ast.expr, other: ast.expr) -> None:
        """Check that two parts may be equal. A list of one number equals this number."""
        left, right = self.type_of(one), self.type_of(other)
        if left is None or right is None or left is right or Type.TEXT not in (left, right):
            return
        hint = _ELEMENT_TYPES if any(isinstance(part, ast.Attribute) and part.attr == "dtype" for part in (one, other)) else None
        texts = f"`{self.code.words(one)}` is {left.value}, and `{self.code.words(other)}` is {right.value}"
        raise self.error(other, f"{texts}: they are never equal", hint)

    def part(self, value: ast.expr, index: ast.expr) -> Type | None:
        """Check a part of a list, such as `x.shape[-1]`. The parts of a shape are numbers."""
        found, words = self.type_of(value), self.code.words(value)
        if found in (Type.NUMBER, Type.CONDITION):
            raise self.error(value, f"`{words}` is {found.value}, and has no parts", None)
        bounds = [index.lower, index.upper, index.step] if isinstance(index, ast.Slice) else [index]
        for bound in bounds:
            if bound is not None:
                self.number(bound)
            if isinstance(bound, ast.Constant) and isinstance(bound.value, float):
                raise self.error(bound, f"`{bound.value}` is no place in a list", "places are whole numbers from 0")
        if isinstance(index, ast.Slice):
            return Type.LIST
        return Type.NUMBER if isinstance(value, ast.Attribute) and value.attr == "shape" else None

    def call(self, name: str, arguments: Sequence[ast.expr]) -> Type | None:
        """Check a call of a function. The least and greatest of lists are numbers, too."""
        for argument in arguments:
            found, words = self.type_of(argument), self.code.words(argument)
            if name in ("abs", "sqrt"):
                self.number(argument)
            elif name == "len" and found in (Type.NUMBER, Type.CONDITION):
                raise self.error(argument, f"`{words}` is {found.value}, and has no length", None)
            elif name not in ("len", "known") and found is Type.TEXT:
                raise self.error(argument, f"`{words}` is text, and `{name}` is of numbers", None)
        return Type.CONDITION if name in _CONDITIONS else Type.NUMBER

    def error(self, node: ast.expr, problem: str, hint: str | None) -> PatternError:
        """A mistake at a part of the sentence."""
        return PatternError(problem, span=self.code.span(node), hint=hint)


def _of_leaf(node: ast.expr) -> Type | None:
    """The type of a fact, a name, or a literal."""
    match node:
        case ast.Attribute(attr=fact):
            return _FACTS.get(fact)
        case ast.Name(id=name):
            return Type.TEXT if name in DTYPES else Type.NUMBER if name in CONSTANTS else None
        case ast.Constant(value=bool()):
            return Type.CONDITION
        case ast.Constant(value=int() | float()):
            return Type.NUMBER
        case ast.Constant(value=str()):
            return Type.TEXT
    return None
