"""Formulas: parts of a `match` that several patterns share, as `silu(x)`. A use of a formula is expanded in place.

The expansion gives ordinary lines and terms, so only the reader knows formulas. The inner names of a formula are local: each use
prefixes them with the formula's name, and adds a number where the name is taken.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx_subgraph.errors import Span
from onnx_subgraph.language.names import fresh
from onnx_subgraph.language.recipe import recipe_axes
from onnx_subgraph.language.term import (
    Assignment,
    Literal,
    Rearrange,
    Term,
    Variable,
    mapped,
    walk,
)


@dataclass(frozen=True, slots=True)
class Formula:
    """A named formula: its parameters, its lines, and its results, which are terms over both.

    text: its source, as `list-patterns` shows it.
    """

    name: str
    parameters: tuple[str, ...]
    lines: tuple[Assignment, ...]
    results: tuple[Term, ...]
    text: str = ""
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def terms(self) -> tuple[Term, ...]:
        """Every term of the formula."""
        return (*(line.term for line in self.lines), *self.results)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.parameters)})"


Formulas = Mapping[str, Formula]
"""Name → formula, for the formulas that a block may use."""


def written_out(
    formula: Formula, arguments: Sequence[Term], names: Sequence[str], taken: set[str]
) -> tuple[tuple[Assignment, ...], tuple[Term, ...]]:
    """Expand one use of `formula`: the lines, and the results.

    arguments: one for each parameter. names: the names that the using line gives to the results; () for a use inside a term. If a
    result is an inner line, this line gets the name directly. taken: the names of the block; new names are added.
    """
    values: dict[str, Term] = {}
    lines: list[Assignment] = []
    for parameter, argument in zip(formula.parameters, arguments, strict=True):
        if not isinstance(argument, Variable | Literal):
            name = fresh(f"{formula.name}_{parameter}", taken)
            lines.append(Assignment((name,), argument, argument.span))
            argument = Variable(name, argument.span)
        values[parameter] = argument
    given = {r.name: n for r, n in zip(formula.results, names, strict=False) if isinstance(r, Variable) and n != "_"}
    for line in formula.lines:
        made = tuple(n if n == "_" else given.get(n) or fresh(f"{formula.name}_{n}", taken) for n in line.names)
        lines.append(Assignment(made, _substituted(line.term, values, formula, taken), line.span))
        values.update((n, Variable(m, line.span)) for n, m in zip(line.names, made, strict=True) if n != "_")
    return tuple(lines), tuple(_substituted(r, values, formula, taken) for r in formula.results)


def uses(formula: Formula) -> Counter[str]:
    """How often each name occurs in the formula, as a value or as an axis of a recipe."""
    terms = [t for term in formula.terms for t in walk(term)]
    found = Counter(t.name for t in terms if isinstance(t, Variable))
    found.update(axis for t in terms if isinstance(t, Rearrange) for axis in recipe_axes(t.recipe))
    return found


def _substituted(term: Term, values: dict[str, Term], formula: Formula, taken: set[str]) -> Term:
    """A copy of `term` with its names substituted. Every part is copied, because alternatives are distinguished by identity."""

    match term:
        case Variable(name=name, optional=optional):
            value = values.get(name, term)
            return replace(value, optional=True) if optional and isinstance(value, Variable) else replace(value)
        case Rearrange(recipe=recipe, sizes=sizes) if recipe:
            axes = {axis: _axis(axis, values, formula, taken) for axis in recipe_axes(recipe)}
            renamed = re.sub(r"[A-Za-z_]\w*", lambda axis: axes[axis[0]], recipe)
            term = replace(term, recipe=renamed, sizes=tuple((axes.get(axis, axis), size) for axis, size in sizes))
    return mapped(term, lambda inner: _substituted(inner, values, formula, taken))


def _axis(axis: str, values: dict[str, Term], formula: Formula, taken: set[str]) -> str:
    """The name of a recipe's axis after expansion: the argument's name for a parameter, else a new local name."""
    value = values.get(axis)
    if isinstance(value, Variable):
        return value.name
    name = fresh(f"{formula.name}_{axis}", taken)
    values[axis] = Variable(name)
    return name
