"""The sentences of `where` and `let`: Python expressions over a closed vocabulary, checked when the pattern is read.

`evaluate` interprets the syntax tree; nothing is ever run by Python. Logic has three values: a fact that is not known makes
a sentence unknown unless the rest decides it, and arithmetic is bounded.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language import spelling
from onnx_subgraph.language.grammar import Code, parse_block, parse_expression
from onnx_subgraph.language.pattern import Expression
from onnx_subgraph.language.source import Data

FACTS = ("dtype", "shape", "rank", "is_constant", "is_scalar", "value")
"""What can be asked of a value: `x.rank`."""
DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "bool", "string"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64)),
)
"""The element types, which stand for themselves: `x.dtype in [float32, float16]`."""
CONSTANTS = {"pi": math.pi, "inf": math.inf}
RELATIVE_TOLERANCE = 2e-5
"""Floats compare equal within this, as constants do in a term: an epsilon stored as float32 is not the 1e-5 that was meant."""

_MAX_ITEMS = 4096
_MAX_INTEGER = 2**256
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len,
    "min": min,
    "max": max,
    "abs": abs,
    "sum": sum,
    "prod": math.prod,
    "sqrt": math.sqrt,
    "all": all,
    "any": any,
}
FUNCTIONS = tuple(_FUNCTIONS)

Names = Callable[[str], object]
"""Gives what a name stands for: a number, string, tuple, an object with the `FACTS` as attributes, or None where it is absent."""


class UnknownFact(Exception):  # noqa: N818  (an answer, not a mistake)
    """A sentence hangs on a fact that is not known: "the rank of x is not known". The text is for people."""


# Reading


def read_sentence(data: Data, what: str = "where") -> Expression:
    """One sentence. Raises PatternError, with the place, for a word outside the vocabulary."""
    code, tree = parse_expression(data, what)
    _check(tree, code)
    return Expression(code.words(tree), tree, code.span(tree))


def read_definitions(data: Data, what: str = "let") -> tuple[tuple[str, Expression], ...]:
    """The lines `name = expression` of `let`, in order. Raises PatternError, with the place."""
    code, statements = parse_block(data, what)
    found: dict[str, Expression] = {}
    for statement in statements:
        if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name)):
            raise PatternError("not an assignment", span=code.span(statement), hint="a line of `let` is `name = expression`")
        target = statement.targets[0]
        if target.id in found:
            raise PatternError(f"`{target.id}` is assigned twice", span=code.span(target), hint="give the second its own name")
        if _is_word(target.id) or not (target.id[0].islower()):
            raise PatternError(
                f"`{target.id}` can't name a number", span=code.span(target), hint="a name is lower-case and not a word"
            )
        _check(statement.value, code)
        found[target.id] = Expression(code.words(statement.value), statement.value, code.span(target))
    return tuple(found.items())


def free_names(expression: Expression | ast.expr) -> tuple[str, ...]:
    """The names in `expression` that are not words of the vocabulary, each once, in the order written."""
    tree = expression.tree if isinstance(expression, Expression) else expression
    names = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and not _is_word(n.id))
    return tuple(dict.fromkeys(n.id for n in sorted(names, key=lambda n: (n.lineno, n.col_offset))))


def valued_names(expression: Expression | ast.expr) -> frozenset[str]:
    """The names whose value the expression computes with: `x` in `x.value` and in `x + 1`, not in `x.rank` or `x is None`."""
    tree = expression.tree if isinstance(expression, Expression) else expression
    asked = {
        id(n.value)
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.attr != "value"
    } | {id(n.left) for n in ast.walk(tree) if isinstance(n, ast.Compare) and isinstance(n.ops[0], (ast.Is, ast.IsNot))}
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in asked and not _is_word(n.id))


def _is_word(name: str) -> bool:
    return name in DTYPES or name in CONSTANTS or name in _FUNCTIONS


def _check(node: ast.expr, code: Code) -> None:
    def wrong(message: str, hint: str | None = None) -> PatternError:
        return PatternError(message, span=code.span(node), hint=hint)

    match node:
        case ast.Constant(value=value) if value is None or isinstance(value, (bool, int, float, str)):
            if isinstance(value, (int, float)) and abs(value) > _MAX_INTEGER and value != math.inf:
                raise wrong("the number is too large")
        case ast.Name(id=name):
            if name in _FUNCTIONS:
                raise wrong(f"`{name}` is a function", f"write `{name}(…)`")
        case ast.Attribute(value=value, attr=attr):
            if attr not in FACTS:
                raise wrong(f"`.{attr}` is not a fact about a value", spelling.hint(attr, FACTS))
            if not isinstance(value, ast.Name):
                raise wrong("a fact is asked of a name", f"write `x.{attr}`")
        case ast.Call(func=func, args=args, keywords=keywords):
            if not isinstance(func, ast.Name) or func.id not in _FUNCTIONS:
                name = code.words(func)
                raise wrong(f"`{name}` is not a function of the language", spelling.hint(name, _FUNCTIONS))
            if keywords or not args or any(isinstance(a, ast.Starred) for a in args):
                raise wrong(f"`{func.id}` takes plain arguments", f"write `{func.id}(x)`")
            if func.id not in ("min", "max") and len(args) != 1:
                raise wrong(f"`{func.id}` takes one argument", f"write `{func.id}(x)`")
        case ast.BinOp(op=op):
            if type(op) not in _ARITHMETIC:
                raise wrong("not an operator of the language", "the operators are + - * / // % **")
        case ast.UnaryOp(op=op):
            if not isinstance(op, (ast.Not, ast.USub)):
                raise wrong("not an operator of the language", "the unary operators are `-` and `not`")
        case ast.Compare(ops=ops, comparators=comparators):
            for comparison, other in zip(ops, comparators, strict=True):
                is_none = isinstance(other, ast.Constant) and other.value is None
                if is_none != isinstance(comparison, (ast.Is, ast.IsNot)):
                    raise wrong("`is` asks whether a name is absent", "write `x is None`; values are compared by `==`")
        case ast.BoolOp() | ast.List() | ast.Tuple() | ast.IfExp() | ast.Subscript() | ast.Slice():
            pass
        case _:
            hint = "a sentence has names, numbers, facts such as `x.rank`, comparisons, `and or not in`, arithmetic"
            raise wrong(f"`{code.words(node)}` is not in the vocabulary", hint)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and not (isinstance(node, ast.Call) and child is node.func):
            _check(child, code)


# Evaluating


def evaluate(expression: Expression | ast.expr, names: Names) -> object:
    """The value of `expression`: bool, int, float, str, None, a dimension, or nested tuples of them.

    Symbolic dimensions are compared by `==`, then by their text; two that differ may still be equal, which is unknown.
    Raises UnknownFact where the sentence hangs on what is not known.
    """
    tree = expression.tree if isinstance(expression, Expression) else expression
    return _Evaluation(names).value(tree)


class _Evaluation:
    def __init__(self, names: Names) -> None:
        self.names = names

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self.name(name)
            case ast.Attribute(value=ast.Name(id=name), attr=attr):
                return self.fact(name, attr)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return tuple(self.value(e) for e in elements)
            case ast.BoolOp(op=op, values=values):
                return self.logic(values, decided_by=isinstance(op, ast.Or))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.truth(operand)
            case ast.UnaryOp(operand=operand):
                return -self.number(operand)
            case ast.BinOp(left=left, op=op, right=right):
                return self.arithmetic(node, self.plain(left), op, self.plain(right))
            case ast.Compare():
                return self.comparison(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self.truth(test) else orelse)
            case ast.Subscript():
                return self.subscript(node)
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self.call(node, name, arguments)
            case _:
                raise UnknownFact(f"`{ast.unparse(node)}` can't be computed")

    def name(self, name: str) -> Any:
        if name in CONSTANTS:
            return CONSTANTS[name]
        return name if name in DTYPES else self.names(name)

    def fact(self, name: str, attr: str) -> Any:
        thing = self.names(name)
        if thing is None:
            raise UnknownFact(f"`{name}` is absent")
        if attr == "value" and _is_plain(thing):
            return _as_plain(thing, name)
        fact = getattr(thing, attr, None)
        if fact is None:
            raise UnknownFact(f"`{name}` is not a constant" if attr == "value" else f"the {attr} of `{name}` is not known")
        return _as_plain(fact, name)

    def plain(self, node: ast.expr) -> Any:
        """The value of `node`, where a constant stands for its value."""
        value = self.value(node)
        if value is None:
            raise UnknownFact(f"`{ast.unparse(node)}` is absent or not known")
        if not _is_plain(value) and hasattr(value, "is_constant"):
            return self.fact_of(value, ast.unparse(node))
        return _as_plain(value, ast.unparse(node))

    def fact_of(self, thing: Any, name: str) -> Any:
        if getattr(thing, "value", None) is None:
            raise UnknownFact(f"`{name}` is not a constant")
        return _as_plain(thing.value, name)

    def number(self, node: ast.expr) -> int | float:
        value = self.plain(node)
        if not isinstance(value, (int, float)):
            raise UnknownFact(f"`{ast.unparse(node)}` is not a known number")
        return value

    def truth(self, node: ast.expr) -> bool:
        value = self.plain(node)
        if not isinstance(value, (bool, int, float, str, tuple)):
            raise UnknownFact(f"`{ast.unparse(node)}` is not known")
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
        words = f"{ast.unparse(left)} and {ast.unparse(right)}"
        match op:
            case ast.Eq():
                return _equal(a, b, words)
            case ast.NotEq():
                return not _equal(a, b, words)
            case ast.In() | ast.NotIn():
                return _within(a, b, words) is isinstance(op, ast.In)
        if not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
            raise UnknownFact(f"which of {words} is greater is not known")
        return _ORDER[type(op)](a, b)

    def arithmetic(self, node: ast.BinOp, a: Any, op: ast.operator, b: Any) -> Any:
        words = ast.unparse(node)
        if isinstance(a, tuple) and isinstance(b, tuple) and isinstance(op, ast.Add) and len(a) + len(b) <= _MAX_ITEMS:
            return a + b
        if not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
            raise UnknownFact(f"`{words}` is not a known number")
        try:
            if isinstance(op, ast.Pow) and (abs(b) > 64 or abs(a) > 2**64):
                a, b = float(a), float(b)  # floats overflow instead of filling the memory
            result = _ARITHMETIC[type(op)](a, b)
        except (ArithmeticError, ValueError) as error:
            raise UnknownFact(f"`{words}` can't be computed: {error}") from None
        if not isinstance(result, (int, float)) or result != result or (isinstance(result, int) and abs(result) > _MAX_INTEGER):
            raise UnknownFact(f"`{words}` is not a number within bounds")
        return result

    def subscript(self, node: ast.Subscript) -> Any:
        whole = self.plain(node.value)
        words = ast.unparse(node)
        if not isinstance(whole, tuple):
            raise UnknownFact(f"`{ast.unparse(node.value)}` has no parts")
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
            raise UnknownFact(f"`{ast.unparse(node)}` is not a known index")
        return value

    def call(self, node: ast.Call, name: str, arguments: list[ast.expr]) -> Any:
        values = [self.plain(a) for a in arguments]
        parts = list(_parts(values))
        if name != "len" and any(not isinstance(p, (bool, int, float)) for p in parts):
            raise UnknownFact(f"`{ast.unparse(node)}` is not a known number")
        try:
            return _FUNCTIONS[name](*values)
        except (TypeError, ValueError, ArithmeticError):
            raise UnknownFact(f"`{ast.unparse(node)}` can't be computed") from None


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
    if hasattr(value, "tolist"):
        if getattr(value, "size", 1) > _MAX_ITEMS:
            raise UnknownFact(f"the value of `{name}` has more than {_MAX_ITEMS} elements")
        if getattr(value, "size", 0) == 1 and getattr(value, "ndim", 0) == 0:
            return value.item()
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return tuple(_as_plain(v, name) for v in value)
    return value


def _equal(a: Any, b: Any, words: str) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        if len(a) != len(b):
            return False
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
    if isinstance(a, tuple) and len(a) == 1 and isinstance(b, (int, float)):
        return _equal(a[0], b, words)
    if isinstance(b, tuple) and len(b) == 1 and isinstance(a, (int, float)):
        return _equal(a, b[0], words)
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        if isinstance(a, float) or isinstance(b, float):
            return math.isclose(a, b, rel_tol=RELATIVE_TOLERANCE)
        return a == b
    known = (bool, int, float, str, tuple)
    if isinstance(a, known) and isinstance(b, known):
        return bool(a == b)
    # Symbolic dimensions: the same name is the same size, another name may be.
    named = None not in (a, b) and None not in (getattr(a, "value", 0), getattr(b, "value", 0))
    if named and not isinstance(a, known) and not isinstance(b, known) and (a == b or str(a) == str(b)):
        return True
    raise UnknownFact(f"whether {words} are equal is not known")


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
