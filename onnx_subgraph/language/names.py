"""How the names of a pattern hang together: what is free, what is captured, what is bound, and what is used.

The rules for the files: no undefined name, no unused capture, a replacement assigns only what was matched, and every free value
has an example.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from onnx_subgraph.errors import PatternError, Span
from onnx_subgraph.language import spelling
from onnx_subgraph.language.pattern import Expression, Pattern
from onnx_subgraph.language.recipe import recipe_axes
from onnx_subgraph.language.sentence import free_names, place_of
from onnx_subgraph.language.source import Fields
from onnx_subgraph.language.term import Apply, Block, Rearrange, Variable, walk


def free_values(block: Block) -> tuple[str, ...]:
    """The names that the block uses as values and does not assign, in the order written; `_` is not among them.

    A name that stands only behind keywords (an attribute, or a constant input) is in `static_captures` instead.
    """
    statics = {id(v) for v in _static_variables(block)}
    found = [v.name for v in _variables(block) if id(v) not in statics]
    return tuple(dict.fromkeys(n for n in found if n not in block.names))


def static_captures(block: Block) -> tuple[str, ...]:
    """The names that the block binds only behind keywords (`epsilon=eps`, `axis=a`), in the order written."""
    values = set(free_values(block))
    axes = set(axis_names(block))
    found = (v.name for v in _static_variables(block))
    return tuple(dict.fromkeys(n for n in found if n not in values and n not in axes and n not in block.names))


def axis_names(block: Block) -> tuple[str, ...]:
    """The axes that the recipes of the block name, in the order written."""
    recipes = (t.recipe for a in block for t in walk(a.term) if isinstance(t, Rearrange))
    return tuple(dict.fromkeys(axis for recipe in recipes for axis in recipe_axes(recipe)))


def operator_captures(block: Block) -> frozenset[str]:
    """The names that remember an operator: `act` of `act[Relu | Tanh](x)`."""
    return frozenset(t.capture for a in block for t in walk(a.term) if isinstance(t, Apply) and t.capture and t.operators)


def rest_captures(block: Block) -> frozenset[str]:
    """The names that capture the remaining attributes: `rest` of `**rest`."""
    return frozenset(t.rest for a in block for t in walk(a.term) if isinstance(t, Apply) and t.rest)


def check_names(pattern: Pattern, fields: Fields) -> None:
    """Raises PatternError at the first name that breaks a law. fields: the file, for places."""
    _check_match(pattern)
    _check_sentences(pattern)
    for block in pattern.replace.values():
        _check_replacement(pattern, block)
    _check_unused(pattern)
    _check_example(pattern, fields)


def _check_match(pattern: Pattern) -> None:
    axes = set(axis_names(pattern.match))
    kinds = {
        **dict.fromkeys(operator_captures(pattern.match), "an operator"),
        **dict.fromkeys(rest_captures(pattern.match), "attributes"),
    }
    statics = {id(v) for v in _static_variables(pattern.match)}
    for variable in _variables(pattern.match):
        if variable.name in kinds:
            raise PatternError(
                f"`{variable.name}` captures {kinds[variable.name]}, it is not a value", span=variable.span, hint="rename one"
            )
        if variable.name in axes and id(variable) not in statics:
            raise PatternError(
                f"`{variable.name}` is an axis, it is not a value", span=variable.span, hint="rename the axis or the value"
            )
    for assignment in pattern.match:
        for name in assignment.names:
            if name in axes or name in kinds:
                kind = "an axis" if name in axes else f"the name of {kinds[name]}"
                raise PatternError(f"`{name}` is assigned, and it is {kind}", span=assignment.span, hint="rename one of them")
    for name in operator_captures(pattern.match) & rest_captures(pattern.match):
        raise PatternError(
            f"`{name}` captures an operator and attributes", span=_place(pattern.match, name), hint="rename one of them"
        )
    assigned: set[str] = set()
    for assignment in pattern.match:
        for variable in (t for t in walk(assignment.term) if isinstance(t, Variable)):
            if variable.name in pattern.match.names and variable.name not in assigned:
                hint = "move the line that assigns it up, or rename one of them"
                raise PatternError(f"`{variable.name}` is used before it is assigned", span=variable.span, hint=hint)
        assigned.update(assignment.names)
        if all(n == "_" for n in assignment.names):
            raise PatternError("the line assigns no name", span=assignment.span, hint="name a result that is needed")


def _check_sentences(pattern: Pattern) -> None:
    known = set(_bound(pattern))
    for name, expression in pattern.let:
        if name in known:
            raise PatternError(f"`{name}` has a meaning already", span=expression.span, hint="give it another name")
        _check_sentence(expression, known)
        known.add(name)
    for sentence in pattern.where:
        _check_sentence(sentence, known)


def _check_sentence(expression: Expression, known: set[str]) -> None:
    for name in free_names(expression):
        if name not in known:
            raise _undefined(name, known, place_of(expression, name))


def _check_replacement(pattern: Pattern, block: Block) -> None:
    rests = rest_captures(pattern.match)
    known = {*_bound(pattern), *(name for name, _ in pattern.let)} - rests
    for assignment in block:
        for term in walk(assignment.term):
            if isinstance(term, Variable) and term.name != "_" and term.name not in known:
                raise _undefined(term.name, known, term.span)
            if isinstance(term, Apply) and term.rest and term.rest not in rests:
                raise PatternError(
                    f"`**{term.rest}` is not captured in `match`", span=term.span, hint=spelling.hint(term.rest, rests)
                )
        for name in assignment.names:
            if name != "_" and name not in pattern.match.names:
                hint = spelling.hint(name, pattern.match.names, "nest the call where it is used")
                raise PatternError(f"`{name}` is not assigned in `match`, so nothing takes it", span=assignment.span, hint=hint)
        if all(n == "_" for n in assignment.names):
            raise PatternError("the line assigns no name", span=assignment.span, hint="name the matched value that it provides")


def _check_unused(pattern: Pattern) -> None:
    """A name that stands once is bound and never asked for. Without a replacement the match itself is the body, and uses all."""
    uses = Counter(n for a in pattern.match for n in (*a.names, *_used(a.term)))
    for block in pattern.replace.values():
        uses.update(n for a in block for n in (*a.names, *_used(a.term)))
    for expression in (*pattern.where, *(e for _, e in pattern.let)):
        uses.update(free_names(expression))
    axes = axis_names(pattern.match)
    for name, expression in pattern.let:
        if not uses[name]:
            raise PatternError(
                f"`{name}` is not used", span=expression.span, hint="use it in `where` or `replace`, or leave it out"
            )
    for name in pattern.match.names:
        if uses[name] < 2 and pattern.replace:
            hint = "assign it in `replace`, use it in `match`, or write `_` for a result that nobody needs"
            raise PatternError(f"`{name}` is not used", span=_place(pattern.match, name), hint=hint)
    for name in (*free_values(pattern.match), *static_captures(pattern.match), *rest_captures(pattern.match)):
        if uses[name] < 2 and name not in axes and pattern.replace:
            hint = "write `_` for any value, or use it in `replace`"
            if name in rest_captures(pattern.match):
                hint = f"leave `**{name}` out, or hand it on in `replace`"
            raise PatternError(f"`{name}` is captured and not used", span=_place(pattern.match, name), hint=hint)
    for name in operator_captures(pattern.match):
        if uses[name] < 2 and pattern.replace:
            hint = f"leave `{name}[…]` out, `(A | B)(x)`, or call `{name}(…)` in `replace`"
            raise PatternError(f"`{name}` is captured and not used", span=_place(pattern.match, name), hint=hint)


def _check_example(pattern: Pattern, fields: Fields) -> None:
    values = free_values(pattern.match)
    statics = static_captures(pattern.match)
    known = {*values, *statics, *axis_names(pattern.match)}
    example = fields.get("example")
    for name, given in pattern.example.items():
        key = example.key(name) if isinstance(example, Fields) else None
        span = None if key is None else key.span
        if name not in known:
            raise PatternError(f"`{name}` is not a free value of `match`", span=span, hint=spelling.hint(name, known))
        if name not in values and given.value is None:
            raise PatternError(
                f"`{name}` is an attribute or an axis, not a tensor", span=span, hint=f"give its value: `{name}: 2`"
            )
    for name in (*values, *statics):
        if name not in pattern.example:
            written = f"{name}: 1" if name in statics else f'{name}: "float32[2, 8]"'
            raise PatternError(f"`{name}` has no example", span=_place(pattern.match, name), hint=f"add `{written}` to `example`")


def _bound(pattern: Pattern) -> Iterator[str]:
    """Every name that a match can bind."""
    match = pattern.match
    yield from match.names
    yield from free_values(match)
    yield from static_captures(match)
    yield from axis_names(match)
    yield from operator_captures(match)
    yield from rest_captures(match)


def _variables(block: Block) -> Iterator[Variable]:
    for assignment in block:
        yield from (t for t in walk(assignment.term) if isinstance(t, Variable) and t.name != "_")


def _static_variables(block: Block) -> Iterator[Variable]:
    """The variables that stand behind a keyword of an operator or a size of a word."""
    for assignment in block:
        for term in walk(assignment.term):
            given = term.keywords if isinstance(term, Apply) else term.sizes if isinstance(term, Rearrange) else ()
            for _, value in given:
                yield from (t for t in walk(value) if isinstance(t, Variable) and t.name != "_")


def _used(term: object) -> Iterator[str]:
    for inner in walk(term):  # type: ignore[arg-type]
        if isinstance(inner, Variable):
            yield inner.name
        elif isinstance(inner, Apply):
            yield from (n for n in (inner.rest, inner.capture) if n)


def _place(block: Block, name: str) -> Span | None:
    """Where `name` first stands in the block."""
    for assignment in block:
        for term in walk(assignment.term):
            if isinstance(term, Variable) and term.name == name:
                return term.span
            if isinstance(term, Apply) and name in (term.rest, term.capture):
                return term.span
        if name in assignment.names:
            return assignment.span
    return None


def _undefined(name: str, known: set[str], span: Span | None) -> PatternError:
    return PatternError(f"`{name}` is not bound by `match` or `let`", span=span, hint=spelling.hint(name, known))
