"""Evaluate sentences: each part of the syntax tree is compiled to a function once. Python never executes their text.

Logic has three values: an unknown fact makes a sentence unknown, unless the other parts decide it. Arithmetic is bounded, so that
a sentence cannot exhaust memory.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any, ClassVar

from onnx_subgraph.language.axis import AxisSet
from onnx_subgraph.language.comparison import (
    UnknownFact,
    UnknownSize,
    Words,
    beside,
    check_ranks,
    equal,
    every,
    missing,
    within,
    words_of,
)
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.vocabulary import ARITHMETIC, CONSTANTS, DTYPES, FUNCTIONS, MAX_INTEGER

Names = Callable[[str], object]
"""Name → what it stands for: a number, string, tuple, an object with the `FACTS` as attributes, or None where it is absent."""
Compute = Callable[[Names], Any]
"""Computes a part of a sentence, given its names. Raises UnknownFact."""

_NUMBERS_AND_TEXT = frozenset({bool, int, float, str})
_MAX_ITEMS = 4096
_OVER_ALL = frozenset({"min", "max", "sum", "prod", "all", "any"})
"""Functions of all elements of a constant, whatever its rank."""
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@dataclass(frozen=True, slots=True)
class _Written:
    """The facts of a number or list that is not a value of the graph: an attribute, a named axis, or a result of `let`."""

    value: Any
    is_constant: ClassVar[bool] = True
    is_output: ClassVar[bool] = False
    is_doubled: ClassVar[bool] = False
    is_paired: ClassVar[bool] = False
    is_binary: ClassVar[bool] = False
    is_causal: ClassVar[bool] = False
    is_dequantized: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, ...] | None:
        """A list has one dimension; the shape of text is unknown."""
        if isinstance(self.value, str):
            return None
        return (len(self.value),) if isinstance(self.value, tuple) else ()

    @property
    def rank(self) -> int | None:
        """0 for a number, 1 for a list."""
        return None if self.shape is None else len(self.shape)

    @property
    def is_scalar(self) -> bool | None:
        """Whether it has exactly one element."""
        return None if self.shape is None else all(d == 1 for d in self.shape)


def evaluate(expression: Expression | ast.expr, names: Names) -> object:
    """The value of `expression`: bool, int, float, str, None, a dimension, or nested tuples of them.

    Symbolic dimensions are compared by `==`, then by their text. Two that differ may still be equal, so the result is unknown.
    Raises UnknownFact where the sentence depends on an unknown fact.
    """
    return _value(expression.tree if isinstance(expression, Expression) else expression)(names)


def definition(expression: Expression, names: Names) -> object:
    """The value that `let` gives a name: as `evaluate`, with a constant of the graph replaced by its elements."""
    value = evaluate(expression, names)
    if value is None or _is_plain(value) or not hasattr(value, "is_constant"):
        return value
    return _plain(expression.tree)(names)


@lru_cache(maxsize=1 << 14)
def _value(node: ast.expr) -> Compute:
    """Compile a part of a sentence. Cached, because there are few sentences and many evaluations."""
    kind = _KINDS.get(type(node))
    return _unknown(f"`{words_of(node)}` can't be computed") if kind is None else kind(node)


def _unknown(text: str) -> Compute:
    def compute(names: Names) -> Any:
        raise UnknownFact(text)

    return compute


@lru_cache(maxsize=1 << 14)
def _plain(node: ast.expr) -> Compute:
    """Compile `node` to a plain value: a constant of the graph gives its elements."""
    value = _value(node)
    if _is_logical(node) or isinstance(node, ast.Attribute):
        return value
    if _is_literal(node):
        written = _as_plain(value(lambda name: None), node)
        return lambda names: written

    def compute(names: Names) -> Any:
        found = value(names)
        if type(found) in _NUMBERS_AND_TEXT:
            return found
        if found is None:
            raise UnknownFact(f"`{words_of(node)}` is absent or not known")
        if _is_plain(found) or not hasattr(found, "is_constant"):
            return _as_plain(found, node)
        if getattr(found, "value", None) is None:
            raise missing("value", words_of(node))
        return _as_plain(found.value, node)

    return compute


def _of_type(node: ast.expr, types: tuple[type, ...], what: str) -> Compute:
    """Compile `node` to a plain value of one of these types."""
    plain = _plain(node)

    def compute(names: Names) -> Any:
        value = plain(names)
        if not isinstance(value, types):
            raise UnknownFact(f"`{words_of(node)}` is not {what}")
        return value

    return compute


def _is_logical(node: ast.expr) -> bool:
    """Whether a part is a logical expression: its value is true, false or unknown."""
    return isinstance(node, (ast.BoolOp, ast.Compare)) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))


def _is_literal(node: ast.expr) -> bool:
    """Whether a part is a literal: a number, text, or a list of these."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return all(map(_is_literal, node.elts))
    if isinstance(node, ast.Name):
        return node.id in CONSTANTS or node.id in DTYPES
    return isinstance(node, ast.Constant) and node.value is not None


