"""Read the sentences of `where` and `let`: Python expressions over a closed vocabulary, checked when the pattern is read.

`read_sentence` and `read_definitions` give syntax trees that use only the vocabulary; `evaluate` computes their value.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from onnx_subgraph.errors import PatternError, Span
from onnx_subgraph.language import spelling
from onnx_subgraph.language.comparison import UnknownFact, UnknownSize
from onnx_subgraph.language.evaluation import Names, definition, evaluate
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.grammar import Code, inside, parse_block, parse_expression, walk_tree
from onnx_subgraph.language.mistyped import check_condition, check_value
from onnx_subgraph.language.source import Data
from onnx_subgraph.language.vocabulary import ARITHMETIC, FACTS, FUNCTIONS, MAX_INTEGER, is_word

__all__ = [
    "Names",
    "UnknownFact",
    "UnknownSize",
    "asks_presence",
    "definition",
    "evaluate",
    "free_names",
    "place_in",
    "place_of",
    "read_conjuncts",
    "read_definitions",
    "read_sentence",
    "sentence_in",
    "valued_names",
]


CheckFact = Callable[[ast.Attribute, Code], None]
"""Raises PatternError where `x.fact` asks for an unknown fact."""


def read_sentence(data: Data, what: str = "where", check_fact: CheckFact | None = None) -> Expression:
    """Read one sentence. Raises PatternError, with the place, for a word outside the vocabulary.

    check_fact: checks which facts a name has; by default the facts of a value.
    """
    code, tree = parse_expression(data, what)
    _check(tree, code, check_fact or _check_fact)
    check_condition(tree, code)
    return Expression(code.words(tree), tree, code.span(tree))


def sentence_in(tree: ast.expr, code: Code) -> Expression:
    """A sentence that is a part of other source text. Raises PatternError, with the place."""
    _check(tree, code, _check_fact)
    check_condition(tree, code)
    return Expression(code.words(tree), tree, code.span(tree))


def read_conjuncts(data: Data, what: str, check_fact: CheckFact) -> tuple[Expression, ...]:
    """Read a sentence and split it at `and`, each part with its place. Raises PatternError, with the place."""
    code, tree = parse_expression(data, what)
    _check(tree, code, check_fact)
    check_condition(tree, code)
    parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
    return tuple(Expression(code.words(part), part, code.span(part)) for part in parts)


def read_definitions(data: Data, what: str = "let") -> tuple[tuple[str, Expression], ...]:
    """Read the lines `name = expression` of `let`, in order. Raises PatternError, with the place."""
    code, statements = parse_block(data, what)
    found: dict[str, Expression] = {}
    for statement in statements:
        if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name)):
            raise PatternError("not an assignment", span=code.span(statement), hint="a line of `let` is `name = expression`")
        target = statement.targets[0]
        if target.id in found:
            raise PatternError(f"`{target.id}` is assigned twice", span=code.span(target), hint="give the second its own name")
        if is_word(target.id) or not (target.id[0].islower()):
            raise PatternError(
                f"`{target.id}` can't name a number", span=code.span(target), hint="a name is lower-case and not a word"
            )
        _check(statement.value, code, _check_fact)
        check_value(statement.value, code)
        found[target.id] = Expression(code.words(statement.value), statement.value, code.span(statement.value))
    return tuple(found.items())


@lru_cache(maxsize=4096)
def asks_presence(expression: Expression | ast.expr) -> bool:
    """Whether a sentence, or a part of one, depends only on which optional parts are present.

    If such a sentence is false, another form of the pattern applies.
    """
    tree = expression.tree if isinstance(expression, Expression) else expression
    asked = [n.left for n in ast.walk(tree) if isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.Is | ast.IsNot)]
    return all(any(n is name for name in asked) for n in ast.walk(tree) if isinstance(n, ast.Name))


@lru_cache(maxsize=4096)
def free_names(expression: Expression | ast.expr) -> tuple[str, ...]:
    """The names in `expression` that are not words of the vocabulary, without repetition, in the order written."""
    tree = expression.tree if isinstance(expression, Expression) else expression
    names = (n for n in walk_tree(tree) if isinstance(n, ast.Name) and not is_word(n.id))
    return tuple(dict.fromkeys(n.id for n in sorted(names, key=lambda n: (n.lineno, n.col_offset))))


def place_of(expression: Expression, name: str) -> Span | None:
    """The place where `name` first occurs in the expression, for errors."""
    tree = expression.tree
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name and n.lineno == tree.lineno]
    return place_in(expression, min(found, key=lambda n: n.col_offset)) if found else expression.span


def place_in(expression: Expression, part: ast.expr) -> Span | None:
    """The place of a part of the expression, for errors. For a part on another line, the place of the whole."""
    span, tree = expression.span, expression.tree
    if span is None or part.lineno != tree.lineno or part.end_lineno != tree.lineno:
        return span
    text = expression.text.encode()
    before, until = (
        len(text[: max(0, (offset or 0) - tree.col_offset)].decode(errors="ignore"))
        for offset in (part.col_offset, part.end_col_offset)
    )
    return replace(span, column=span.column + before, length=until - before)


@lru_cache(maxsize=4096)
def valued_names(expression: Expression | ast.expr) -> frozenset[str]:
    """The names whose value the expression computes with: `x` in `x.value` and in `x + 1`, not in `x.rank` or `x is None`."""
    tree = expression.tree if isinstance(expression, Expression) else expression
    asked = {
        id(n.value)
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.attr != "value"
    } | {id(n.left) for n in ast.walk(tree) if isinstance(n, ast.Compare) and isinstance(n.ops[0], (ast.Is, ast.IsNot))}
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in asked and not is_word(n.id))


def _check_fact(node: ast.Attribute, code: Code) -> None:
    if node.attr not in FACTS:
        hint = spelling.hint(node.attr, FACTS)
        raise PatternError(f"`.{node.attr}` is not a fact about a value", span=code.span(node), hint=hint)
    if not isinstance(node.value, ast.Name):
        raise PatternError("a fact is asked of a name", span=code.span(node), hint=f"write `x.{node.attr}`")


def _check(node: ast.expr, code: Code, check_fact: CheckFact) -> None:
    """Raise PatternError, with the place, for anything outside the vocabulary."""
    problem = _problem(node, code)
    if problem is not None:
        raise PatternError(problem[0], span=code.span(node), hint=problem[1])
    if isinstance(node, ast.Attribute):
        check_fact(node, code)
    for child in inside(node):
        if isinstance(child, ast.expr) and not (isinstance(node, ast.Call) and child is node.func):
            _check(child, code, check_fact)


Problem = tuple[str, str | None]
"""The mistake, and what to write instead."""


def _problem(node: ast.expr, code: Code) -> Problem | None:
    """Why a node of the tree, apart from its children, is outside the vocabulary; None where it is allowed."""
    match node:
        case ast.Constant(value=value) if value is None or isinstance(value, (bool, int, float, str)):
            too_large = isinstance(value, (int, float)) and abs(value) > MAX_INTEGER and value != math.inf
            return ("the number is too large", None) if too_large else None
        case ast.Name(id=name):
            return (f"`{name}` is a function", f"write `{name}(…)`") if name in FUNCTIONS else None
        case ast.Call():
            return _problem_of_call(node, code)
        case ast.BinOp(op=op) if type(op) not in ARITHMETIC:
            return "not an operator of the language", "the operators are + - * / // % **"
        case ast.UnaryOp(op=op) if not isinstance(op, (ast.Not, ast.USub)):
            return "not an operator of the language", "the unary operators are `-` and `not`"
        case ast.Compare(ops=ops, comparators=comparators):
            return _problem_of_comparison(ops, comparators)
        case ast.Attribute() | ast.BinOp() | ast.UnaryOp() | ast.BoolOp() | ast.List() | ast.Tuple() | ast.IfExp():
            return None
        case ast.Subscript() | ast.Slice():
            return None
        case _:
            hint = "a sentence has names, numbers, facts such as `x.rank`, comparisons, `and or not in`, arithmetic"
            return f"`{code.words(node)}` is not in the vocabulary", hint


def _problem_of_call(node: ast.Call, code: Code) -> Problem | None:
    func, args = node.func, node.args
    if not isinstance(func, ast.Name) or func.id not in FUNCTIONS:
        name = code.words(func)
        return f"`{name}` is not a function of the language", spelling.hint(name, FUNCTIONS)
    if node.keywords or not args or any(isinstance(a, ast.Starred) for a in args):
        return f"`{func.id}` takes plain arguments", f"write `{func.id}(x)`"
    if func.id not in ("min", "max") and len(args) != 1:
        return f"`{func.id}` takes one argument", f"write `{func.id}(x)`"
    return None


def _problem_of_comparison(ops: Sequence[ast.cmpop], comparators: Sequence[ast.expr]) -> Problem | None:
    for comparison, other in zip(ops, comparators, strict=True):
        is_none = isinstance(other, ast.Constant) and other.value is None
        if is_none != isinstance(comparison, (ast.Is, ast.IsNot)):
            return "`is` asks whether a name is absent", "write `x is None`; values are compared by `==`"
    return None
