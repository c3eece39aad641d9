"""A pattern held against the operator schemas: does every operator exist, and is it called as its schema says?

An operator of a `match` is known when it existed at any opset, because the models are of all ages; one of a replacement must
exist today. The lint of defaults asks the author to say what a left-out attribute means where source and target disagree.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from onnx_subgraph import operators
from onnx_subgraph.errors import PatternError
from onnx_subgraph.language import spelling
from onnx_subgraph.language.grow import sentences
from onnx_subgraph.language.names import free_values
from onnx_subgraph.language.pattern import Expression, Pattern
from onnx_subgraph.language.sentence import place_in, valued_names
from onnx_subgraph.language.term import (
    Apply,
    Assignment,
    Block,
    Either,
    Literal,
    Operator,
    Rearrange,
    Static,
    Term,
    Variable,
    walk,
)
from onnx_subgraph.language.vocabulary import RELATIVE_TOLERANCE
from onnx_subgraph.operators import AttributeSpec, Schema

_LONGEST_FORMULA = 10_000
"""Terms of a formula in which each name is written out; the longest that comes with the project has a few hundred."""


def check(pattern: Pattern, domains: frozenset[str] = frozenset()) -> None:
    """Raises PatternError where an operator does not exist or is not called as its schema says.

    domains: those that the loaded packs bring; nothing is known of their operators, so nothing is asked.
    """
    _check_size(pattern.match)
    for assignment in pattern.match:
        _check_assignment(assignment, domains, matching=True)
    for sentence in () if pattern.grow is None else sentences(pattern.grow):
        _check_named_operators(sentence)
    captured = {a.capture: a.operators for t in pattern.match for a in _calls(t.term) if a.capture}
    for target, block in pattern.replace.items():
        for assignment in block:
            _check_assignment(assignment, domains, matching=False, captured=captured)
            for call in _calls(assignment.term):
                _check_target(target, call, captured)
        _check_defaults(pattern, block, captured)


def _check_size(block: Block) -> None:
    """Raises PatternError where the formula is too long once every name stands for its line: names of names double it."""
    sizes: dict[str, int] = {}
    for assignment in block:
        terms = list(walk(assignment.term))
        size = len(terms) + sum(sizes.get(t.name, 0) for t in terms if isinstance(t, Variable))
        if size > _LONGEST_FORMULA:
            raise PatternError(
                f"the formula has more than {_LONGEST_FORMULA} terms when every name is written out",
                span=assignment.span,
                hint="split the pattern in two, of which one finds what the other made",
            )
        sizes.update(dict.fromkeys(assignment.names, size))


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
            for call in _calls(assignment.term):
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


# One call


def _calls(term: Term) -> Iterator[Apply]:
    return (t for t in walk(term) if isinstance(t, Apply))


def _check_assignment(
    assignment: Assignment,
    domains: frozenset[str],
    *,
    matching: bool,
    captured: dict[str, tuple[Operator, ...]] | None = None,
) -> None:
    for call in _calls(assignment.term):
        for operator in call.operators or (captured or {}).get(call.capture or "", ()):
            outputs = len(assignment.names) if call is assignment.term else 1
            schemas = _schemas(call, operator, domains)
            if not schemas:
                continue
            if not matching:
                schemas = schemas[:1]
            _check_keywords(call, operator, schemas)
            _check_arity(call, operator, schemas, outputs)


def _schemas(call: Apply, operator: Operator, domains: frozenset[str]) -> tuple[Schema, ...]:
    """The history of the operator, or () where its domain is a pack's. Raises PatternError where we don't know it."""
    found = operators.history(operator.name, operator.domain)
    if found or operator.domain in domains:
        return found
    if operator.domain not in operators.domains():
        hint = spelling.hint(operator.domain, operators.domains(), "a domain of your own is named in `pack.yaml`, `domain: …`")
        raise PatternError(f"the domain `{operator.domain}` is not known", span=call.span, hint=hint)
    near = spelling.nearest(operator.name, operators.operator_names(operator.domain))
    elsewhere = [d for d in operators.domains() if operator.name in operators.operator_names(d)]
    if elsewhere:
        near = f"{elsewhere[0]}.{operator.name}" if elsewhere[0] else operator.name
    elif near is not None and operator.domain:
        near = f"{operator.domain}.{near}"
    hint = f"did you mean `{near}`?" if near else "the operators are those of ONNX, and com.microsoft.…"
    raise PatternError(f"`{operator}` is not an operator", span=call.span, hint=hint)


def _check_keywords(call: Apply, operator: Operator, schemas: tuple[Schema, ...]) -> None:
    for name, term in call.keywords:
        specs = [s.attributes[name] for s in schemas if name in s.attributes]
        positions = [p for s in schemas if (p := s.input(name)) is not None]
        if not specs and not positions:
            known = {n for s in schemas for n in (*s.attributes, *(f.name for f in s.inputs))}
            hint = spelling.hint(name, known, f"it has {', '.join(sorted(known))}")
            raise PatternError(f"`{operator}` has no attribute or input `{name}`", span=term.span or call.span, hint=hint)
        if not specs and all(p < len(call.arguments) for p in positions):
            message = f"the input `{name}` of `{operator}` is given twice"
            raise PatternError(message, span=term.span or call.span, hint="it is already given by position")
        if specs and not positions:
            for literal in (t for t in _values(term) if isinstance(t, Literal)):
                if not any(_fits(spec, literal.value) for spec in specs):
                    message = f"the attribute `{name}` of `{operator}` is of type {specs[0].type}"
                    raise PatternError(
                        message, span=literal.span or call.span, hint=f"write {_EXAMPLES.get(specs[0].type, 'a name')}"
                    )
    if not call.rest:
        _check_required(call, operator, schemas)


def _check_required(call: Apply, operator: Operator, schemas: tuple[Schema, ...]) -> None:
    # The latest schema decides: where an older one had a default, few models are that old.
    given = {name for name, _ in call.keywords}
    missing = sorted(n for n, a in schemas[0].attributes.items() if a.required and n not in given)
    if missing:
        name = missing[0]
        hint = f"add `{name}=…`, `{name}=_` for any, or `**rest`"
        raise PatternError(f"`{operator}` requires the attribute `{name}`", span=call.span, hint=hint)


def _check_arity(call: Apply, operator: Operator, schemas: tuple[Schema, ...], outputs: int) -> None:
    count = len(call.arguments)
    most = max(s.max_inputs for s in schemas)
    if count > most:
        raise PatternError(
            f"`{operator}` takes at most {most} inputs, not {count}", span=call.span, hint=_signature(operator, schemas[0])
        )
    named = {name for name, _ in call.keywords}
    # An input that older opsets have as an attribute may be left out where the attribute may.
    if all(count + sum(f.name in named for f in s.inputs[count:]) < s.min_inputs for s in schemas):
        least = min(s.min_inputs for s in schemas)
        message = f"`{operator}` takes at least {least} input{'s' if least > 1 else ''}, not {count}"
        raise PatternError(message, span=call.span, hint=_signature(operator, schemas[0]))
    results = max(s.max_outputs for s in schemas)
    if outputs > results:
        message = f"`{operator}` has at most {results} result{'s' if results > 1 else ''}, not {outputs}"
        raise PatternError(message, span=call.span, hint="assign fewer names")


def _signature(operator: Operator, schema: Schema) -> str:
    inputs = ", ".join(f"[{f.name}]" if f.optional else f"{f.name}…" if f.variadic else f.name for f in schema.inputs)
    return f"it is `{operator}({inputs})`"


_EXAMPLES = {
    "FLOAT": "a number",
    "INT": "a whole number",
    "STRING": "a string in quotes",
    "FLOATS": "a list of numbers, `[0.5, 1]`",
    "INTS": "a list of whole numbers, `[0, 1]`",
    "STRINGS": 'a list of strings, `["a"]`',
}


def _fits(spec: AttributeSpec, value: Static) -> bool:
    match spec.type:
        case "FLOAT":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "INT":
            return isinstance(value, int)
        case "STRING":
            return isinstance(value, str)
        case "FLOATS":
            return isinstance(value, tuple) and all(isinstance(v, (int, float)) for v in value)
        case "INTS":
            return isinstance(value, tuple) and all(isinstance(v, int) for v in value)
        case "STRINGS":
            return isinstance(value, tuple) and all(isinstance(v, str) for v in value)
        case _:
            return False


def _values(term: Term) -> Iterator[Term]:
    """What a keyword can stand for: the alternatives of an Either, else the term itself."""
    return iter(term.alternatives) if isinstance(term, Either) else iter((term,))


# Replacements


def _check_target(target: str, call: Apply, captured: dict[str, tuple[Operator, ...]]) -> None:
    for operator in call.operators or captured.get(call.capture or "", ()):
        known = operators.history(operator.name, operator.domain)
        if target == "standard" and not operators.is_standard(operator.name, operator.domain):
            hint = "write operators of ONNX, or put it under `onnxruntime`"
            raise PatternError(f"`{operator}` is not an operator of the standard", span=call.span, hint=hint)
        if known and operators.schema(operator.name, operator.domain) is None:
            message = f"`{operator}` was withdrawn from the standard, last seen at opset {known[0].since_version}"
            raise PatternError(message, span=call.span, hint="write what took its place")


def _check_defaults(pattern: Pattern, block: Block, captured: dict[str, tuple[Operator, ...]]) -> None:
    """What a replacement leaves out must mean what the match meant by it.

    An operator of the replacement has an attribute with a default and leaves it out. Every operator of the match that has an
    attribute of the same name must then mean this default: by its own default, or by a literal. Else the author has to say which
    is meant.
    """
    for call in (c for assignment in block for c in _calls(assignment.term) if not c.rest):
        for operator in call.operators or captured.get(call.capture or "", ()):
            schema = operators.schema(operator.name, operator.domain)
            for name, spec in sorted(schema.attributes.items()) if schema else ():
                if spec.default is not None and call.keyword(name) is None:
                    _check_default(pattern, call, operator, spec)


def _check_default(pattern: Pattern, call: Apply, target: Operator, spec: AttributeSpec) -> None:
    for source in (c for assignment in pattern.match for c in _calls(assignment.term)):
        for operator in source.operators:
            schema = operators.schema(operator.name, operator.domain)
            if schema is None or spec.name not in schema.attributes:
                continue
            given = source.keyword(spec.name)
            meant = schema.attributes[spec.name].default
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