def _truth(node: ast.expr) -> Compute:
    return _value(node) if _is_logical(node) else _of_type(node, (bool, int, float, str, tuple), "known")


def _constant(node: ast.Constant) -> Compute:
    value = node.value
    return lambda names: value


def _named(node: ast.Name) -> Compute:
    name = node.id
    if name in CONSTANTS or name in DTYPES:
        word = CONSTANTS.get(name, name)
        return lambda names: word
    return lambda names: names(name)


def _attribute(node: ast.Attribute) -> Compute:
    attr = node.attr
    if isinstance(node.value, ast.Name):
        name = node.value
        return lambda names: _fact(names(name.id), name, attr)
    whole = _value(node.value)

    def compute(names: Names) -> Any:
        fact = getattr(whole(names), attr, None)
        if fact is None:
            raise UnknownFact(f"`{words_of(node)}` is absent or not known")
        return _as_plain(fact, node)

    return compute


def _fact(thing: Any, name: ast.Name, attr: str) -> Any:
    if thing is None:
        raise UnknownFact(f"`{name.id}` is absent")
    if _is_plain(thing):
        thing = _Written(_as_plain(thing, name))
    fact = getattr(thing, attr, None)
    if fact is None:
        if isinstance(thing, _Written):
            raise UnknownFact(f"`{name.id}` is no value of the graph and has no {attr}")
        raise missing(attr, name.id)
    return _as_plain(fact, name)


def _sequence(node: ast.List | ast.Tuple) -> Compute:
    parts = [_value(e) for e in node.elts]
    return lambda names: tuple([part(names) for part in parts])


def _logic(node: ast.BoolOp) -> Compute:
    """`or` is false only if all parts are; `and` is true only if all parts are."""
    parts, is_or = [_truth(v) for v in node.values], isinstance(node.op, ast.Or)

    def compute(names: Names) -> bool:
        unknown = None
        for part in parts:
            try:
                if bool(part(names)) is is_or:
                    return is_or
            except UnknownFact as fact:
                unknown = unknown or fact
        if unknown is not None:
            raise unknown
        return not is_or

    return compute


def _unary_op(node: ast.UnaryOp) -> Compute:
    if isinstance(node.op, ast.Not):
        truth = _truth(node.operand)
        return lambda names: not truth(names)
    number = _of_type(node.operand, (int, float), "a known number")
    return lambda names: -number(names)


def _if_exp(node: ast.IfExp) -> Compute:
    test, then, otherwise = _truth(node.test), _value(node.body), _value(node.orelse)
    return lambda names: then(names) if test(names) else otherwise(names)


def _comparison(node: ast.Compare) -> Compute:
    """A chained comparison `a < b < c`; every link must hold."""
    lefts = (node.left, *node.comparators)
    parts = [_compare(left, op, right) for left, op, right in zip(lefts, node.ops, node.comparators, strict=False)]
    return parts[0] if len(parts) == 1 else lambda names: every(partial(part, names) for part in parts)


def _compare(left: ast.expr, op: ast.cmpop, right: ast.expr) -> Compute:
    if isinstance(op, (ast.Is, ast.IsNot)):
        value, absent = _value(left), isinstance(op, ast.Is)
        return lambda names: (value(names) is None) is absent
    one, other, words = _plain(left), _plain(right), Words(left, right)
    if isinstance(op, (ast.Eq, ast.NotEq)):
        wanted = isinstance(op, ast.Eq)
        return lambda names: equal(one(names), other(names), words) is wanted
    if isinstance(op, (ast.In, ast.NotIn)):
        wanted = isinstance(op, ast.In)
        return lambda names: within(one(names), other(names), words) is wanted
    order = _ORDER[type(op)]

    def compute(names: Names) -> bool:
        a, b = one(names), other(names)
        if not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
            raise UnknownSize(f"which of {words} is greater is not known")
        check_ranks(words, (a, b))
        return order(beside(a, b), beside(b, a))

    return compute


def _bin_op(node: ast.BinOp) -> Compute:
    left, right = _plain(node.left), _plain(node.right)
    return lambda names: _arithmetic(node, left(names), node.op, right(names))


def _no_number(node: ast.expr) -> UnknownFact:
    """The error for an operand that is not a known number: UnknownSize if it is computed from a shape."""
    text = f"`{words_of(node)}` is not a known number"
    of_sizes = any(isinstance(part, ast.Attribute) and part.attr == "shape" for part in ast.walk(node))
    return UnknownSize(text) if of_sizes else UnknownFact(text)


