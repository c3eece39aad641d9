"""Canonical operators: one name for what several formulas compute, with a definition and lowerings to each target.

A formula calls the operator under `raises`. For each target, this call is replaced by the operator's lines for the target. The
names in these lines get the operator's name as a prefix, to avoid clashes with the formula's names. The result is an ordinary
replacement.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from onnx_subgraph.errors import PatternError, Span
from onnx_subgraph.language import spelling
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.requirement import NOTHING, Requirement
from onnx_subgraph.language.term import (
    Apply,
    Assignment,
    Block,
    Literal,
    Omitted,
    Rearrange,
    Term,
    Variable,
    mapped,
    walk,
)
from onnx_subgraph.operators.names import OWN_DOMAIN

Definitions = tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class Lowering:
    """The lines that replace a canonical operator. where: sentences about its arguments that must be true in the match.

    file: the lowering's file, "" for the operator's own.
    """

    block: Block
    where: Requirement = NOTHING
    file: str = ""


@dataclass(frozen=True, slots=True)
class CanonicalOperator:
    """An operator of the domain `onnx_subgraph`.

    name: in CamelCase. source: where the formula comes from. inputs, attributes: name → description; those in `optional` may be
    omitted. let: numbers that the lines need, computed from the attributes. definition: what the operator computes, in standard
    operators. lowerings: target → its lowerings; among several of one file, the one that moves less data is chosen. kernel: the
    element types for which the library of kernels has the operator. layouts: input or result → the recipe from its documented
    layout to another one that the kernel accepts, or for a result, returns when the first input has its other layout. An axis
    with the name of an attribute has its size.
    """

    name: str
    summary: str
    source: str
    inputs: Mapping[str, str]
    attributes: Mapping[str, str]
    optional: frozenset[str]
    let: Definitions
    definition: Block
    lowerings: Mapping[str, tuple[Lowering, ...]]
    file: str = ""
    kernel: frozenset[str] = frozenset()
    layouts: Mapping[str, str] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """The prefix of its names inside a formula: `rotary_` for `Rotary`."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.name).lower() + "_"


@dataclass(frozen=True, slots=True)
class Raised:
    """A formula that calls a canonical operator. call: the calling line. before, after: the other lines."""

    operator: CanonicalOperator
    before: tuple[Assignment, ...]
    call: Assignment
    after: tuple[Assignment, ...]
    arguments: Mapping[str, Term] = field(default_factory=dict)

    @property
    def let(self) -> Definitions:
        """The numbers that the lowerings need: the attributes, and what the operator derives from them, under prefixed names."""
        prefix = self.operator.prefix
        given = {name: self.arguments.get(name) for name in self.operator.attributes}
        names = {name: prefix + name for name in (*given, *(name for name, _ in self.operator.let))}
        attributes = tuple((names[name], _expression(term, self.call.span)) for name, term in given.items())
        return (*attributes, *((names[name], _renamed_expression(e, names)) for name, e in self.operator.let))

    def lowered(self, target: str) -> tuple[Block, ...]:
        """The replacements for a target: the formula's lines, with a lowering in place of the operator."""
        possible = (one for one in self.operator.lowerings.get(target, ()) if one.where.present <= self.arguments.keys())
        return tuple(map(self._expanded, possible))

    def _expanded(self, lowering: Lowering) -> Block:
        operator, block = self.operator, lowering.block
        results = dict(zip(_results(operator.definition), self.call.names, strict=True))
        names = {name: operator.prefix + name for name in (*operator.inputs, *operator.attributes, *dict(operator.let))}
        names |= {name: operator.prefix + name for name in block.names} | results
        used = {term.name for line in block for term in walk(line.term) if isinstance(term, Variable)}
        used |= lowering.where.asked & self.arguments.keys()
        inputs = tuple(
            Assignment((names[name],), self.arguments.get(name, Omitted(self.call.span)), self.call.span)
            for name in operator.inputs
            if name in used
        )
        lines = (
            Assignment(tuple(names.get(n, n) for n in line.names), _renamed(line.term, names, operator.prefix), line.span)
            for line in block
        )
        requires = replace(lowering.where, prefix=operator.prefix, line=len(self.before) + len(inputs))
        return Block((*self.before, *inputs, *lines, *self.after), requires, lowering.file)


