"""The normal form of terms, independent of how a formula is written.

Sums and products become multisets with a constant. Division becomes an exponent of -1, subtraction a sign, Sqrt an exponent of
one half, Neg a coefficient. `normalise` converts a pattern to this form. The matcher compares it with the graph, which is
expanded in the same way (`onnx_subgraph.matching.chain`). So patterns need not list the ways to write a formula.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from onnx_subgraph.errors import Span
from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.recipe import recipe_axes
from onnx_subgraph.matching.equalities import COMMUTATIVE
from onnx_subgraph.matching.structure import Absent, Alternatives, Anything, Applied, Form, Items, Structure, Word, one

BROADCASTING = COMMUTATIVE | {
    *("Sub", "Mul", "Div", "Pow", "Mod", "PRelu", "Where", "BitShift"),
    *("Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
}
"""Operators whose result has the highest rank of their inputs, including constants."""


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    """A free variable; or, with a definition, result `index` of the assignment with number `assignment`.

    optional: the variable `b?`, for an operator's argument that may be absent; else None.
    """

    name: str
    span: Span | None
    definition: Normal | None = None
    index: int = 0
    assignment: int = -1
    optional: syntax.Variable | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A literal as a value."""

    value: syntax.Static
    span: Span | None


@dataclass(frozen=True, slots=True, eq=False)
class Nothing:
    """An omitted input."""

    span: Span | None


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """An operator with its arguments in normal form; keywords and `rest` are as written.

    index: of the result. assignment: the number of the line that names several results, -1 for one. axes: the names of arguments
    that are axes.
    """

    term: syntax.Apply
    operators: frozenset[tuple[str, str]]
    arguments: tuple[Normal, ...]
    span: Span | None
    index: int = 0
    assignment: int = -1
    axes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """A product, constant * scalar * Π item ** exponent, or a sum, constant + scalar + Σ sign * item.

    items: with their exponents or signs. scalar: the name bound to the remaining constant, or None. optional: the variable
    `scalar?`, if it may be absent.
    """

    is_product: bool
    constant: float
    items: tuple[tuple[Normal, float], ...]
    scalar: str | None
    span: Span | None
    optional: syntax.Variable | None = None

    @property
    def is_silent(self) -> bool:
        """Whether it mentions no number."""
        return self.constant == (1.0 if self.is_product else 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Alternatives, tried in order. term: the term that they come from, for `Match.chosen`.

    For an optional item of a chain they are the chain with and without it. For a call, the call and its synonyms. For a
    rearrangement of one element of an axis, that and the element taken at once.
    """

    alternatives: tuple[Normal, ...]
    term: syntax.Either | syntax.Variable | syntax.Apply | syntax.Chain | syntax.Rearrange
    span: Span | None


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A layout operation: rearrange, repeat, or part `index` of a split with number `assignment`.

    `take` is a part of one element without its axis, `rearrange(part, recipe)` in one node.
    """

    term: syntax.Rearrange
    source: Normal
    span: Span | None
    index: int = 0
    assignment: int = -1


Normal = Name | Constant | Nothing | Operation | Chain | Choice | Layout


@dataclass(frozen=True, slots=True, eq=False)
class NormalPattern:
    """A pattern in normal form.

    primary: the result that matching starts from. others: the results that it does not reach, in order.
    statics: names that must be constants, because their value is used.
    provided: the results that replacements provide; all other matched values are inner ones.
    first: the sentences without `let` names; they are cheaper, so they are evaluated first. last: the other sentences.
    twins: the classes of interchangeable items of sums and products, see `onnx_subgraph.matching.twins`.
    structures: `id` of a term → its structure for the prefilter (`onnx_subgraph.matching.structure`).
    written: `id` of a call → the condition that must hold if a synonym of the call matched.
    constant: name → whether it must be constant, if a sentence says so (`a.is_constant`, `not x.is_constant`).
    """

    pattern: Pattern
    primary: Name
    others: tuple[Name, ...]
    statics: frozenset[str]
    provided: frozenset[str]
    constant: Mapping[str, bool]
    first: tuple[Expression, ...]
    last: tuple[Expression, ...]
    twins: Mapping[int, int]
    structures: Mapping[int, Structure]
    written: Mapping[int, Expression]


def children(normal: Normal) -> tuple[Normal, ...]:
    """The normal terms directly inside `normal`."""
    match normal:
        case Name(definition=definition) if definition is not None:
            return (definition,)
        case Operation(arguments=arguments):
            return arguments
        case Chain(items=items):
            return tuple(item for item, _ in items)
        case Choice(alternatives=alternatives):
            return alternatives
        case Layout(source=source):
            return (source,)
        case _:
            return ()


def walk(normal: Normal) -> Iterator[Normal]:
    """`normal` and everything inside it, parents first; shared parts are visited once."""
    found: dict[int, Normal] = {}

    def visit(term: Normal) -> None:
        if id(term) not in found:
            for child in children(term):
                visit(child)
            found[id(term)] = term

    visit(normal)
    return reversed(found.values())


def is_empty(term: Normal) -> bool:
    """Whether a chain may have no node of its own: a product of one factor without a constant is that factor."""
    match term:
        case Chain(items=((_, 1.0),), is_silent=True):
            return term.scalar is None or term.optional is not None
        case _:
            return False


@lru_cache(maxsize=1 << 14)
def counts(arguments: tuple[Normal, ...]) -> range:
    """The allowed numbers of arguments: trailing ones may be missing if they are optional or omitted."""
    least = len(arguments)
    while least and (isinstance(last := arguments[least - 1], Nothing) or (isinstance(last, Name) and last.optional is not None)):
        least -= 1
    return range(least, len(arguments) + 1)


def mentions(term: Normal) -> frozenset[object]:
    """Everything that is bound when `term` matches: values, statics, axes, and the node of several results."""
    found: set[object] = set()
    for part in walk(term):
        match part:
            case Name(name=name):
                found.add(name)
            case Chain(scalar=scalar):
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


def structure_of(term: Normal, constant: Mapping[str, bool], known: Mapping[int, Structure]) -> Structure:
    """The structure of a term. constant: name → whether it must be constant. known: `id` of a term → structure."""
    found = known.get(id(term))
    if found is not None:
        return found

    def inside(terms: Iterable[Normal]) -> tuple[Structure, ...]:
        return tuple(structure_of(inner, constant, known) for inner in terms)

    match term:
        case Name(definition=definition) if definition is not None:
            return structure_of(definition, constant, known)
        case Name(name=name):
            return one(Anything, constant.get(name))
        case Constant():
            return one(Anything, True)
        case Nothing():
            return one(Absent)
        case Operation(operators=operators, arguments=arguments):
            # A keyword may be an input between the positional ones. Only the first position is certain.
            return one(Applied, operators, inside(arguments), 1 if term.term.keywords else len(arguments))
        case Chain(is_product=is_product, items=items, scalar=scalar):
            powers = tuple(power for _, power in items)
            most = sum(max(1, ceil(abs(power))) for power in powers) if is_product else len(items)
            wanted = tuple(zip(inside(item for item, _ in items), powers, strict=True))
            needs_scalar = scalar is not None and term.optional is None
            exponents = tuple(sorted(powers)) if is_product else ()
            flags = (scalar is not None, needs_scalar, term.is_silent, is_empty(term))
            return one(Items, Form(is_product, len(items), exponents, most, *flags), wanted)
        case Choice(alternatives=alternatives):
            return one(Alternatives, inside(alternatives))
        case Layout(term=word):
            return one(Word, word.word, word.recipe)


def structures(roots: Iterable[Normal], constant: Mapping[str, bool]) -> Mapping[int, Structure]:
    """`id` of a term → structure, for every term in `roots`."""
    known: dict[int, Structure] = {}
    for root in roots:
        for term in reversed(list(walk(root))):  # inner terms first
            if id(term) not in known:
                known[id(term)] = structure_of(term, constant, known)
    return known
