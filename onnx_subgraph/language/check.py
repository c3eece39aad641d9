"""Check a pattern against the operator schemas: every operator exists and is called as its schema allows.

An operator in `match` may be of any opset, because models are of all ages. An operator in a replacement must exist today. If the
default of an attribute differs between `match` and replacement, the author has to write the attribute.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping, Sequence

from onnx_subgraph import operators
from onnx_subgraph.errors import PatternError
from onnx_subgraph.language import spelling
from onnx_subgraph.language.call import calls, check_assignment
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.grow import sentences
from onnx_subgraph.language.names import free_values
from onnx_subgraph.language.operands import check_operands
from onnx_subgraph.language.operator import CanonicalOperator
from onnx_subgraph.language.own_operator import check_attributes
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.sentence import place_in, valued_names
from onnx_subgraph.language.term import (
    Apply,
    Block,
    Chain,
    Either,
    Literal,
    Operator,
    Rearrange,
    Static,
    Term,
    Variable,
    children,
    walk,
)
from onnx_subgraph.language.vocabulary import RELATIVE_TOLERANCE
from onnx_subgraph.operators import AttributeSpec

_LONGEST_FORMULA = 10_000
"""Maximum number of terms of a formula after substituting the names that are items of sums and products.

The longest built-in formula has a few hundred.
"""
_JOINED = frozenset({"Add", "Sub", "Sum", "Mul", "Div", "Neg", "Pow", "Reciprocal", "Sqrt"})
"""The operators whose operands are items of a sum or product."""


def check(pattern: Pattern, domains: frozenset[str] = frozenset()) -> None:
    """Raise PatternError where an operator does not exist or is not called as its schema allows.

    domains: domains of the loaded packs; their operators are not checked, because their schemas are unknown.
    """
    _check_size(pattern)
    for assignment in pattern.match:
        check_assignment(assignment, domains, matching=True)
    check_operands(pattern.match, pattern.results)
    for sentence in () if pattern.grow is None else sentences(pattern.grow):
        _check_named_operators(sentence)
    if pattern.grow is not None:
        check_attributes(pattern.grow)
    captured = {a.capture: a.operators for t in pattern.match for a in calls(t.term) if a.capture}
    sources = _sources(pattern.match)
    for target, block in ((t, block) for t in pattern.replace for block in pattern.blocks(t)):
        for assignment in block:
            check_assignment(assignment, domains, matching=False, captured=captured)
            for call in calls(assignment.term):
                _check_target(target, call, captured)
        _check_defaults(sources, block, captured)


def check_operator(operator: CanonicalOperator, domains: frozenset[str] = frozenset()) -> None:
    """Raise PatternError where a canonical operator calls an operator that does not exist, or not as its schema allows.

    domains: as for `check`. The definition may only use standard operators.
    """
    lowerings = ((target, one.block) for target, several in operator.lowerings.items() for one in several)
    for target, block in (("standard", operator.definition), *lowerings):
        for assignment in block:
            check_assignment(assignment, domains, matching=False, captured={})
            for call in calls(assignment.term):
                _check_target(target, call, {})


def _check_size(pattern: Pattern) -> None:
    """Raise PatternError where the formula is too long once sums and products are flattened; names can double it repeatedly.

    With several results all names count, because every path from one result to another is explored.
    """
    sizes: dict[str, int] = {}
    for assignment in pattern.match:
        terms = list(walk(assignment.term))
        items = terms if len(pattern.results) > 1 else [item for term in terms if _is_joined(term) for item in children(term)]
        size = len(terms) + sum(sizes.get(t.name, 0) for t in items if isinstance(t, Variable))
        if size > _LONGEST_FORMULA:
            raise PatternError(
                f"the formula has more than {_LONGEST_FORMULA} terms when every name is written out",
                span=assignment.span,
                hint="split the pattern into two; one then finds the result of the other",
            )
        sizes.update(dict.fromkeys(assignment.names, size))


def _is_joined(term: Term) -> bool:
    """Whether matching substitutes the names inside: they are items of a sum or product, or alternatives of one."""
    return isinstance(term, Chain | Either) or (isinstance(term, Apply) and any(o.name in _JOINED for o in term.operators))


def _check_named_operators(sentence: Expression) -> None:
    """Raise PatternError where a sentence compares `node.operator` with an unknown operator of a known domain."""
    for comparison in (n for n in ast.walk(sentence.tree) if isinstance(n, ast.Compare)):
        if not any(isinstance(n, ast.Attribute) and n.attr in ("operator", "operators") for n in ast.walk(comparison)):
            continue
        for literal in (n for n in ast.walk(comparison) if isinstance(n, ast.Constant)):
            if not isinstance(literal.value, str):
                continue
            domain, _, name = literal.value.rpartition(".")
            if operators.history(name, domain):
                continue
            known = operators.operator_names(domain)
            if known and name not in known:
                near = spelling.nearest(name, known)
                hint = f'write `"{domain}.{near}"`' if domain and near else f'write `"{near}"`' if near else None
                hint = hint or "an operator of another domain is written with it, `com.microsoft.Gelu`"
                raise PatternError(f"`{literal.value}` is not an operator", span=place_in(sentence, literal), hint=hint)


def static_names(pattern: Pattern) -> frozenset[str]:
    """The names of `match` that must be constants because their value is used.

    These are the names that a replacement uses as attributes, and the names that `where` and `let` compute with (`x.value`, `x +
    1`). Named axes and attributes captured by keyword are always static, so they are not listed.
    """
    used: set[str] = set()
    for block in pattern.replace.values():
        for assignment in block:
            for call in calls(assignment.term):
                for name, term in call.keywords:
                    if _is_attribute(call, name):
                        used.update(t.name for t in walk(term) if isinstance(t, Variable))
            for term in walk(assignment.term):
                if isinstance(term, Rearrange):
                    used.update(t.name for _, size in term.sizes for t in walk(size) if isinstance(t, Variable))
    for sentence in (*pattern.where, *(expression for _, expression in pattern.let)):
        used.update(valued_names(sentence))
    values = {*free_values(pattern.match), *pattern.match.names}
    return frozenset(used & values)


def _is_attribute(call: Apply, name: str) -> bool:
    versions = [s for o in call.operators for s in operators.history(o.name, o.domain)[:1]]
    return not versions or any(name in s.attributes for s in versions) or all(s.input(name) is None for s in versions)


# Replacements


def _check_target(target: str, call: Apply, captured: dict[str, tuple[Operator, ...]]) -> None:
    """Check a call in a replacement. A captured operator stays what it was, so any target allows it."""
    for operator in call.operators or captured.get(call.capture or "", ()):
        known = operators.history(operator.name, operator.domain)
        if target == "standard" and call.operators and not operators.is_standard(operator.name, operator.domain):
            hint = "write operators of ONNX, or put it under `onnxruntime`"
            raise PatternError(f"`{operator}` is not an operator of the standard", span=call.span, hint=hint)
        if known and operators.schema(operator.name, operator.domain) is None:
            message = f"`{operator}` was withdrawn from the standard, last seen at opset {known[0].since_version}"
            raise PatternError(message, span=call.span, hint="write its successor")


_Sources = Mapping[str, Sequence[tuple[Apply, Operator, AttributeSpec]]]
"""Attribute → the calls in `match` whose operator has it, each with the operator and the schema of the attribute."""


def _sources(match: Block) -> _Sources:
    found: dict[str, list[tuple[Apply, Operator, AttributeSpec]]] = defaultdict(list)
    for call in (c for assignment in match for c in calls(assignment.term)):
        for operator in call.operators:
            schema = operators.schema(operator.name, operator.domain)
            for name, spec in schema.attributes.items() if schema else ():
                found[name].append((call, operator, spec))
    return found


def _check_defaults(sources: _Sources, block: Block, captured: dict[str, tuple[Operator, ...]]) -> None:
    """Check that attributes which a replacement omits have the same meaning as in `match`.

    If an operator of the replacement omits an attribute with a default, every operator in `match` with an attribute of the same
    name must have this value, by its own default or by a literal. Otherwise the author has to write the attribute.
    """
    for call in (c for assignment in block for c in calls(assignment.term) if not c.rest):
        for operator in call.operators or captured.get(call.capture or "", ()):
            schema = operators.schema(operator.name, operator.domain)
            for name, spec in sorted(schema.attributes.items()) if schema else ():
                if spec.default is not None and call.keyword(name) is None:
                    _check_default(sources, call, operator, spec)


def _check_default(sources: _Sources, call: Apply, target: Operator, spec: AttributeSpec) -> None:
    for source, operator, own in sources.get(spec.name, ()):
        given = source.keyword(spec.name)
        meant = own.default
        if given is not None:
            meant = given.value if isinstance(given, Literal) else None
        if meant is not None and _same(meant, spec.default):
            continue
        words = f"`{given}`" if given is not None else f"{meant} by default"
        message = f"`{target}` leaves out `{spec.name}`, which is {spec.default} by default; in `match` it is {words}"
        hint = f"write `{spec.name}={given if given is not None and str(given) != '_' else meant}`"
        if str(given) == "_":
            hint = f"capture it in `match`, `{spec.name}=name`, and pass it on"
        raise PatternError(f"{message} ({operator})", span=call.span, hint=hint)


def _same(a: Static, b: object) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) <= RELATIVE_TOLERANCE * max(abs(a), abs(b))
    return a == b
