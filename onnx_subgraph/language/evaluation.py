"""The value of a sentence: the syntax tree interpreted, nothing run by Python.

Logic has three values: a fact that is not known makes a sentence unknown unless the rest decides it. Arithmetic is bounded, so
that no sentence fills the memory.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from onnx_subgraph.language.axis import Axis, AxisSet, same_axes
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.vocabulary import ARITHMETIC, CONSTANTS, DTYPES, FUNCTIONS, MAX_INTEGER, RELATIVE_TOLERANCE

Names = Callable[[str], object]
"""Gives what a name stands for: a number, string, tuple, an object with the `FACTS` as attributes, or None where it is absent."""

_NUMBERS_AND_TEXT = frozenset({bool, int, float, str})
_MAX_ITEMS = 4096
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@lru_cache(maxsize=4096)
def _words(node: ast.AST) -> str:
    """A part of a sentence in its words; sentences are few and asked often."""
    return ast.unparse(node)


@dataclass(frozen=True, slots=True)
class _Written:
    """The facts of a number or a list that no value of the graph holds: an attribute, a named axis, what `let` derived."""

    value: Any
    is_constant: ClassVar[bool] = True
    is_output: ClassVar[bool] = False
    is_doubled: ClassVar[bool] = False
    is_paired: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, ...] | None:
        """A list has one dimension; text has none that is known."""
        if isinstance(self.value, str):
            return None
        return (len(self.value),) if isinstance(self.value, tuple) else ()

    @property
    def rank(self) -> int | None:
        """0 of a number, 1 of a list."""
        return None if self.shape is None else len(self.shape)

    @property
    def is_scalar(self) -> bool | None:
        """Whether it is one number."""
        return None if self.shape is None else all(d == 1 for d in self.shape)


class UnknownFact(Exception):  # noqa: N818  (an answer, not a mistake)
    """A sentence hangs on a fact that is not known: "the rank of x is not known". The text is for people."""


def evaluate(expression: Expression | ast.expr, names: Names) -> object:
    """The value of `expression`: bool, int, float, str, None, a dimension, or nested tuples of them.

    Symbolic dimensions are compared by `==`, then by their text; two that differ may still be equal, which is unknown.
    Raises UnknownFact where the sentence hangs on what is not known.
    """
    tree = expression.tree if isinstance(expression, Expression) else expression
    return _Evaluation(names).value(tree)


def definition(expression: Expression, names: Names) -> object:
    """The value that `let` gives a name: as `evaluate`, and a constant of the graph stands for its value."""
    value = evaluate(expression, names)
    if value is None or _is_plain(value) or not hasattr(value, "is_constant"):
        return value
    return _Evaluation(names).plain(expression.tree)


class _Evaluation:
    def __init__(self, names: Names) -> None:
        self.names = names

    def value(self, node: ast.expr) -> Any:
        kind = _KINDS.get(type(node))
        if kind is None:
            raise UnknownFact(f"`{_words(node)}` can't be computed")
        return kind(self, node)

    def constant(self, node: ast.Constant) -> Any:
        return node.value

    def named(self, node: ast.Name) -> Any:
        return self.name(node.id)

    def attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.value, ast.Name):
            return self.fact(node.value.id, node.attr)
        fact = getattr(self.value(node.value), node.attr, None)
        if fact is None:
            raise UnknownFact(f"`{_words(node)}` is absent or not known")
        return _as_plain(fact, _words(node))

    def sequence(self, node: ast.List | ast.Tuple) -> Any:
        return tuple(self.value(e) for e in node.elts)

    def bool_op(self, node: ast.BoolOp) -> bool:
        return self.logic(node.values, decided_by=isinstance(node.op, ast.Or))

    def unary_op(self, node: ast.UnaryOp) -> Any:
        return not self.truth(node.operand) if isinstance(node.op, ast.Not) else -self.number(node.operand)

    def bin_op(self, node: ast.BinOp) -> Any:
        return self.arithmetic(node, self.plain(node.left), node.op, self.plain(node.right))

    def if_exp(self, node: ast.IfExp) -> Any:
        return self.value(node.body if self.truth(node.test) else node.orelse)

    def name(self, name: str) -> Any:
        if name in CONSTANTS:
            return CONSTANTS[name]
        return name if name in DTYPES else self.names(name)

    def fact(self, name: str, attr: str) -> Any:
        thing = self.names(name)
        if thing is None:
            raise UnknownFact(f"`{name}` is absent")
        if _is_plain(thing):
            thing = _Written(_as_plain(thing, name))
        fact = getattr(thing, attr, None)
        if fact is None:
            if isinstance(thing, _Written):
                raise UnknownFact(f"`{name}` is no value of the graph and has no {attr}")
            raise UnknownFact(f"`{name}` is not a constant" if attr == "value" else f"the {attr} of `{name}` is not known")
        return _as_plain(fact, name)

    def plain(self, node: ast.expr) -> Any:
        """The value of `node`, where a constant stands for its value."""
        value = self.value(node)
        if type(value) in _NUMBERS_AND_TEXT:
            return value
        if value is None:
            raise UnknownFact(f"`{_words(node)}` is absent or not known")
        if not _is_plain(value) and hasattr(value, "is_constant"):
            return self.fact_of(value, _words(node))
        return _as_plain(value, _words(node))

    def fact_of(self, thing: Any, name: str) -> Any:
        if getattr(thing, "value", None) is None:
            raise UnknownFact(f"`{name}` is not a constant")
        return _as_plain(thing.value, name)

    def number(self, node: ast.expr) -> int | float:
        value = self.plain(node)
        if not isinstance(value, (int, float)):
            raise UnknownFact(f"`{_words(node)}` is not a known number")
        return value

    def truth(self, node: ast.expr) -> bool:
        value = self.plain(node)
        if not isinstance(value, (bool, int, float, str, tuple)):
            raise UnknownFact(f"`{_words(node)}` is not known")
        return bool(value)

    def logic(self, values: list[ast.expr], *, decided_by: bool) -> bool:
        unknown: UnknownFact | None = None
        for node in values:
            try:
                if self.truth(node) is decided_by:
                    return decided_by
            except UnknownFact as fact:
                unknown = unknown or fact
        if unknown is not None:
            raise unknown
        return not decided_by

    def comparison(self, node: ast.Compare) -> bool:
        """`a < b < c` as Python reads it; every part must hold."""
        left, unknown = node.left, None
        for op, right in zip(node.ops, node.comparators, strict=True):
            try:
                if not self.compare(left, op, right):
                    return False
            except UnknownFact as fact:
                unknown = unknown or fact
            left = right
        if unknown is not None:
            raise unknown
        return True

    def compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool:
        if isinstance(op, (ast.Is, ast.IsNot)):
            return (self.value(left) is None) is isinstance(op, ast.Is)
        a, b = self.plain(left), self.plain(right)
        words = f"{_words(left)} and {_words(right)}"
        if isinstance(op, (ast.Eq, ast.NotEq)):
            return _equal(a, b, words) is isinstance(op, ast.Eq)
        if isinstance(op, (ast.In, ast.NotIn)):
            return _within(a, b, words) is isinstance(op, ast.In)
        if not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
            raise UnknownFact(f"which of {words} is greater is not known")
        _check_ranks(words, (a, b))
        return _ORDER[type(op)](_beside(a, b), _beside(b, a))

    def arithmetic(self, node: ast.BinOp, a: Any, op: ast.operator, b: Any) -> Any:
        words = _words(node)
        if isinstance(a, tuple) and isinstance(b, tuple) and isinstance(op, ast.Add) and len(a) + len(b) <= _MAX_ITEMS:
            return a + b
        if not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
            raise UnknownFact(f"`{words}` is not a known number")
        _check_ranks(words, (a, b))
        try:
            if isinstance(op, ast.Pow) and (abs(b) > 64 or abs(a) > 2**64):
                a, b = float(a), float(b)  # floats overflow instead of filling the memory
            result = ARITHMETIC[type(op)](a, b)
        except (ArithmeticError, ValueError) as error:
            raise UnknownFact(f"`{words}` can't be computed: {error}") from None
        if not isinstance(result, (int, float)) or result != result or (isinstance(result, int) and abs(result) > MAX_INTEGER):
            raise UnknownFact(f"`{words}` is not a number within bounds")
        return result

    def subscript(self, node: ast.Subscript) -> Any:
        whole = self.plain(node.value)
        words = _words(node)
        if not isinstance(whole, tuple):
            raise UnknownFact(f"`{_words(node.value)}` has no parts")
        if isinstance(node.slice, ast.Slice):
            lower, upper, step = (
                None if n is None else self.index(n) for n in (node.slice.lower, node.slice.upper, node.slice.step)
            )
            if step == 0:
                raise UnknownFact(f"`{words}` has no step")
            return whole[lower:upper:step]
        try:
            part = whole[self.index(node.slice)]
        except IndexError:
            raise UnknownFact(f"`{words}` does not exist: there are {len(whole)}") from None
        if part is None:
            raise UnknownFact(f"`{words}` is not known")
        return part

    def index(self, node: ast.expr) -> int:
        value = self.plain(node)
        if not isinstance(value, int):
            raise UnknownFact(f"`{_words(node)}` is not a known index")
        return value

    def call(self, node: ast.Call) -> Any:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        values = [self.plain(a) for a in node.args]
        parts = list(_parts(values))
        if name != "len" and any(not isinstance(p, (bool, int, float)) for p in parts):
            raise UnknownFact(f"`{_words(node)}` is not a known number")
        if name != "len":
            _check_ranks(_words(node), parts)
        try:
            return FUNCTIONS[name](*values)
        except (TypeError, ValueError, ArithmeticError):
            raise UnknownFact(f"`{_words(node)}` can't be computed") from None


_KINDS: dict[type[ast.expr], Callable[[_Evaluation, Any], Any]] = {
    ast.Constant: _Evaluation.constant,
    ast.Name: _Evaluation.named,
    ast.Attribute: _Evaluation.attribute,
    ast.List: _Evaluation.sequence,
    ast.Tuple: _Evaluation.sequence,
    ast.BoolOp: _Evaluation.bool_op,
    ast.UnaryOp: _Evaluation.unary_op,
    ast.BinOp: _Evaluation.bin_op,
    ast.Compare: _Evaluation.comparison,
    ast.IfExp: _Evaluation.if_exp,
    ast.Subscript: _Evaluation.subscript,
    ast.Call: _Evaluation.call,
}


def _parts(values: list[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple):
            yield from value
        else:
            yield value


def _is_plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str, tuple, list)) or hasattr(value, "tolist")


def _as_plain(value: Any, name: str) -> Any:
    """Arrays and lists as tuples, array scalars as numbers; an array of one element is that number."""
    if type(value) in _NUMBERS_AND_TEXT:
        return value
    if hasattr(value, "tolist"):
        if getattr(value, "size", 1) > _MAX_ITEMS:
            raise UnknownFact(f"the value of `{name}` has more than {_MAX_ITEMS} elements")
        if getattr(value, "size", 0) == 1 and getattr(value, "ndim", 0) == 0:
            return value.item()
        value = value.tolist()
    if isinstance(value, AxisSet):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(_as_plain(v, name) for v in value)
    return value


def _check_ranks(words: str, values: Iterable[Any]) -> None:
    """Raises UnknownFact where a number is an axis of a value whose rank is not known: from the front or from the back?"""
    if any(isinstance(value, Axis) and value.rank is None for value in values):
        raise UnknownFact(f"the rank that the axes of `{words}` count in is not known")


def _beside(a: int | float, b: int | float) -> int | float:
    """An axis as it counts beside a number that is written out: from the front beside one that is not negative."""
    if isinstance(a, Axis) and a.rank is not None and not isinstance(b, Axis) and b >= 0:
        return a + a.rank
    return a


def _equal_axes(a: Any, b: Any, words: str) -> bool:
    same = same_axes(*((v if isinstance(v, tuple) else (v,)) for v in (a, b)))
    if same is None:
        raise UnknownFact(f"whether {words} are the same axes is not known: the rank that they count in is not")
    return same


def _equal(a: Any, b: Any, words: str) -> bool:
    if type(a) is type(b) is str:
        return bool(a == b)
    if (_are_axes(a) and _are_numbers(b)) or (_are_numbers(a) and _are_axes(b)):
        return _equal_axes(a, b, words)
    a, b = _beside_number(a, b), _beside_number(b, a)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and _all_equal(a, b, words)
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        if isinstance(a, float) or isinstance(b, float):
            return math.isclose(a, b, rel_tol=RELATIVE_TOLERANCE)
        return a == b
    known = (bool, int, float, str, tuple)
    if isinstance(a, known) and isinstance(b, known):
        return bool(a == b)
    if not isinstance(a, known) and not isinstance(b, known) and _is_same_dimension(a, b):
        return True
    raise UnknownFact(f"whether {words} are equal is not known")


def _beside_number(a: Any, b: Any) -> Any:
    """A list of one number beside a number is that number."""
    return a[0] if isinstance(a, tuple) and len(a) == 1 and isinstance(b, (int, float)) else a


def _all_equal(a: tuple[Any, ...], b: tuple[Any, ...], words: str) -> bool:
    unknown = None
    for one, other in zip(a, b, strict=True):
        try:
            if not _equal(one, other, words):
                return False
        except UnknownFact as fact:
            unknown = unknown or fact
    if unknown is not None:
        raise unknown
    return True


def _is_same_dimension(a: Any, b: Any) -> bool:
    """Symbolic dimensions: the same name is the same size, another name may be."""
    named = None not in (a, b) and None not in (getattr(a, "value", 0), getattr(b, "value", 0))
    return bool(named and (a == b or str(a) == str(b)))


def _are_axes(value: Any) -> bool:
    return isinstance(value, Axis) or (isinstance(value, tuple) and any(isinstance(v, Axis) for v in value))


def _are_numbers(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, tuple) and all(isinstance(v, int) for v in value))


def _within(a: Any, b: Any, words: str) -> bool:
    if isinstance(a, str) and isinstance(b, str):
        return a == b
    if not isinstance(b, tuple):
        raise UnknownFact(f"`{words}`: the second is not a list")
    unknown = None
    for item in b:
        try:
            if _equal(a, item, words):
                return True
        except UnknownFact as fact:
            unknown = unknown or fact
    if unknown is not None:
        raise unknown
    return False
