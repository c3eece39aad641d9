"""Terms: what a pattern searches for, and what a replacement is built from.

A term is an immutable tree. `str(term)` prints it in the pattern language, and parsing this text gives the same term. A term
represents what was written; `onnx_subgraph.matching` decides which graphs are *equal* to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from onnx_subgraph.errors import Span
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.requirement import NOTHING, Requirement
from onnx_subgraph.operators.names import qualified

Scalar = bool | int | float | str
Static = Scalar | tuple["Static", ...]
"""A value known when the pattern is read: a number, a string, or nested tuples of them (written as lists)."""

_ATOM = re.compile(r"-?[\w.]+(e[-+]\d+)?(\([^()]*\))?|\".*\"|\[.*\]")  # text of a literal that needs no parentheses in a chain


def _span() -> Span | None:
    return field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Operator:
    """The identity of an operator. The default domain is `""`, never `"ai.onnx"`."""

    name: str
    domain: str = ""

    def __str__(self) -> str:
        return qualified((self.domain, self.name))


@dataclass(frozen=True, slots=True)
class Variable:
    """A named value. The first use binds it, and later uses must be the same value. `_` is any value, or an absent one.

    If the same block assigns the name, it stands for the result of the assignment. optional: whether it may be absent, as `b?`:
    an omitted input, or a missing addend or factor.
    """

    name: str
    span: Span | None = _span()
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.name}?" if self.optional else self.name


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant written in the pattern. `text` is its source (`sqrt(2)`), `value` its value (1.414…)."""

    value: Static
    text: str = field(default="", compare=False)
    span: Span | None = _span()

    def __str__(self) -> str:
        return self.text or _static(self.value)


