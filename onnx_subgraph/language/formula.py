"""A formula: a part of a `match` that several patterns share, `silu(x)`; using it writes it out.

What is written out are plain lines and terms, so nothing but reading knows of formulas. The inner names of a formula are its own:
each use has them with the formula's name in front, and with a number where that is taken.
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
    """A named formula: its parameters, the lines that it is made of, and its results, terms over both.

    text: how it is written, as `list-patterns` shows it.
    """

    name: str
    parameters: tuple[str, ...]
    lines: tuple[Assignment, ...]
    results: tuple[Term, ...]
    text: str = ""
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def terms(self) -> tuple[Term, ...]:
        """Every term that it is made of."""
        return (*(line.term for line in self.lines), *self.results)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.parameters)})"


Formulas = Mapping[str, Formula]
"""The formulas that a block may use, by name."""


def written_out(
    formula: Formula, arguments: Sequence[Term], names: Sequence[str], taken: set[str]
) -> tuple[tuple[Assignment, ...], tuple[Term, ...]]:
    """The lines that stand for one use of `formula`, and its results.

    arguments: one for each parameter. names: what the line that uses it calls the results, () where it is used inside a term: a
    result that is the name of an inner line then is that line. taken: the names of the block; those made here are added.
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
    """How often each name stands in the formula, as a value or as an axis of a recipe."""
    terms = [t for term in formula.terms for t in walk(term)]
    found = Counter(t.name for t in terms if isinstance(t, Variable))
    found.update(axis for t in terms if isinstance(t, Rearrange) for axis in recipe_axes(t.recipe))
    return found


def _substituted(term: Term, values: dict[str, Term], formula: Formula, taken: set[str]) -> Term:
    """`term` with every name as what it stands for; all of it is made anew, since alternatives are told apart by identity."""

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
    """What an axis of a recipe is called here: as the argument where it is a parameter, else a name of this use."""
    value = values.get(axis)
    if isinstance(value, Variable):
        return value.name
    name = fresh(f"{formula.name}_{axis}", taken)
    values[axis] = Variable(name)
    return name
