"""Convert a pattern to its normal form: flatten chains, distribute alternatives, and inline names.

A name is inlined if the graph may have grouped its term with the neighbours. A name that a replacement provides or a sentence
uses is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf, isfinite, prod

from onnx_subgraph import operators
from onnx_subgraph.errors import PatternError, Span
from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.check import static_names
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.recipe import drops_axis
from onnx_subgraph.matching.constancy import constancy
from onnx_subgraph.matching.equalities import POWER, PRODUCT_OPERATORS, PRODUCTS, is_associative
from onnx_subgraph.matching.expansion import as_exponent
from onnx_subgraph.matching.normal import (
    Chain,
    Choice,
    Constant,
    Layout,
    Name,
    Normal,
    NormalPattern,
    Nothing,
    Operation,
    is_empty,
    structures,
    walk,
)
from onnx_subgraph.matching.synonyms import number_of, written
from onnx_subgraph.matching.twins import twins


@lru_cache(maxsize=1024)
def normalise(pattern: Pattern) -> NormalPattern:
    """The normal form of a checked pattern; cached."""
    return _Normaliser(pattern).run()


Items = Sequence[tuple[syntax.Term, float]]
"""The items of a product with their exponents, or of a sum with their signs."""


class _Normaliser:
    """Converts the block of one pattern. Caches names, so that each name is one object."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.statics = static_names(pattern)
        self.names: dict[str, Name] = {}
        uses = Counter(t.name for a in pattern.match for t in syntax.walk(a.term) if isinstance(t, syntax.Variable))
        self.roots = pattern.results
        self.mentioned = {w for e in (*pattern.where, *(e for _, e in pattern.let)) for w in _words(e.text)} | pattern.shares
        self.expandable = {n for n in pattern.match.names if n not in self.roots and n not in self.mentioned}
        # A name that is optional in several places must be present in all or absent in all. So it is not inlined.
        self.expandable -= {v.name for v in _optional_variables(pattern) if uses[v.name] > 1}
        self.inlined = {n for n in self.expandable if uses[n] == 1}
        self.plain: dict[int, syntax.Term] = {}  # `id` → terms that are not replaced by synonyms
        self.written: dict[int, Expression] = {}

    def run(self) -> NormalPattern:
        for number, assignment in enumerate(self.pattern.match):
            for index, name in enumerate(assignment.names):
                if name != "_":
                    several = len(assignment.names) > 1
                    definition = self.normal(assignment.term, index, number if several else -1)
                    self.names[name] = Name(name, assignment.span, definition, index, number)
        reached = {name: {n.name for n in walk(self.names[name]) if isinstance(n, Name)} for name in self.roots}
        outer = [n for n in self.roots if not any(n in reached[m] for m in self.roots if m != n)]
        primary = max(outer, key=lambda n: len(list(walk(self.names[n]))))
        covered = set(reached[primary])
        others = []
        for name in reversed(self.roots):
            if name not in covered:
                others.append(self.names[name])
                covered |= reached[name]
        derived = {name for name, _ in self.pattern.let}
        results, constant = (self.names[primary], *reversed(others)), constancy(self.pattern, self.statics)
        return NormalPattern(
            self.pattern,
            self.names[primary],
            results[1:],
            self.statics,
            frozenset(self.roots),
            constant,
            tuple(s for s in self.pattern.where if derived.isdisjoint(_words(s.text))),
            tuple(s for s in self.pattern.where if not derived.isdisjoint(_words(s.text))),
            twins(results, self.mentioned | self.statics),
            structures(results, constant),
            self.written,
        )

    def normal(self, term: syntax.Term, index: int = 0, assignment: int = -1) -> Normal:
        match term:
            case syntax.Variable(name=name, span=span):
                made = self.names.get(name)
                if made is None:
                    return Name(name, span)
                return made.definition if name in self.inlined and made.definition is not None else made
            case syntax.Literal(value=value, span=span):
                return Constant(value, span)
            case syntax.Omitted(span=span):
                return Nothing(span)
            case syntax.Conditional():
                raise AssertionError("a formula has no condition")
            case syntax.Either(alternatives=alternatives, span=span):
                return Choice(tuple(self.normal(a, index, assignment) for a in alternatives), term, span)
            case syntax.Rearrange(source=source, span=span):
                rearranged, taken = Layout(term, self.normal(source), span, index, assignment), self.taken(term)
                return rearranged if taken is None else Choice((rearranged, taken), term, span)
            case syntax.Chain(operator="+", span=span):
                return self.chain(term, span, product=False)
            case syntax.Apply(span=span) | syntax.Chain(span=span) if assignment < 0 and (ways := self.ways(term)):
                return Choice(tuple(map(self.normal, ways)), term, span)
            case syntax.Chain(span=span):
                return self.chain(term, span, product=True)
            case syntax.Apply(operators=called, span=span):
                if self.is_product(term):
                    return self.chain(term, span, product=True)
                identities = frozenset((o.domain, o.name) for o in called)
                numbered = _axis_arguments(term)
                axes = tuple(a.name for a in numbered.values() if isinstance(a, syntax.Variable))
                term = _named_axes(term, {n: a for n, a in numbered.items() if isinstance(a, syntax.Literal)})
                arguments = tuple(self.argument(a) for a in self.grouped(term))
                return Operation(term, identities, arguments, span, index, assignment, axes)

    def taken(self, term: syntax.Rearrange) -> Layout | None:
        """For a rearrangement that drops the axis of a part of one element: the element, as a Gather takes it; else None."""
        name = term.source.name if isinstance(term.source, syntax.Variable) and drops_axis(term.recipe) else ""
        part, index = self.pattern.match.definition(name) or (None, 0)
        if not isinstance(part, syntax.Rearrange) or part.word != "split":
            return None
        return Layout(replace(part, word="take", recipe=term.recipe), self.normal(part.source), term.span, index)

    def argument(self, term: syntax.Term) -> Normal:
        """An argument of an operator. An optional one keeps its name."""
        if not isinstance(term, syntax.Variable) or not term.optional:
            return self.normal(term)
        made = self.names.get(term.name)
        return replace(made, optional=term) if made is not None else Name(term.name, term.span, optional=term)

    def grouped(self, term: syntax.Apply) -> tuple[syntax.Term, ...]:
        """The arguments, with nested calls of the same associative operator flattened: Max(Max(a, b), c) gives a, b, c."""
        if len(term.operators) != 1 or not is_associative((o.domain, o.name) for o in term.operators):
            return term.arguments
        found: list[syntax.Term] = []
        for argument in term.arguments:
            nested = isinstance(argument, syntax.Apply) and argument.operators == term.operators and not argument.capture
            found += self.grouped(argument) if isinstance(argument, syntax.Apply) and nested else (argument,)
        return tuple(found)

    def is_product(self, term: syntax.Term) -> bool:
        if not isinstance(term, syntax.Apply) or term.keywords or term.rest or term.capture or len(term.operators) != 1:
            return False
        operator = term.operators[0]
        if (operator.domain, operator.name) not in PRODUCT_OPERATORS:
            return False
        return operator.name != POWER or number_of(term.arguments[1]) is not None

    def chain(self, term: syntax.Term, span: Span | None, *, product: bool) -> Normal:
        return self.distributed(list(self.items(term, 1.0, product=product)), span, product=product)

    def distributed(self, items: Items, span: Span | None, *, product: bool) -> Normal:
        """Distribute (a * b | c) * d to a * b * d | c * d, because the graph may have grouped d with b. The same for sums.

        An optional item gives two chains, with and without it. For the name bound to the remaining constant, one chain is enough.
        """
        scalar = self.scalar_of(items)
        for position, (item, power) in enumerate(items):
            if isinstance(item, syntax.Variable) and item.optional and item is not scalar:
                before, after = items[:position], items[position + 1 :]
                present = list(self.items(syntax.Variable(item.name, item.span), power, product=product))
                forms = (self.distributed([*before, *p, *after], span, product=product) for p in (present, ()))
                return Choice(tuple(forms), item, span)
            origin, alternatives = self.alternatives(item) if float(power).is_integer() else (item, ())
            expanded = [list(self.items(a, power, product=product)) for a in alternatives]
            if any(len(e) > 1 for e in expanded):
                before, after = items[:position], items[position + 1 :]
                choices = (self.distributed([*before, *e, *after], span, product=product) for e in expanded)
                assert isinstance(origin, syntax.Either | syntax.Apply | syntax.Chain)
                return Choice(tuple(choices), origin, span)
        return self.joined(items, span, product=product)

    def scalar_of(self, items: Items) -> syntax.Variable | None:
        """The item bound to the remaining constant of a chain: the first name that must be a constant."""
        return next((t for t, power in items if power == 1 and isinstance(t, syntax.Variable) and t.name in self.statics), None)

    def alternatives(self, item: syntax.Term) -> tuple[syntax.Term, Sequence[syntax.Term]]:
        """The alternatives of a chain's item (or of the term that it names), and the term that has them."""
        if isinstance(item, syntax.Variable) and item.name in self.expandable:
            found = self.pattern.match.definition(item.name)
            item = found[0] if found is not None else item
        return item, item.alternatives if isinstance(item, syntax.Either) else self.ways(item)

    def ways(self, term: syntax.Term) -> Sequence[syntax.Term]:
        """A term and its synonyms; empty where it has none."""
        found = None if id(term) in self.plain else written(term)
        if found is None:
            return ()
        if found.where is not None:
            self.written[id(term)] = found.where
        plain = replace(term)
        self.plain[id(plain)] = plain
        return (plain, *found.formulas)

    def joined(self, items: Items, span: Span | None, *, product: bool) -> Normal:
        """The chain of these items, its numbers combined and equal factors merged."""
        scalar = self.scalar_of(items)
        others = [pair for pair in items if pair[0] is not scalar]
        others = _merged(others) if product else others
        numbers = [(number, power) for item, power in others if (number := number_of(item)) is not None]
        kept = [(self.normal(item), power) for item, power in others if number_of(item) is None]
        try:
            constant = prod((n**p for n, p in numbers), start=1.0) if product else sum((n * p for n, p in numbers), start=0.0)
        except (OverflowError, ZeroDivisionError):
            constant = inf
        if not isfinite(constant) or (product and not constant):
            what = "product is 0 or infinite" if product else "sum is infinite"
            raise PatternError(f"the {what}", span=span, hint="write finite numbers, and none that is 0 in a product")
        name, optional = (None, None) if scalar is None else (scalar.name, scalar if scalar.optional else None)
        chain = Chain(product, constant, tuple(kept), name, span, optional)
        return kept[0][0] if scalar is None and is_empty(chain) else chain

    def items(self, term: syntax.Term, power: float, *, product: bool) -> Iterator[tuple[syntax.Term, float]]:
        """The factors of `term ** power`, or the addends of `power * term`; nested chains are flattened."""
        match term:
            case syntax.Chain(operator="*", items=items) if product and float(power).is_integer():
                for item, inverse in items:
                    yield from self.items(item, -power if inverse else power, product=True)
            case syntax.Chain(operator="+", items=items) if not product:
                for item, inverse in items:
                    yield from self.items(item, -power if inverse else power, product=False)
            case syntax.Apply() if product and self.is_product(term):
                yield from self.called(term, power)
            case syntax.Apply(operators=(syntax.Operator(name="Neg", domain=""),), arguments=(argument,)) if not product:
                yield from self.items(argument, -power, product=False)
            case syntax.Variable(name=name, optional=False) if name in self.expandable and self.continues(name, product=product):
                found = self.pattern.match.definition(name)
                assert found is not None
                yield from self.items(found[0], power, product=product)
            case _:
                yield term, power

    def continues(self, name: str, *, product: bool) -> bool:
        """Whether a name of the pattern is defined by a chain that its uses in a product, or in a sum, continue."""
        found = self.pattern.match.definition(name)
        if found is None:
            return False
        if product:
            return isinstance(found[0], syntax.Chain) or self.is_product(found[0])
        return isinstance(found[0], syntax.Chain) and found[0].operator == "+"

    def called(self, term: syntax.Apply, exponent: float) -> Iterator[tuple[syntax.Term, float]]:
        """The factors of `term ** exponent`, where `term` calls an operator that is a product."""
        arguments = term.arguments
        if term.operators[0].name == POWER:
            power = number_of(arguments[1])
            assert power is not None
            yield from self.items(arguments[0], exponent * as_exponent(power), product=True)
            return
        step = PRODUCTS[term.operators[0].name]
        powers = step.powers_of(len(arguments))
        if powers is None or ((len(powers) > 1 or step.constant != 1) and not float(exponent).is_integer()):
            yield term, exponent
            return
        if step.constant != 1:
            yield syntax.Literal(step.constant), exponent
        for argument, power in zip(arguments, powers, strict=True):
            yield from self.items(argument, exponent * power, product=True)


