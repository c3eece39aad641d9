"""Parse a block of a pattern into terms.

Reads `match` and `replace`: assignments in Python's grammar. A CamelCase call is an operator, a lower-case name a value. Only
arithmetic on literals is evaluated; `check` checks whether operators exist. Every error says what to write instead.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable
from functools import cached_property

from onnx_subgraph.errors import PatternError, Span
from onnx_subgraph.language import spelling
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.formula import Formula, Formulas, written_out
from onnx_subgraph.language.grammar import Code, parse_block, walk_tree
from onnx_subgraph.language.operands import typed
from onnx_subgraph.language.optional import USAGE, Place, check_optional
from onnx_subgraph.language.recipe import recipe_mistake
from onnx_subgraph.language.sentence import sentence_in
from onnx_subgraph.language.source import Data, Scalar
from onnx_subgraph.language.term import (
    Apply,
    Assignment,
    Block,
    Chain,
    Conditional,
    Either,
    Literal,
    Omitted,
    Operator,
    Rearrange,
    Static,
    Term,
    Variable,
    walk,
)
from onnx_subgraph.operators.schemas import operator_names

WORDS = ("rearrange", "repeat", "split")
"""The lower-case calls that are terms; the only other one is `sqrt` of a literal."""
CONSTANTS = {"pi": math.pi, "inf": math.inf}
"""The names of numbers."""
RESERVED = frozenset({*WORDS, *CONSTANTS, "sqrt", "repeat"})
"""The lower-case words that cannot be used as names."""

_BINARY = {ast.Add: ("+", False), ast.Sub: ("+", True), ast.Mult: ("*", False), ast.Div: ("*", True)}
_CALLED = {ast.MatMult: Operator("MatMul"), ast.Pow: Operator("Pow")}
_MAX_NUMBER = 2.0**1000


def read_block(data: Data, what: str, captures: frozenset[str] = frozenset(), formulas: Formulas | None = None) -> Block:
    """Parse the terms of a block, with formulas expanded.

    `what` names it in errors. captures: the captured operator names that a replacement may call. formulas: those of a `match`;
    None for a replacement. Raises PatternError, with the place.
    """
    code, statements = parse_block(data, what, marks=True)
    reader = _Reader(code, captures, formulas, statements)
    for statement in statements:
        reader.line(statement)
    if not reader.lines:
        raise PatternError(f"`{what}` is empty", span=data.span, hint="write `y = Operator(x)`")
    reader.check_marks()
    return Block(tuple(reader.lines), conditions=tuple(reader.conditions.items()))


def read_formula(data: Data, name: str, formulas: Formulas) -> tuple[tuple[Assignment, ...], tuple[Term, ...]]:
    """The lines of a formula, and its results from the last line. Raises PatternError, with the place."""
    code, statements = parse_block(data, name, marks=True)
    reader = _Reader(code, frozenset(), formulas, statements)
    for statement in statements[:-1]:
        reader.line(statement)
    last = statements[-1] if statements else None
    if not isinstance(last, ast.Expr):
        span = code.span(last) if last is not None else data.span
        raise PatternError(
            f"the last line of `{name}` is no term", span=span, hint="end with what it is: `x * Sigmoid(x)`, or `mean, var`"
        )
    parts = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    results = tuple(reader.term(part) for part in parts)
    for result in results:
        check_optional(result)
    reader.check_marks()
    return tuple(reader.lines), results


def parse_term(text: str) -> Term:
    """Parse one term outside a file. Raises PatternError."""
    return parse_assignments(f"_ = {text}").assignments[0].term


def parse_assignments(text: str) -> Block:
    """Parse a block outside a file. Raises PatternError."""
    lines = tuple(text.split("\n"))
    places = tuple((i + 1, 1) for i in range(len(lines)))
    return read_block(Scalar(text, "|", Span("<text>", 1, 1, len(lines[0]), lines[0]), places, lines), "block", frozenset({"*"}))


class _Reader:
    """Reads one block.

    lines: those read so far, including expanded lines of formulas.
    """

    def __init__(self, code: Code, captures: frozenset[str], formulas: Formulas | None, statements: Iterable[ast.stmt]) -> None:
        self.code = code
        self.captures = captures
        self.formulas = formulas
        self.conditions: dict[str, Expression] = {}
        self.statements = statements
        self.lines: list[Assignment] = []
        self.marked: set[Place] = set()

    @cached_property
    def taken(self) -> set[str]:
        """The names of the block, which expanded lines must avoid."""
        return _names(self.statements)

    def error(self, node: ast.expr | ast.stmt | ast.keyword, message: str, hint: str | None = None) -> PatternError:
        return PatternError(message, span=self.code.span(node), hint=hint)

    def check_marks(self) -> None:
        """Raise PatternError at the first `?` that does not follow a value."""
        for line, column in sorted(self.code.marks - self.marked):
            raise PatternError("`?` marks no value", span=self.code.scalar.at(line, column + 1), hint=USAGE)

    # Assignments

    def line(self, statement: ast.stmt) -> None:
        """Read one line."""
        if isinstance(statement, ast.Expr):
            words = self.code.words(statement.value)
            raise self.error(statement, "not an assignment", f"name the result: `y = {words}`")
        if not isinstance(statement, ast.Assign):
            raise self.error(statement, "not an assignment", "a line is `name = term`, or `a, b = term` for several results")
        if len(statement.targets) != 1:
            raise self.error(statement, "two assignments in one line", "write one `name = term` a line")
        names = self.names(statement.targets[0])
        assigned = {n for line in self.lines for n in line.names}
        for target in _targets(statement.targets[0]):
            if target.id in assigned and target.id != "_":
                raise self.error(target, f"`{target.id}` is assigned twice", "give the second result its own name")
        formula = self.formula(statement.value)
        if formula is not None:
            assert isinstance(statement.value, ast.Call)
            self.results(statement, statement.value, formula, names)
            return
        term = self.term(statement.value)
        check_optional(term)
        for variable in (t for t in walk(term) if isinstance(t, Variable) and t.name != "_" and t.name in names):
            message = f"`{variable.name}` is used before it is assigned"
            raise PatternError(message, span=variable.span, hint="give the result another name")
        self.lines.append(Assignment(names, term, self.code.span(statement)))

    def results(self, statement: ast.stmt, call: ast.Call, formula: Formula, names: tuple[str, ...]) -> None:
        """Read the line `a, b = formula(x)`; a result that is an inner line of the formula gets its name directly."""
        if len(names) != len(formula.results):
            raise self.error(call, f"`{formula}` has {_counted(len(formula.results))}, not {len(names)}", _definition(formula))
        terms = self.use(call, formula, names)
        for name, term in zip(names, terms, strict=True):
            check_optional(term)
            if name != "_" and not (isinstance(term, Variable) and term.name == name):
                self.lines.append(Assignment((name,), term, self.code.span(statement)))

    def names(self, target: ast.expr) -> tuple[str, ...]:
        names = _targets(target)
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        for part in parts:
            if not isinstance(part, ast.Name):
                raise self.error(part, "only names stand on the left of `=`", "write `y = …` or `a, b = …`")
            self.variable(part)
        seen: set[str] = set()
        for name in names:
            if name.id in seen and name.id != "_":
                raise self.error(name, f"`{name.id}` stands twice on the left", "write `_` for a result that nobody needs")
            seen.add(name.id)
        return tuple(n.id for n in names)

    # Terms

    def term(self, node: ast.expr) -> Term:
        match node:
            case ast.Name():
                return self.constant_name(node) or self.value(node)
            case ast.Constant() | ast.List() | ast.Tuple():
                return self.literal(node)
            case ast.UnaryOp():
                return self.unary(node)
            case ast.BinOp():
                return self.binary(node)
            case ast.Call():
                return self.call(node)
            case ast.Attribute():
                raise self.attribute_error(node)
            case ast.Compare() | ast.BoolOp():
                raise self.error(node, "a condition is not a term", "put it under `where`, or write the operator, `Equal(x, y)`")
            case ast.Subscript():
                raise self.error(node, "a subscript is not a term", "write `Slice`, `Gather` or `split`")
            case ast.IfExp():
                return self.conditional(node)
            case _:
                raise self.error(node, f"`{self.code.words(node)}` is not a term", "write `y = Operator(x) + z`")

    def value(self, node: ast.Name) -> Variable:
        """A use of a value's name, which may be marked optional."""
        variable, place = self.variable(node), self.code.mark(node)
        if place not in self.code.marks:
            return variable
        self.marked.add(place)
        if variable.name == "_":
            raise self.error(node, "`_` is any value, also none", "leave the `?` out")
        return Variable(variable.name, variable.span, optional=True)

    def variable(self, node: ast.Name) -> Variable:
        name = node.id
        if name in CONSTANTS or name in WORDS or name == "sqrt":
            raise self.error(node, f"`{name}` is a word of the language", f"call the value something else, such as `{name}_`")
        if not (name[0].islower() or name[0] == "_"):
            lower = name[0].lower() + name[1:]
            raise self.error(
                node, f"`{name}` is neither a value nor a call", f"a value is lower-case, `{lower}`; a call is `{name}(x)`"
            )
        return Variable(name, self.code.span(node))

    def constant_name(self, node: ast.Name) -> Literal | None:
        return Literal(CONSTANTS[node.id], node.id, self.code.span(node)) if node.id in CONSTANTS else None

    def literal(self, node: ast.expr) -> Literal:
        return Literal(self.static(node), self.code.words(node), self.code.span(node))

    def static(self, node: ast.expr) -> Static:
        """The value of a literal: a number, a string, or a list of these."""
        if isinstance(node, ast.Constant):
            if isinstance(node.value, (bool, int, float, str)):
                self.bound(node, node.value)
                return node.value
            hint = (
                "`None` is an argument of an operator, an input that is left out; `_` is any value"
                if node.value is None
                else "write a number, a string or a list"
            )
            raise self.error(node, f"`{self.code.words(node)}` is not a literal of the language", hint)
        if isinstance(node, ast.List):
            return tuple(self.static(n) for n in node.elts)
        if isinstance(node, ast.Tuple):
            raise self.error(node, "a tuple is not a term", "a list is written `[1, 2]`")
        term = self.term(node)
        if isinstance(term, Literal):
            return term.value
        raise self.error(
            node, f"`{self.code.words(node)}` stands in a list, which holds only literals", "name the list with `let`"
        )

    def bound(self, node: ast.expr, value: Static) -> None:
        if isinstance(value, (int, float)) and abs(value) > _MAX_NUMBER and abs(value) != math.inf:
            raise self.error(node, "the number is too large", "write `inf` for infinity")

    def unary(self, node: ast.UnaryOp) -> Term:
        if isinstance(node.op, ast.Not):
            raise self.error(node, "`not` is not a term", "put it under `where`, or write `Not(x)`")
        if not isinstance(node.op, ast.USub):
            raise self.error(node, f"`{self.code.words(node)}` is not a term", "the unary operator is `-`")
        operand = self.term(node.operand)
        if isinstance(operand, Literal) and isinstance(operand.value, (int, float)):
            return Literal(-operand.value, self.code.words(node), self.code.span(node))
        return Apply((Operator("Neg"),), (operand,), span=self.code.span(node))

    def binary(self, node: ast.BinOp) -> Term:
        span = self.code.span(node)
        left, right = self.term(node.left), self.term(node.right)
        if isinstance(node.op, ast.BitOr):
            return Either((*_alternatives(left), *_alternatives(right)), span)
        if isinstance(left, Literal) and isinstance(right, Literal) and not isinstance(node.op, ast.MatMult):
            return Literal(self.arithmetic(node, left.value, right.value), self.code.words(node), span)
        if type(node.op) in _CALLED:
            return Apply((_CALLED[type(node.op)],), (left, right), span=span)
        if type(node.op) not in _BINARY:
            hints = {ast.BitXor: "a power is written `**`", ast.Mod: "write `Mod(x, y)`", ast.BitAnd: "write `And(x, y)`"}
            raise self.error(
                node, "not an operator of the language", hints.get(type(node.op), "the operators are + - * / ** @ |")
            )
        operator, inverse = _BINARY[type(node.op)]
        # Python parses `a + b + c` as `(a + b) + c`: one chain.
        first = left.items if isinstance(left, Chain) and left.operator == operator else ((left, False),)
        return Chain(operator, (*first, (right, inverse)), span)

    def conditional(self, node: ast.IfExp) -> Conditional:
        if self.formulas is not None:
            raise self.error(node, "`if` is for replacements", "in `match`, alternatives are written `p | q`")
        sentence = sentence_in(node.test, self.code)
        if not isinstance(node.test, ast.Name):
            self.conditions[sentence.text] = sentence
        return Conditional(Variable(sentence.text, sentence.span), self.term(node.body), self.term(node.orelse), sentence.span)

    def arithmetic(self, node: ast.BinOp, left: Static, right: Static) -> Static:
        if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
            raise self.error(node, "arithmetic on text or lists", "only numbers are computed with")
        try:
            match node.op:
                case ast.Add():
                    value: object = left + right
                case ast.Sub():
                    value = left - right
                case ast.Mult():
                    value = left * right
                case ast.Div():
                    value = left / right
                case ast.Pow():
                    # Large powers are computed as floats, which overflow instead of exhausting memory.
                    value = left**right if abs(right) <= 64 and abs(left) <= 2**64 else float(left) ** float(right)
                case _:
                    raise self.error(node, "not an operator of the language", "the operators on numbers are + - * / **")
        except (OverflowError, ZeroDivisionError):
            value = math.nan
        if not isinstance(value, (int, float)) or value != value:
            raise self.error(node, f"`{self.code.words(node)}` is not a number")
        self.bound(node, value)
        return value

    # Calls

    def call(self, node: ast.Call) -> Term:
        if isinstance(node.func, ast.Name) and node.func.id in WORDS:
            return self.word(node, node.func.id)
        if isinstance(node.func, ast.Name) and node.func.id == "sqrt":
            return self.square_root(node)
        formula = self.formula(node)
        if formula is not None:
            if len(formula.results) > 1:
                names = ", ".join("abcdefgh"[: len(formula.results)])
                hint = f"name them in a line of their own, `{names} = {formula}`"
                raise self.error(node, f"`{formula}` has {_counted(len(formula.results))}", hint)
            return self.use(node, formula, ())[0]
        operators, capture = self.head(node.func)
        arguments: list[Term] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                raise self.error(argument, "`*` does not unpack here", "write every argument; `**rest` captures attributes")
            omitted = isinstance(argument, ast.Constant) and argument.value is None
            arguments.append(Omitted(self.code.span(argument)) if omitted else self.term(argument))
        keywords, rest = self.keywords(node)
        return Apply(operators, tuple(arguments), keywords, rest, capture, self.code.span(node))

    def formula(self, node: ast.expr) -> Formula | None:
        """The formula that `node` uses, or None."""
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)) or node.func.id in self.captures:
            return None
        return (self.formulas or {}).get(node.func.id)

    def use(self, node: ast.Call, formula: Formula, names: tuple[str, ...]) -> tuple[Term, ...]:
        """The results of a formula. Adds its lines to the block."""
        keywords, rest = self.keywords(node)
        named = dict(keywords)
        wrong = next((k for k in node.keywords if k.arg is not None and k.arg not in formula.parameters[len(node.args) :]), None)
        given = len(node.args) + len(named)
        if wrong is not None or rest is not None or given != len(formula.parameters):
            said = (
                f"has no `{wrong.arg}` here"
                if wrong is not None
                else f"takes {_counted(len(formula.parameters), 'value')}, not {given}"
            )
            raise self.error(node if wrong is None else wrong, f"`{formula}` {said}", _definition(formula))
        arguments = [*map(self.term, node.args), *(named[p] for p in formula.parameters[len(node.args) :])]
        lines, results = written_out(formula, arguments, names, self.taken)
        for line in lines:
            check_optional(line.term)
        self.lines += lines
        return results

    def keywords(self, node: ast.Call) -> tuple[tuple[tuple[str, Term], ...], str | None]:
        found: dict[str, Term] = {}
        rest: str | None = None
        for keyword in node.keywords:
            if keyword.arg is not None:
                if keyword.arg in found:  # Python's parser accepts this, only its compiler does not
                    raise self.error(keyword, f"`{keyword.arg}` is given twice", "give each keyword once")
                found[keyword.arg] = typed(self.term(keyword.value))
                continue
            if rest is not None:
                raise self.error(keyword.value, "`**` is given twice", "one `**rest` captures all remaining attributes")
            if not isinstance(keyword.value, ast.Name):
                raise self.error(keyword.value, "`**` is followed by a name", "write `**rest`")
            rest = self.variable(keyword.value).name
        return tuple(found.items()), rest

    def head(self, func: ast.expr) -> tuple[tuple[Operator, ...], str | None]:
        """The callee: `Erf`, `com.microsoft.Gelu`, `(Relu | Tanh)`, `act[Relu | Tanh]`, or a captured `act`."""
        match func:
            case ast.BinOp(op=ast.BitOr()):
                return self.operators(func), None
            case ast.Subscript(value=ast.Name() as name):
                return self.operators(func.slice), self.variable(name).name
            case ast.Name(id=name) if not name[0].isupper():
                if name in self.captures or "*" in self.captures:
                    return (), self.variable(func).name
                raise self.lower_case_call(func)
            case _:
                return (self.operator(func),), None

    def operators(self, node: ast.expr) -> tuple[Operator, ...]:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return (*self.operators(node.left), *self.operators(node.right))
        return (self.operator(node),)

    def operator(self, node: ast.expr) -> Operator:
        parts: list[str] = []
        inner = node
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name):
            raise self.error(
                node, "what is called is an operator", "write `Relu(x)`, `(Relu | Tanh)(x)` or `com.microsoft.Gelu(x)`"
            )
        name, *domain = [*parts, inner.id]
        if not name[0].isupper():
            raise self.error(
                node, f"`{name}` is not an operator's name", f"operators are CamelCase: `{name[0].upper() + name[1:]}`"
            )
        qualified = ".".join(reversed(domain))
        return Operator(name, "" if qualified == "ai.onnx" else qualified)

    def lower_case_call(self, func: ast.Name) -> PatternError:
        plain = func.id.replace("_", "").lower()
        operator = next((name for name in operator_names() if name.lower() == plain), "")
        near = "" if operator else spelling.nearest(func.id, (*WORDS, "sqrt", *self.captures, *(self.formulas or ())))
        camel = operator or "".join(w[:1].upper() + w[1:] for w in func.id.split("_"))
        said = f"operators are CamelCase: `{camel}(…)`; the words are {', '.join(WORDS)}, sqrt"
        hint = f"did you mean `{near}`?" if near else said
        return self.error(func, f"`{func.id}` is neither a word of the language nor a formula", hint)

    def attribute_error(self, node: ast.Attribute) -> PatternError:
        if node.attr[0].isupper():
            return self.error(node, f"`{self.code.words(node)}` is not called", f"write `{self.code.words(node)}(x)`")
        return self.error(node, f"`.{node.attr}` is not a term", "facts about a value are for `where` and `let`")

    def square_root(self, node: ast.Call) -> Literal:
        argument = self.term(node.args[0]) if len(node.args) == 1 and not node.keywords else None
        if not isinstance(argument, Literal):
            raise self.error(node, "`sqrt` is of one literal", "of a value it is the operator `Sqrt(x)`")
        value = argument.value
        if not isinstance(value, (int, float)) or value < 0:
            raise self.error(node, "`sqrt` is of a number that is not negative")
        return Literal(math.sqrt(value), self.code.words(node), self.code.span(node))

    # Words

    def word(self, node: ast.Call, word: str) -> Rearrange:
        keywords, rest = self.keywords(node)
        if rest is not None:
            raise self.error(node, f"`{word}` has no attributes to capture", "leave `**` out")
        sizes = dict(keywords)
        if word == "split":
            return self.split(node, sizes)
        usage = f'write `{word}(x, "{"b s (h d) -> b h s d" if word == "rearrange" else "b g t d -> b (g r) t d"}")`'
        if len(node.args) != 2:
            raise self.error(node, f"`{word}` takes a value and a recipe", usage)
        recipe = node.args[1]
        if not (isinstance(recipe, ast.Constant) and isinstance(recipe.value, str)):
            raise self.error(recipe, f"the recipe of `{word}` is a string", usage)
        if (mistake := recipe_mistake(word, recipe.value, sizes)) is not None:
            raise self.error(recipe, mistake, usage)
        return Rearrange(word, self.term(node.args[0]), recipe.value, tuple(sizes.items()), self.code.span(node))

    def split(self, node: ast.Call, sizes: dict[str, Term]) -> Rearrange:
        usage = "write `a, b = split(x, axis=-1, parts=2)` or `…, sizes=[1, 2])`"
        if len(node.args) != 1:
            raise self.error(node, "`split` takes one value", usage)
        for keyword in node.keywords:
            if keyword.arg not in ("axis", "parts", "sizes"):
                raise self.error(keyword, f"`split` has no `{keyword.arg}`", usage)
        if "axis" not in sizes or ("parts" in sizes) == ("sizes" in sizes):
            raise self.error(node, "`split` needs `axis`, and one of `parts` and `sizes`", usage)
        if sizes.get("parts") == Literal(1):
            raise self.error(node, "a `split` into one part is what it splits", "write that value alone")
        return Rearrange("split", self.term(node.args[0]), "", tuple(sizes.items()), self.code.span(node))


def _targets(target: ast.expr) -> list[ast.Name]:
    return [t for t in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]) if isinstance(t, ast.Name)]


def _names(statements: Iterable[ast.stmt]) -> set[str]:
    """Every name in a block."""
    return {n.id for s in statements for n in walk_tree(s) if isinstance(n, ast.Name)}


def _counted(number: int, what: str = "result") -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _definition(formula: Formula) -> str:
    return f"it is defined as `{formula}` in {formula.span}" if formula.span is not None else f"it is `{formula}`"


def _alternatives(term: Term) -> tuple[Term, ...]:
    return term.alternatives if isinstance(term, Either) else (term,)
