"""Check a call against the operator schemas: the operator exists, at any opset or today, and accepts its arguments."""

from __future__ import annotations

from collections.abc import Iterator

from onnx_subgraph import operators
from onnx_subgraph.errors import PatternError
from onnx_subgraph.language import spelling
from onnx_subgraph.language.optional import is_optional
from onnx_subgraph.language.term import (
    Apply,
    Assignment,
    Either,
    Literal,
    Omitted,
    Operator,
    Static,
    Term,
    walk,
)
from onnx_subgraph.language.vocabulary import DTYPES
from onnx_subgraph.operators import AttributeSpec, Schema


def calls(term: Term) -> Iterator[Apply]:
    """Every operator call in a term."""
    return (t for t in walk(term) if isinstance(t, Apply))


def check_assignment(
    assignment: Assignment,
    domains: frozenset[str],
    *,
    matching: bool,
    captured: dict[str, tuple[Operator, ...]] | None = None,
) -> None:
    """Raise PatternError at the first call of the line that its operator's schema does not allow.

    domains: domains whose operators are not checked. matching: accept operators of any opset; otherwise only of the latest.
    captured: the operators that a name in `name(…)` may stand for.
    """
    for call in calls(assignment.term):
        for operator in call.operators or (captured or {}).get(call.capture or "", ()):
            outputs = len(assignment.names) if call is assignment.term else 1
            schemas = _schemas(call, operator, domains)
            if not schemas:
                continue
            if not matching:
                schemas = schemas[:1]
            _check_keywords(call, operator, schemas)
            _check_optional_inputs(call, operator, schemas)
            _check_arity(call, operator, schemas, outputs)


def _schemas(call: Apply, operator: Operator, domains: frozenset[str]) -> tuple[Schema, ...]:
    """Every version of the operator; () for a domain of a pack. Raises PatternError where the operator is unknown."""
    found = operators.history(operator.name, operator.domain)
    if found or operator.domain in domains:
        return found
    if not operators.is_domain(operator.domain):
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
            known, today = (
                {n for s in some for n in (*s.attributes, *(f.name for f in s.inputs))} for some in (schemas, schemas[:1])
            )
            hint = spelling.hint(name, known, f"it has {', '.join(sorted(today))}")
            raise PatternError(f"`{operator}` has no attribute or input `{name}`", span=term.span or call.span, hint=hint)
        if not specs and all(p < len(call.arguments) for p in positions):
            message = f"the input `{name}` of `{operator}` is given twice"
            raise PatternError(message, span=term.span or call.span, hint="it is already given by position")
        if specs and not positions:
            for literal in (t for t in _values(term) if isinstance(t, Literal)):
                if not _fits(specs[0], literal.value):
                    message = f"the attribute `{name}` of `{operator}` is of type {specs[0].type}"
                    wanted = _EXAMPLES.get(specs[0].type, "a name")
                    if literal.value in DTYPES and specs[0].type == "INT":
                        wanted = f"`{name}={literal.value}`, without quotes"
                    raise PatternError(message, span=literal.span or call.span, hint=f"write {wanted}")
    if not call.rest:
        _check_required(call, operator, schemas)


def _check_required(call: Apply, operator: Operator, schemas: tuple[Schema, ...]) -> None:
    # The latest schema decides. Older ones may have had a default, but few models are that old.
    given = {name for name, _ in call.keywords}
    missing = sorted(n for n, a in schemas[0].attributes.items() if a.required and n not in given)
    if missing:
        name = missing[0]
        hint = f"add `{name}=…`, `{name}=_` for any, or `**rest`"
        raise PatternError(f"`{operator}` requires the attribute `{name}`", span=call.span, hint=hint)


def _check_optional_inputs(call: Apply, operator: Operator, schemas: tuple[Schema, ...]) -> None:
    for position, argument in enumerate(call.arguments):
        if not is_optional(argument) and not isinstance(argument, Omitted):
            continue
        formals = [s.inputs[min(position, len(s.inputs) - 1)] for s in schemas if position < s.max_inputs]
        if formals and not any(f.optional for f in formals):
            message = (
                f"`{str(argument).rstrip('?')}` can't be absent: the input `{formals[0].name}` of `{operator}` is not optional"
            )
            hint = "leave the `?` out"
            if isinstance(argument, Omitted):
                message, hint = (
                    f"`None` leaves out the input `{formals[0].name}` of `{operator}`, which is not optional",
                    "name a value",
                )
            raise PatternError(message, span=argument.span, hint=f"{hint}; {_signature(operator, schemas[0])}")


def _check_arity(call: Apply, operator: Operator, schemas: tuple[Schema, ...], outputs: int) -> None:
    count = len(call.arguments)
    most = max(s.max_inputs for s in schemas)
    if count > most:
        raise PatternError(
            f"`{operator}` takes at most {most} inputs, not {count}", span=call.span, hint=_signature(operator, schemas[0])
        )
    named = {name for name, _ in call.keywords}
    # If an older opset has the input as an attribute, it may be omitted when the attribute may.
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
    """The terms that a keyword can have: the alternatives of an Either, else the term itself."""
    return iter(term.alternatives) if isinstance(term, Either) else iter((term,))
