"""A pattern held against the operator schemas: does every operator exist, and is it called as its schema says?

An operator of a `match` is known when it existed at any opset, because the models are of all ages; one of a replacement must
exist today. The lint of defaults asks the author to say what a left-out attribute means where source and target disagree.
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
"""Terms of a formula in which each name that is an item of a sum or product is written out; the longest that comes with the
project has a few hundred."""
_JOINED = frozenset({"Add", "Sub", "Sum", "Mul", "Div", "Neg", "Pow", "Reciprocal", "Sqrt"})
"""The operators whose operands are items of a sum or product."""


def check(pattern: Pattern, domains: frozenset[str] = frozenset()) -> None:
    """Raises PatternError where an operator does not exist or is not called as its schema says.

    domains: those that the loaded packs bring; nothing is known of their operators, so nothing is asked.
    """
    _check_size(pattern)
    for assignment in pattern.match:
        check_assignment(assignment, domains, matching=True)
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
    """Raises PatternError where a line of a canonical operator calls an operator that does not exist, or not as its schema says.

    domains: as for `check`. The definition holds operators of the standard alone.
    """
    lowerings = ((target, one.block) for target, several in operator.lowerings.items() for one in several)
    for target, block in (("standard", operator.definition), *lowerings):
        for assignment in block:
            check_assignment(assignment, domains, matching=False, captured={})
            for call in calls(assignment.term):
                _check_target(target, call, {})


def _check_size(pattern: Pattern) -> None:
    """Raises PatternError where the formula is too long once every sum and product is flat: names of names double it.

    Of several results each way from one to another counts, so there every name is written out.
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
                hint="split the pattern in two, of which one finds what the other made",
            )
        sizes.update(dict.fromkeys(assignment.names, size))


def _is_joined(term: Term) -> bool:
    """Whether matching opens the names inside: they are items of a sum or product, or alternatives of one."""
    return isinstance(term, Chain | Either) or (isinstance(term, Apply) and any(o.name in _JOINED for o in term.operators))


def _check_named_operators(sentence: Expression) -> None:
    """Raises PatternError where a sentence compares `node.operator` with an operator that a domain we know does not have."""
    for comparison in (n for n in ast.walk(sentence.tree) if isinstance(n, ast.Compare)):
        if not any(isinstance(n, ast.Attribute) and n.attr in ("operator", "operators") for n in ast.walk(comparison)):
            continue
        for literal in (n for n in ast.walk(comparison) if isinstance(n, ast.Constant)):
            if not isinstance(literal.value, str):
                continue
            domain, _, name = literal.value.rpartition(".")
            known = operators.operator_names(domain) if domain in operators.domains() else ()
            if known and name not in known:
                near = spelling.nearest(name, known)
                hint = f'write `"{domain}.{near}"`' if domain and near else f'write `"{near}"`' if near else None
                hint = hint or "an operator of another domain is written with it, `com.microsoft.Gelu`"
                raise PatternError(f"`{literal.value}` is not an operator", span=place_in(sentence, literal), hint=hint)


def static_names(pattern: Pattern) -> frozenset[str]:
    """The names of `match` that must stand for constants, because their value is asked for.

    These are the names that a replacement uses as attributes, and those that `where` and `let` compute with (`x.value`, `x + 1`).
    Named axes, and attributes captured by keyword, are static by themselves and not listed.
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
    """An operator that is captured stays what it was, so it may stand under any target."""
    for operator in call.operators or captured.get(call.capture or "", ()):
        known = operators.history(operator.name, operator.domain)
        if target == "standard" and call.operators and not operators.is_standard(operator.name, operator.domain):
            hint = "write operators of ONNX, or put it under `onnxruntime`"
            raise PatternError(f"`{operator}` is not an operator of the standard", span=call.span, hint=hint)
        if known and operators.schema(operator.name, operator.domain) is None:
            message = f"`{operator}` was withdrawn from the standard, last seen at opset {known[0].since_version}"
            raise PatternError(message, span=call.span, hint="write what took its place")


_Sources = Mapping[str, Sequence[tuple[Apply, Operator, AttributeSpec]]]
"""Attribute → the calls of a match whose operator has it, each with the operator and what its schema says of the attribute."""


def _sources(match: Block) -> _Sources:
    found: dict[str, list[tuple[Apply, Operator, AttributeSpec]]] = defaultdict(list)
    for call in (c for assignment in match for c in calls(assignment.term)):
        for operator in call.operators:
            schema = operators.schema(operator.name, operator.domain)
            for name, spec in schema.attributes.items() if schema else ():
                found[name].append((call, operator, spec))
    return found


def _check_defaults(sources: _Sources, block: Block, captured: dict[str, tuple[Operator, ...]]) -> None:
    """What a replacement leaves out must mean what the match meant by it.

    An operator of the replacement has an attribute with a default and leaves it out. Every operator of the match that has an
    attribute of the same name must then mean this default: by its own default, or by a literal. Else the author has to say which
    is meant.
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
            hint = f"capture it in `match`, `{spec.name}=name`, and hand it on"
        raise PatternError(f"{message} ({operator})", span=call.span, hint=hint)


def _same(a: Static, b: object) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) <= RELATIVE_TOLERANCE * max(abs(a), abs(b))
    return a == b