def read_raised(block: Block, known: Mapping[str, CanonicalOperator]) -> Raised:
    """Parse what a formula raises to. Raises PatternError, with the place, where it is not one call of a known operator."""
    calls = [
        (position, term)
        for position, line in enumerate(block)
        for term in walk(line.term)
        if isinstance(term, Apply) and any(o.domain == OWN_DOMAIN for o in term.operators)
    ]
    if len(calls) != 1:
        span = block.assignments[-1].span if not calls else calls[1][1].span
        raise PatternError(
            f"`raises` calls {'no' if not calls else 'more than one'} canonical operator",
            span=span,
            hint=f"write one line `y = {OWN_DOMAIN}.{next(iter(sorted(known)), 'Name')}(…)`",
        )
    position, call = calls[0]
    line = block.assignments[position]
    if line.term is not call:
        raise PatternError(
            "a canonical operator stands on a line of its own", span=call.span, hint="name its result, and use that"
        )
    operator = known.get(call.operators[0].name)
    if operator is None:
        hint = spelling.hint(call.operators[0].name, known, f"the canonical operators are {', '.join(sorted(known))}")
        raise PatternError(f"`{call.operators[0]}` is not a canonical operator", span=call.span, hint=hint)
    lines = block.assignments
    raised = Raised(operator, lines[:position], line, lines[position + 1 :], _arguments(call, operator))
    wanted = _results(operator.definition)
    if len(line.names) != len(wanted):
        raise PatternError(f"`{operator.name}` has {len(wanted)} results", span=line.span, hint=f"name {len(wanted)}")
    return raised


def _arguments(call: Apply, operator: CanonicalOperator) -> dict[str, Term]:
    """The arguments by name, without omitted ones."""
    inputs = tuple(operator.inputs)
    usage = f"it is `{signature(operator)}`"
    if len(call.arguments) > len(inputs) or call.rest or call.capture:
        raise PatternError(f"`{operator.name}` takes at most {len(inputs)} inputs", span=call.span, hint=usage)
    found = dict(zip(inputs, call.arguments, strict=False))
    for name, term in call.keywords:
        if name in found or name not in (*inputs, *operator.attributes):
            what = "is given twice" if name in found else f"is not an argument of `{operator.name}`"
            raise PatternError(f"`{name}` {what}", span=term.span or call.span, hint=usage)
        if name in operator.attributes and not isinstance(term, Variable | Literal):
            raise PatternError(f"`{name}` is a number or a name", span=term.span, hint="give the number a name in `let`")
        found[name] = term
    for name in (*inputs, *operator.attributes):
        if name not in found and name not in operator.optional:
            raise PatternError(f"`{operator.name}` needs `{name}`", span=call.span, hint=usage)
    return {name: term for name, term in found.items() if not isinstance(term, Omitted)}


def signature(operator: CanonicalOperator) -> str:
    """The signature of the operator: `Rotary(x, cos, sin, interleaved=…)`."""
    inputs = [f"[{n}]" if n in operator.optional else n for n in operator.inputs]
    attributes = [f"[{n}=…]" if n in operator.optional else f"{n}=…" for n in operator.attributes]
    return f"{operator.name}({', '.join([*inputs, *attributes])})"


def _results(definition: Block) -> tuple[str, ...]:
    return definition.assignments[-1].names


def _expression(term: Term | None, span: Span | None) -> Expression:
    """The argument of an attribute as an expression for `let`: a name, a literal, or None."""
    text = "None" if term is None else repr(term.value) if isinstance(term, Literal) else str(term)
    return Expression(text, ast.parse(text, mode="eval").body, span)


def _renamed_expression(expression: Expression, names: Mapping[str, str]) -> Expression:
    tree = ast.parse(expression.text, mode="eval").body
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    return Expression(ast.unparse(tree), tree, expression.span)


def _renamed(term: Term, names: Mapping[str, str], prefix: str) -> Term:
    """A term with its names replaced, and the axes of its recipes prefixed."""
    match term:
        case Variable(name=name):
            return replace(term, name=names.get(name, name))
        case Rearrange(recipe=recipe, sizes=sizes) if recipe:
            term = replace(
                term,
                recipe=re.sub(r"[A-Za-z_]\w*", lambda axis: prefix + axis[0], recipe),
                sizes=tuple((prefix + axis, size) for axis, size in sizes),
            )
    return mapped(term, lambda inner: _renamed(inner, names, prefix))