def _arithmetic(node: ast.BinOp, a: Any, op: ast.operator, b: Any) -> Any:
    if isinstance(a, tuple) and isinstance(b, tuple) and isinstance(op, ast.Add) and len(a) + len(b) <= _MAX_ITEMS:
        return a + b
    if not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
        raise _no_number(node)
    check_ranks(Words(node), (a, b))
    try:
        if isinstance(op, ast.Pow) and (abs(b) > 64 or abs(a) > 2**64):
            a, b = float(a), float(b)  # floats overflow instead of exhausting memory
        result = ARITHMETIC[type(op)](a, b)
    except (ArithmeticError, ValueError) as error:
        raise UnknownFact(f"`{words_of(node)}` can't be computed: {error}") from None
    if not isinstance(result, (int, float)) or result != result or (isinstance(result, int) and abs(result) > MAX_INTEGER):
        raise UnknownFact(f"`{words_of(node)}` is not a number within bounds")
    return result


def _subscript(node: ast.Subscript) -> Compute:
    whole, index = _plain(node.value), _slice(node.slice)

    def compute(names: Names) -> Any:
        items = whole(names)
        if not isinstance(items, tuple):
            raise UnknownFact(f"`{words_of(node.value)}` has no parts")
        try:
            part = items[index(names)]
        except IndexError:
            raise UnknownFact(f"`{words_of(node)}` does not exist: there are {len(items)}") from None
        except ValueError:
            raise UnknownFact(f"`{words_of(node)}` has no step") from None
        if part is None:
            raise UnknownSize(f"`{words_of(node)}` is not known")
        return part

    return compute


def _slice(node: ast.expr) -> Compute:
    if not isinstance(node, ast.Slice):
        return _of_type(node, (int,), "a known index")
    bounds = [None if n is None else _slice(n) for n in (node.lower, node.upper, node.step)]
    return lambda names: slice(*(None if bound is None else bound(names) for bound in bounds))


def _call(node: ast.Call) -> Compute:
    assert isinstance(node.func, ast.Name)
    name, arguments = node.func.id, [_plain(a) for a in node.args]
    if name == "known":
        return _known(*arguments)

    def compute(names: Names) -> Any:
        values = [argument(names) for argument in arguments]
        if name in _OVER_ALL:
            values = [tuple(_parts(value)) if len(values) == 1 or isinstance(value, tuple) else value for value in values]
        parts = list(_parts(values))
        if name != "len" and any(not isinstance(p, (bool, int, float)) for p in parts):
            raise _no_number(node)
        if name != "len":
            check_ranks(Words(node), parts)
        try:
            return FUNCTIONS[name](*values)
        except (TypeError, ValueError, ArithmeticError):
            raise UnknownFact(f"`{words_of(node)}` can't be computed") from None

    return compute


def _known(sentence: Compute) -> Compute:
    """Whether a sentence is true, and not false or unknown."""

    def compute(names: Names) -> bool:
        try:
            return bool(sentence(names))
        except UnknownFact:
            return False

    return compute


_KINDS: dict[type[ast.expr], Callable[[Any], Compute]] = {
    ast.Constant: _constant,
    ast.Name: _named,
    ast.Attribute: _attribute,
    ast.List: _sequence,
    ast.Tuple: _sequence,
    ast.BoolOp: _logic,
    ast.UnaryOp: _unary_op,
    ast.BinOp: _bin_op,
    ast.Compare: _comparison,
    ast.IfExp: _if_exp,
    ast.Subscript: _subscript,
    ast.Call: _call,
}


def _parts(value: Any) -> Iterator[Any]:
    """All elements of nested lists, flattened."""
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _parts(part)
    else:
        yield value


def _is_plain(value: Any) -> bool:
    kind: type = type(value)
    return _is_plain_type(kind)


@cache
def _is_plain_type(kind: type) -> bool:
    return issubclass(kind, (int, float, str, tuple, list)) or hasattr(kind, "tolist")


def _as_plain(value: Any, node: ast.expr) -> Any:
    """Arrays and lists as tuples, array scalars as numbers; an array of one element as that number."""
    kind: type = type(value)
    if kind in _NUMBERS_AND_TEXT or not _is_plain_type(kind):
        return value
    if kind is tuple and _NUMBERS_AND_TEXT.issuperset(map(type, value)):  # the common case: most shapes
        return value
    if hasattr(value, "tolist"):
        if getattr(value, "size", 1) > _MAX_ITEMS:
            raise UnknownFact(f"the value of `{words_of(node)}` has more than {_MAX_ITEMS} elements")
        if getattr(value, "size", 0) == 1 and getattr(value, "ndim", 0) == 0:
            return value.item()
        value = value.tolist()
    if isinstance(value, AxisSet):
        return value
    if isinstance(value, (list, tuple)):
        return tuple([_as_plain(v, node) for v in value])
    return value
