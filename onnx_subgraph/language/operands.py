"""Check the literals of a formula, and that it has something to look for. Element types as literals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language.term import Apply, Block, Chain, Either, Literal, Operator, Rearrange, Static, Term, Variable, walk
from onnx_subgraph.language.vocabulary import DTYPES

_NEUTRAL = {"+": 0, "*": 1}


def typed(term: Term) -> Term:
    """A keyword's value, in which the name of an element type is its number: `to=float16` is `to=10`."""
    match term:
        case Variable(name=name, span=span) if name in DTYPES and not term.optional:
            return Literal(DTYPES[name], name, span)
        case Either(alternatives=alternatives, span=span):
            return Either(tuple(map(typed, alternatives)), span)
    return term


def check_operands(match: Block, results: Iterable[str]) -> None:
    """Raise PatternError at a literal that is no operand, at a constant that is not finite, and at a result without operator."""
    for term in (term for line in match for term in walk(line.term)):
        for literal in _literals(term):
            _check_tensor(literal)
        if isinstance(term, Chain) and term.operator == "*":
            _check_factors(term)
        elif isinstance(term, Apply):
            _check_call(term)
    lines = {name: line for line in match for name in line.names}
    definitions = {name: line.term for name, line in lines.items()}
    for name in results:
        if name in lines and not _computes(Variable(name), definitions):
            message = f"there is no operator to look for: `{name}` is `{definitions[name]}`"
            raise PatternError(message, span=lines[name].span, hint=f"write `{name} = Operator(x)`; x + 0 and x * 1 are x")


def _literals(term: Term) -> Iterator[Literal]:
    """The literals that are operands of a term, not attributes."""
    match term:
        case Apply(arguments=arguments):
            operands = arguments
        case Chain(items=items):
            operands = tuple(item for item, _ in items)
        case Rearrange(source=source):
            operands = (source,)
        case _:
            return
    for operand in operands:
        for one in operand.alternatives if isinstance(operand, Either) else (operand,):
            if isinstance(one, Literal):
                yield one


def _check_tensor(literal: Literal) -> None:
    shape = _shape(literal.value)
    if shape is None:
        hint = "write a number, a list of numbers or a name; only attributes are text"
        raise PatternError(f"`{literal}` is text, and an operand is a number", span=literal.span, hint=hint)
    if -1 in shape:
        hint = "write lists of equal length, `[[1, 2], [3, 4]]`"
        raise PatternError(f"`{literal}` is no tensor: its parts have different shapes", span=literal.span, hint=hint)


def _shape(value: Static) -> tuple[int, ...] | None:
    """The shape of a literal; with -1 where its parts have different ones, None for text."""
    if not isinstance(value, tuple):
        return None if isinstance(value, str) else ()
    shapes = {_shape(part) for part in value}
    if None in shapes:
        return None
    return (len(value), *(next(iter(shapes), None) or ())) if len(shapes) < 2 else (-1,)


def _check_factors(product: Chain) -> None:
    for item, inverse in product.items:
        if isinstance(item, Literal) and item.value == 0:
            message = f"`{item}` divides" if inverse else f"`{product}` is 0"
            hint = "write a number that is not 0" if inverse else "leave the product out"
            raise PatternError(message, span=item.span, hint=hint)


def _check_call(call: Apply) -> None:
    if call.operators == (Operator("Identity"),):
        hint = f"leave it out: write `{call.arguments[0]}`"
        raise PatternError("the search looks through Identity, and never finds it", span=call.span, hint=hint)
    exponent = call.arguments[1] if call.operators == (Operator("Pow"),) else None
    value = exponent.value if isinstance(exponent, Literal) else None
    if exponent is not None and isinstance(value, int | float) and not (value and isfinite(value)):
        raise PatternError(f"`{exponent}` is no exponent", span=exponent.span, hint="write a finite number that is not 0")


def _computes(term: Term, definitions: dict[str, Term]) -> bool:
    """Whether an operator is left of a term, once what does nothing is left out."""
    match term:
        case Variable(name=name):
            return name in definitions and _computes(definitions[name], {n: t for n, t in definitions.items() if n != name})
        case Literal():
            return False
        case Either(alternatives=alternatives):
            return any(_computes(alternative, definitions) for alternative in alternatives)
        case Chain(operator=operator, items=items):
            left = [(t, i) for t, i in items if not (isinstance(t, Literal) and t.value == _NEUTRAL[operator])]
            return len(left) != 1 or left[0][1] or _computes(left[0][0], definitions)
    return True