def _optional_variables(pattern: Pattern) -> Iterator[syntax.Variable]:
    terms = (t for a in pattern.match for t in syntax.walk(a.term))
    return (t for t in terms if isinstance(t, syntax.Variable) and t.optional)


def _axis_arguments(term: syntax.Apply) -> dict[str, syntax.Term]:
    """Formal input → positional argument, for the arguments that are axes."""
    schema = operators.schema(term.operators[0].name, term.operators[0].domain) if len(term.operators) == 1 else None
    if schema is None or any(schema.input(name) is not None for name, _ in term.keywords):
        return {}
    given = zip(schema.inputs, term.arguments, strict=False)
    return {formal.name: argument for formal, argument in given if operators.is_axis(formal.name)}


def _named_axes(term: syntax.Apply, axes: Mapping[str, syntax.Term]) -> syntax.Apply:
    """The call with axis arguments as keywords, so that they are compared as axes: `CumSum(x, 1)` becomes `CumSum(x, axis=1)`."""
    if not axes:
        return term
    kept = tuple(a for a in term.arguments if not any(a is axis for axis in axes.values()))
    return replace(term, arguments=kept, keywords=(*term.keywords, *axes.items()))


def _merged(factors: Items) -> list[tuple[syntax.Term, float]]:
    """The factors, equal ones merged: `x * x` is `x ** 2`, and `d * d` is, where d stands for its definition `x - z`."""
    merged: dict[object, tuple[syntax.Term, float]] = {}
    for term, exponent in factors:
        key = term if _is_one_value(term) else id(term)
        merged[key] = term, exponent + (merged[key][1] if key in merged else 0.0)
    return list(merged.values())


def _is_one_value(term: syntax.Term) -> bool:
    """Whether a term is the same value wherever it is written: a name, or a sum of names and numbers."""
    if isinstance(term, syntax.Variable):
        return term.name != "_"
    if not isinstance(term, syntax.Chain):
        return False
    inner = [t for t in syntax.walk(term) if not isinstance(t, syntax.Chain | syntax.Literal)]
    return all(isinstance(t, syntax.Variable) and t.name != "_" and not t.optional for t in inner)


def _words(text: str) -> list[str]:
    return [w for w in "".join(c if c.isalnum() or c == "_" else " " for c in text).split() if not w[0].isdigit()]