@dataclass(frozen=True, slots=True)
class Omitted:
    """`None` as an argument: an omitted optional input."""

    span: Span | None = _span()

    def __str__(self) -> str:
        return "None"


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator applied to arguments: `ReduceMean(x, axes=[-1])`, `(Relu | Tanh)(x)`, `act[Relu | Tanh](x)`, `-x`.

    operators: one, or the alternatives of `(A | B)(…)`, in order.
    arguments: the positional ones, values. `@`, `**` and unary `-` are read as MatMul, Pow and Neg.
    keywords: attributes, or (in `match`) constant inputs, or (in `replace`) any formal input, by formal name.
    rest: the name that `**rest` captures or passes on, or None.
    capture: the name in `name[A | B](…)`, or None. In `match` it records the matched operator, in `replace` it calls it.
    """

    operators: tuple[Operator, ...]
    arguments: tuple[Term, ...] = ()
    keywords: tuple[tuple[str, Term], ...] = ()
    rest: str | None = None
    capture: str | None = None
    span: Span | None = _span()

    def keyword(self, name: str) -> Term | None:
        """The term given for the keyword `name`, or None."""
        return next((term for key, term in self.keywords if key == name), None)

    def __str__(self) -> str:
        names = " | ".join(map(str, self.operators))
        if self.capture:
            head = f"{self.capture}[{names}]" if self.operators else self.capture
        else:
            head = names if len(self.operators) == 1 else f"({names})"
        parts = [str(a) for a in self.arguments] + [f"{k}={t}" for k, t in self.keywords]
        return f"{head}({', '.join(parts + ([f'**{self.rest}'] if self.rest else []))})"


@dataclass(frozen=True, slots=True)
class Chain:
    """A sum (`operator="+"`) or a product (`"*"`) of two or more items, in the order written, one level deep.

    Each item is `(term, inverse)`: an inverse item is subtracted (in a sum) or divided by (in a product). The first item is never
    inverse, and never a chain of the same operator (`(a + b) + c` is `a + b + c`). Nothing else is flattened: `a - (b + c)` is a
    sum of `a` and, inverse, the sum of `b` and `c`.
    """

    operator: str
    items: tuple[tuple[Term, bool], ...]
    span: Span | None = _span()

    def __str__(self) -> str:
        inverse = {"+": "-", "*": "/"}[self.operator]
        text = _nested(self.items[0][0], self.operator)
        for term, is_inverse in self.items[1:]:
            text += f" {inverse if is_inverse else self.operator} {_nested(term, self.operator)}"
        return text


@dataclass(frozen=True, slots=True)
class Either:
    """`p | q`: two or more alternatives, tried in order."""

    alternatives: tuple[Term, ...]
    span: Span | None = _span()

    def __str__(self) -> str:
        return " | ".join(f"({a})" if isinstance(a, Conditional) else str(a) for a in self.alternatives)


@dataclass(frozen=True, slots=True)
class Rearrange:
    """A layout operation: `rearrange(x, "b s (h d) -> b h s d")`, `repeat(…)`, `split(x, axis=-1, parts=2)`.

    word: "rearrange", "repeat" or "split".
    source: the term that is rearranged.
    recipe: einops' notation for rearrange and repeat, "" for split.
    sizes: known sizes of named axes (`h=8`), or the arguments of split (`axis`, `parts` or `sizes`).
    """

    word: str
    source: Term
    recipe: str = ""
    sizes: tuple[tuple[str, Term], ...] = ()
    span: Span | None = _span()

    def __str__(self) -> str:
        recipe = [_static(self.recipe)] if self.recipe else []
        return f"{self.word}({', '.join([str(self.source), *recipe, *(f'{k}={v}' for k, v in self.sizes)])})"


@dataclass(frozen=True, slots=True)
class Conditional:
    """`p if sentence else q` in a replacement. condition: the name of a number of `let`; a sentence is named by its own text."""

    condition: Variable
    then: Term
    otherwise: Term
    span: Span | None = _span()

    def __str__(self) -> str:
        return f"{_nested(self.then, '+')} if {self.condition} else {self.otherwise}"


_Leaf = (Variable, Literal, Omitted)
Term = Variable | Literal | Omitted | Apply | Chain | Either | Rearrange | Conditional


@dataclass(frozen=True, slots=True)
class Assignment:
    """One line of a block: `names = term`. The name `_` marks a result that nothing may read."""

    names: tuple[str, ...]
    term: Term
    span: Span | None = _span()

    def __str__(self) -> str:
        return f"{', '.join(self.names)} = {self.term}"


@dataclass(frozen=True, slots=True)
class Block:
    """The lines of a `match` or `replace`, in the order written; a name is assigned once, before it is used.

    requires: what must be true in the match. lowering: the file of a lowering that is not the operator's own, or "". conditions:
    what its Conditional terms ask, by its text.
    """

    assignments: tuple[Assignment, ...]
    requires: Requirement = NOTHING
    lowering: str = ""
    conditions: tuple[tuple[str, Expression], ...] = field(default=(), compare=False)

    def __iter__(self) -> Iterator[Assignment]:
        return iter(self.assignments)

    def definition(self, name: str) -> tuple[Term, int] | None:
        """The term that `name` stands for and the index of the result; None where `name` is free."""
        for assignment in self.assignments:
            if name in assignment.names:
                return assignment.term, assignment.names.index(name)
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """All assigned names except `_`, in order."""
        return tuple(n for a in self.assignments for n in a.names if n != "_")

    def __str__(self) -> str:
        return "\n".join(map(str, self.assignments))


def children(term: Term) -> tuple[Term, ...]:
    """The terms directly inside `term`, in the order written."""
    match term:
        case Apply(arguments=arguments, keywords=keywords):
            return (*arguments, *(t for _, t in keywords))
        case Chain(items=items):
            return tuple(t for t, _ in items)
        case Either(alternatives=alternatives):
            return alternatives
        case Rearrange(source=source, sizes=sizes):
            return (source, *(t for _, t in sizes))
        case Conditional(condition=condition, then=then, otherwise=otherwise):
            return (condition, then, otherwise)
        case _:
            return ()


def mapped(term: Term, change: Callable[[Term], Term]) -> Term:
    """A copy of `term` with `change` applied to each term directly inside it."""

    def pairs(given: tuple[tuple[str, Term], ...]) -> tuple[tuple[str, Term], ...]:
        return tuple((key, change(value)) for key, value in given)

    match term:
        case Apply(arguments=arguments, keywords=keywords):
            return replace(term, arguments=tuple(map(change, arguments)), keywords=pairs(keywords))
        case Chain(items=items):
            return replace(term, items=tuple((change(item), inverse) for item, inverse in items))
        case Either(alternatives=alternatives):
            return replace(term, alternatives=tuple(map(change, alternatives)))
        case Rearrange(source=source, sizes=sizes):
            return replace(term, source=change(source), sizes=pairs(sizes))
        case Conditional(condition=condition, then=then, otherwise=otherwise):
            return replace(term, condition=change(condition), then=change(then), otherwise=change(otherwise))  # type: ignore[arg-type]
        case _:
            return replace(term)


def walk(term: Term) -> Iterator[Term]:
    """`term` and every term inside it, parents first, in the order written."""
    waiting = [term]
    while waiting:
        yield (inner := waiting.pop())
        if not isinstance(inner, _Leaf):
            waiting.extend(reversed(children(inner)))


def _nested(term: Term, operator: str) -> str:
    """`term` as an item of a chain of `operator`, in parentheses where they are needed."""
    match term:
        case Either() | Conditional():
            loose = True
        case Chain(operator=inner):
            loose = not (inner == "*" and operator == "+")
        case Literal():
            loose = _ATOM.fullmatch(str(term)) is None  # `x * (1 / 3)`
        case _:
            loose = False
    return f"({term})" if loose else str(term)


def _static(value: Static) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_static, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def operators_of(block: Block) -> set[str]:
    """The operators in `block`, as a report names them: `com.microsoft.Gelu`."""
    return {
        str(operator)
        for assignment in block
        for term in walk(assignment.term)
        if isinstance(term, Apply)
        for operator in term.operators
    }
