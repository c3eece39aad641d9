"""Terms: what a pattern looks for, and what a replacement is built from.

A term is an immutable tree. `str(term)` prints the syntax back, and parsing what was printed gives the same term. Terms say
what was written; which graphs are *equal* to a term is the business of `onnx_subgraph.matching`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from onnx_subgraph.errors import Span
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
    """A named value. The first use binds it, every later use is the same value; `_` is any value, also none.

    A name on the left of an assignment of the same block stands for that assignment's result. optional: whether it may be
    absent here, `b?`: an input that is left out, an addend or a factor that is not there.
    """

    name: str
    span: Span | None = _span()
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.name}?" if self.optional else self.name


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant written in the pattern. `text` is how it was written (`sqrt(2)`), `value` what it means (1.414…)."""

    value: Static
    text: str = field(default="", compare=False)
    span: Span | None = _span()

    def __str__(self) -> str:
        return self.text or _static(self.value)


@dataclass(frozen=True, slots=True)
class Omitted:
    """`None` as an argument: an optional input that is left out."""

    span: Span | None = _span()

    def __str__(self) -> str:
        return "None"


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator applied to arguments: `ReduceMean(x, axes=[-1])`, `(Relu | Tanh)(x)`, `act[Relu | Tanh](x)`, `-x`.

    operators: one, or the alternatives of `(A | B)(…)`, in order.
    arguments: the positional ones, values. `@`, `**` and unary `-` are read as MatMul, Pow and Neg.
    keywords: attributes, or (in `match`) constant inputs, or (in `replace`) any formal input, by formal name.
    rest: the name that `**rest` captures or hands on, or None.
    capture: the name in `name[A | B](…)` that remembers which operator it was, or that calls it in `replace`, or None.
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

    Each item is `(term, inverse)`: an inverse item is subtracted (in a sum) or divided by (in a product). The first item
    is never inverse, and never a chain of the same operator (`(a + b) + c` is `a + b + c`). `a - (b + c)` is a
    sum of `a` and, inverse, the sum of `b` and `c`: nothing else is flattened here.
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
    """`p | q`: any of two or more alternatives, tried in order."""

    alternatives: tuple[Term, ...]
    span: Span | None = _span()

    def __str__(self) -> str:
        return " | ".join(str(a) for a in self.alternatives)


@dataclass(frozen=True, slots=True)
class Rearrange:
    """A word of layout: `rearrange(x, "b s (h d) -> b h s d")`, `repeat(…)`, `split(x, axis=-1, parts=2)`.

    word: "rearrange", "repeat" or "split".
    source: the term that is rearranged.
    recipe: einops' notation for rearrange and repeat, "" for split.
    sizes: what is known of the named axes (`h=8`), or the arguments of split (`axis`, `parts` or `sizes`).
    """

    word: str
    source: Term
    recipe: str = ""
    sizes: tuple[tuple[str, Term], ...] = ()
    span: Span | None = _span()

    def __str__(self) -> str:
        recipe = [_static(self.recipe)] if self.recipe else []
        return f"{self.word}({', '.join([str(self.source), *recipe, *(f'{k}={v}' for k, v in self.sizes)])})"


_Leaf = (Variable, Literal, Omitted)
Term = Variable | Literal | Omitted | Apply | Chain | Either | Rearrange


@dataclass(frozen=True, slots=True)
class Assignment:
    """One line of a block: `names = term`. A name `_` is a result that nobody may need."""

    names: tuple[str, ...]
    term: Term
    span: Span | None = _span()

    def __str__(self) -> str:
        return f"{', '.join(self.names)} = {self.term}"


@dataclass(frozen=True, slots=True)
class Block:
    """The lines of a `match` or `replace`, in the order written; a name is assigned once, before it is used.

    without: the names that must be absent in a match for this replacement to stand for it. lowering: the file that has it for a
    canonical operator, and comes before that operator's own; "" where it is not from such a file.
    """

    assignments: tuple[Assignment, ...]
    without: frozenset[str] = frozenset()
    lowering: str = ""

    def __iter__(self) -> Iterator[Assignment]:
        return iter(self.assignments)

    def definition(self, name: str) -> tuple[Term, int] | None:
        """The term that `name` stands for and which of its results it is; None where `name` is free."""
        for assignment in self.assignments:
            if name in assignment.names:
                return assignment.term, assignment.names.index(name)
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """All assigned names but `_`, in order."""
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
        case _:
            return ()


def mapped(term: Term, change: Callable[[Term], Term]) -> Term:
    """A new term, in whose place of each term directly inside `term` stands what `change` makes of it."""

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
    """`term` as an item of a chain of `operator`, in parentheses where it would read otherwise."""
    match term:
        case Either():
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
    """The operators that `block` mentions, as a report names them: `com.microsoft.Gelu`."""
    return {
        str(operator)
        for assignment in block
        for term in walk(assignment.term)
        if isinstance(term, Apply)
        for operator in term.operators
    }
