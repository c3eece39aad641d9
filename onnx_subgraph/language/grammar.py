"""Parse the blocks and sentences of a pattern with Python's grammar into an `ast`, which is never executed.

A syntax error becomes a PatternError at its place in the YAML file. `Code.span` gives the place of every node of the tree. Size
and nesting are bounded, so that no text can exhaust the parser.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from onnx_subgraph.errors import PatternError, Span
from onnx_subgraph.language.optional import Place, without_marks
from onnx_subgraph.language.source import Data, Scalar

MAX_CHARACTERS = 32 * 1024
MAX_NESTING = 100
"""Maximum nesting of brackets and operators; also bounds every recursion over terms."""
_STATEMENT = 4
"""Levels of a tree without a character of their own: the module, the statement, and the context of a name."""


class Code(NamedTuple):
    """A scalar with source text in Python's grammar, and its lines. marks: the places of each `?`, in a block of terms."""

    scalar: Scalar
    lines: tuple[str, ...]
    marks: frozenset[Place] = frozenset()

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> Span:
        """The place of `node` in the file, including a `?` directly after it. For a node of several lines, its first line."""
        line = self.lines[node.lineno - 1] if node.lineno <= len(self.lines) else ""
        start = _characters(line, node.col_offset)
        end = _characters(line, node.end_col_offset or 0) if node.end_lineno == node.lineno else len(line)
        end += (node.end_lineno, end) in self.marks
        return self.scalar.at(node.lineno, start + 1, end - start)

    def mark(self, node: ast.expr) -> Place:
        """The place directly after `node`, where its `?` would be."""
        line = node.end_lineno or node.lineno
        return line, _characters(self.lines[line - 1], node.end_col_offset or 0)

    def words(self, node: ast.expr) -> str:
        """The source text of `node`, on one line."""
        if node.end_lineno != node.lineno:
            return ast.unparse(node)
        line = self.lines[node.lineno - 1]
        return line[_characters(line, node.col_offset) : _characters(line, node.end_col_offset or 0)]


def parse_block(data: Data, what: str, *, marks: bool = False) -> tuple[Code, list[ast.stmt]]:
    """Parse a block of assignments. `what` names it in errors. marks: whether names may be followed by `?`.

    Raises PatternError.
    """
    code = _code(data, what, f"write `{what}: |` and below it, indented, one `name = …` a line")
    text = code.scalar.text
    if marks:
        text, places = without_marks(text)
        code = Code(code.scalar, code.lines, places)
    try:
        return code, _parse(code, text, "exec").body  # type: ignore[attr-defined]
    except SyntaxError as error:
        raise _as_pattern_error(error, code) from None


def parse_expression(data: Data, what: str) -> tuple[Code, ast.expr]:
    """Parse one expression. `what` names it in errors. Raises PatternError."""
    code = _code(
        data, what, "write one expression, such as `x.rank == 3`, in quotes if it holds a colon or begins with a bracket"
    )
    try:
        return code, _parse(code, code.scalar.text, "eval").body  # type: ignore[attr-defined]
    except SyntaxError as error:
        raise _as_pattern_error(error, code) from None


def _code(data: Data, what: str, hint: str) -> Code:
    if not isinstance(data, Scalar):
        raise PatternError(f"`{what}` is not text", span=data.span, hint=hint)
    if data.style == ">":
        raise PatternError(f"`{what}` is folded into one line by `>`", span=data.span, hint="write `|` for `>`")
    if not data.text.strip():
        raise PatternError(f"`{what}` is empty", span=data.span, hint=hint)
    if len(data.text) > MAX_CHARACTERS:
        raise PatternError(f"`{what}` is longer than {MAX_CHARACTERS // 1024} KB", span=data.span, hint="divide it into patterns")
    if not data.places and data.style == "":
        raise PatternError(
            f"`{what}` runs over several lines", span=data.span, hint=f"write `{what}: |` and its lines below, indented"
        )
    return Code(data, tuple(data.text.split("\n")))


def inside(node: ast.AST) -> Iterable[ast.AST]:
    """The nodes directly inside `node`; none inside a name or a number, whose context says nothing."""
    return () if isinstance(node, _ENDS) else ast.iter_child_nodes(node)


def walk_tree(tree: ast.AST) -> Iterator[ast.AST]:
    """`tree` and every node inside it, without contexts."""
    waiting = [tree]
    while waiting:
        yield (node := waiting.pop())
        waiting.extend(inside(node))


_ENDS = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
_FLATTER = "name parts of it, a line each: `t = …`"


def _parse(code: Code, text: str, mode: str) -> ast.AST:
    if "\f" in text or "\r" in text or "\0" in text:  # Python ends a line at these, YAML does not
        raise PatternError("a control character", span=code.scalar.span, hint="write plain text")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `(1)(x)` and "\d" are checked later
            tree = ast.parse(text, mode=mode)
    except (RecursionError, MemoryError):
        raise PatternError("nested too deeply", span=code.scalar.span, hint=_FLATTER) from None
    except ValueError as error:
        raise PatternError(f"cannot be read: {error}", span=code.scalar.span, hint="write plain text") from None
    deepest = _too_deep(tree, text)
    if deepest is not None:
        raise PatternError(f"nested more than {MAX_NESTING} levels deep", span=code.span(deepest), hint=_FLATTER)
    return tree


def _too_deep(tree: ast.AST, text: str) -> ast.expr | None:
    """The first node that is nested too deeply. Each level, except `_STATEMENT`, has at least one character of a statement."""
    lengths = [len(line) for line in text.split("\n")]
    parts = tree.body if isinstance(tree, ast.Module) else [tree.body] if isinstance(tree, ast.Expression) else []
    level: list[ast.AST] = [part for part in parts if sum(lengths[part.lineno - 1 : part.end_lineno]) + _STATEMENT >= MAX_NESTING]
    for _ in range(MAX_NESTING - 1):
        level = [child for node in level for child in inside(node)]
        if not level:
            return None
    return next((node for node in level if isinstance(node, ast.expr)), None)


def _as_pattern_error(error: SyntaxError, code: Code) -> PatternError:
    """A SyntaxError as a PatternError, with its place in the file."""
    line, column = error.lineno or 1, max(1, error.offset or 1)
    text = code.lines[line - 1] if line <= len(code.lines) else ""
    length = 1
    if error.end_lineno == line and error.end_offset and error.end_offset > column:
        length = error.end_offset - column
    message = (error.msg or "invalid syntax").partition(". ")[0]
    hint = None
    if isinstance(error, IndentationError):
        message = "a line is indented more or less than the first"
        hint = "begin every assignment in the same column; put a term that runs over several lines in parentheses"
        column = len(text) - len(text.lstrip()) + 1
    elif "?" in text and not code.marks:
        hint = "`?` is for `match`; a name that is absent is asked for with `x is None`"
    elif "^" in text:
        hint = "a power is written `**`"
    elif "==" in text and "assign" in message:
        hint = "an assignment is written with one `=`"
    elif "assign" in message:
        message = "only names stand on the left of `=`"
        hint = "an assignment is `name = term`, or `a, b = term` for several results"
    elif "EOF" in message or "never closed" in message:
        hint = "close the bracket"
    return PatternError(
        f"not a term: {message}", span=code.scalar.at(line, column, length), hint=hint or "write `y = Operator(x) + z`"
    )


def _characters(line: str, offset: int) -> int:
    """A column of `ast`, in UTF-8 bytes, as a column in characters."""
    return offset if line.isascii() else len(line.encode()[:offset].decode(errors="ignore"))
