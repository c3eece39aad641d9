"""The normal form of terms: what is left when spelling is taken away.

Sums and products become multisets with a constant, division an exponent of -1, subtraction a sign, Sqrt an exponent of
one half, Neg a coefficient. `normalise` makes these forms from a pattern; the matcher compares them with the graph, expanded the
same way (`onnx_subgraph.matching.chain`), so no pattern has to list spellings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onnx_subgraph.errors import Span
from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.pattern import Expression, Pattern
from onnx_subgraph.language.recipe import recipe_axes

PRODUCT_OPERATORS = frozenset({"Mul", "Div", "Neg", "Reciprocal", "Sqrt", "Pow"})
SUM_OPERATORS = frozenset({"Add", "Sub", "Neg", "Gemm"})
COMMUTATIVE = frozenset(
    {"Add", "Max", "Min", "And", "Or", "Xor", "Equal", "Sum", "Mean", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}
)
BROADCASTING = COMMUTATIVE | {
    *("Sub", "Mul", "Div", "Pow", "Mod", "PRelu", "Where", "BitShift"),
    *("Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
}
"""Operators whose result has the rank of the input with most axes, a constant among them."""
ASSOCIATIVE = frozenset({"Max", "Min", "And", "Or"})


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    """A free variable, or, with a definition, the result `index` of the assignment numbered `assignment`."""

    name: str
    span: Span | None
    definition: Normal | None = None
    index: int = 0
    assignment: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A literal where a value stands."""

    value: syntax.Static
    span: Span | None


@dataclass(frozen=True, slots=True, eq=False)
class Nothing:
    """An input that is left out."""

    span: Span | None


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """An operator with its arguments in normal form; keywords and `rest` are as written.

    index: which of its results. assignment: the line that names several results, -1 for one. is_fixed: whether its keywords
    are all written out, so that they say the same wherever it is tried. axes: the names among the arguments that stand for axes.
    """

    term: syntax.Apply
    operators: frozenset[tuple[str, str]]
    arguments: tuple[Normal, ...]
    span: Span | None
    index: int = 0
    assignment: int = -1
    is_fixed: bool = False
    axes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """coefficient * scalar * Π factor ** exponent. scalar: the name that takes whatever constant is left over, or None."""

    coefficient: float
    factors: tuple[tuple[Normal, float], ...]
    scalar: str | None
    span: Span | None


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """constant + scalar + Σ sign * addend. scalar: the name that takes whatever constant is left over, or None."""

    constant: float
    addends: tuple[tuple[Normal, float], ...]
    scalar: str | None
    span: Span | None


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Alternatives, tried in order. term: the `Either` they come from, for `Match.chosen`."""

    alternatives: tuple[Normal, ...]
    term: syntax.Either
    span: Span | None


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A word of layout: rearrange, repeat, or the part `index` of a split numbered `assignment`."""

    term: syntax.Rearrange
    source: Normal
    span: Span | None
    index: int = 0
    assignment: int = -1


Normal = Name | Constant | Nothing | Operation | Product | Sum | Choice | Layout


@dataclass(frozen=True, slots=True, eq=False)
class NormalPattern:
    """A pattern in normal form.

    primary: the result that matching starts from. others: the results that it does not reach, in order.
    statics: the names that must stand for constants, because a replacement uses them as attributes.
    provided: the results that a replacement of some target stands for; all other matched values are inner ones.
    first: the sentences that no `let` has a part in; they are cheaper and come before it.
    twins: the classes of interchangeable items of sums and products, see `onnx_subgraph.matching.twins`.
    constant: name → whether it must be constant, where a sentence says so outright (`a.is_constant`, `not x.is_constant`).
    """

    pattern: Pattern
    primary: Name
    others: tuple[Name, ...]
    statics: frozenset[str]
    provided: frozenset[str]
    constant: Mapping[str, bool]
    first: tuple[Expression, ...]
    twins: Mapping[int, int]


def children(normal: Normal) -> tuple[Normal, ...]:
    """The normal terms directly inside `normal`."""
    match normal:
        case Name(definition=definition) if definition is not None:
            return (definition,)
        case Operation(arguments=arguments):
            return arguments
        case Product(factors=items) | Sum(addends=items):
            return tuple(item for item, _ in items)
        case Choice(alternatives=alternatives):
            return alternatives
        case Layout(source=source):
            return (source,)
        case _:
            return ()


def walk(normal: Normal) -> Iterator[Normal]:
    """`normal` and everything inside it, parents first."""
    yield normal
    for child in children(normal):
        yield from walk(child)


def is_empty(term: Normal) -> bool:
    """Whether a chain may have no node of its own: a product of one factor and no constant is that factor."""
    match term:
        case Product(factors=((_, 1.0),), coefficient=1.0, scalar=None) | Sum(addends=((_, 1.0),), constant=0.0, scalar=None):
            return True
        case _:
            return False


def mentions(term: Normal) -> frozenset[object]:
    """The names of everything in `term` that is bound when it matches: values, statics, axes, the node of several results."""
    found: set[object] = set()
    for part in walk(term):
        match part:
            case Name(name=name):
                found.add(name)
            case Product(scalar=scalar) | Sum(scalar=scalar):
                found.add(scalar)
            case Operation(term=applied, assignment=assignment):
                found |= {applied.capture, ("rest", applied.rest), ("node", assignment)}
                found.update(t.name for _, k in applied.keywords for t in syntax.walk(k) if isinstance(t, syntax.Variable))
            case Layout(term=word, assignment=assignment):
                found |= {*recipe_axes(word.recipe), ("node", assignment)}
                found.update(t.name for _, k in word.sizes for t in syntax.walk(k) if isinstance(t, syntax.Variable))
            case _:
                pass
    return frozenset(found)
