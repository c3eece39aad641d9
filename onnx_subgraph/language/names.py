"""Check the names of a pattern: which are free, captured, bound and used.

Every name is defined, and every capture is used. A replacement assigns only matched names. Every free value has an example.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from onnx_subgraph.errors import PatternError, Span
from onnx_subgraph.language import spelling
from onnx_subgraph.language.example import USAGE, each_example
from onnx_subgraph.language.expression import Expression
from onnx_subgraph.language.optional import is_optional
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.recipe import recipe_axes
from onnx_subgraph.language.sentence import free_names, place_of
from onnx_subgraph.language.source import Fields
from onnx_subgraph.language.term import Apply, Block, Conditional, Rearrange, Term, Variable, children, walk


class Bound(NamedTuple):
    """The names that a block binds, each kind in the order written.

    assigned: on the left of a line. values: free values, for which a caller provides a value; without `_`. statics: names used
    only as keyword arguments (an attribute, or a constant input). axes: of recipes. operators: `act` of `act[Relu | Tanh](x)`.
    rests: `rest` of `**rest`.
    """

    assigned: tuple[str, ...]
    values: tuple[str, ...]
    statics: tuple[str, ...]
    axes: tuple[str, ...]
    operators: tuple[str, ...]
    rests: tuple[str, ...]

    @property
    def all(self) -> frozenset[str]:
        """Every name that a match can bind."""
        return frozenset((*self.assigned, *self.values, *self.statics, *self.axes, *self.operators, *self.rests))


def bound(block: Block) -> Bound:
    """The names that `block` binds."""
    terms = [term for assignment in block for term in walk(assignment.term)]
    behind = {id(v) for v in _static_variables(terms)}
    variables = [t for t in terms if isinstance(t, Variable) and t.name != "_"]
    assigned = block.names
    axes = _unique(axis for t in terms if isinstance(t, Rearrange) for axis in recipe_axes(t.recipe))
    values = _unique(v.name for v in variables if id(v) not in behind and v.name not in assigned)
    known = {*assigned, *values, *axes}
    return Bound(
        assigned=assigned,
        values=values,
        statics=_unique(v.name for v in variables if id(v) in behind and v.name not in known),
        axes=axes,
        operators=_unique(t.capture for t in terms if isinstance(t, Apply) and t.capture and t.operators),
        rests=_unique(t.rest for t in terms if isinstance(t, Apply) and t.rest),
    )


def free_values(block: Block) -> tuple[str, ...]:
    """The names that the block uses as values and does not assign, in the order written; without `_`."""
    return bound(block).values


def fresh(stem: str, taken: set[str]) -> str:
    """A name that is not in `taken`: the stem, or the stem and a number. Adds it to `taken`."""
    name, number = stem, 1
    while name in taken:
        number += 1
        name = f"{stem}_{number}"
    taken.add(name)
    return name


def check_names(pattern: Pattern, fields: Fields) -> None:
    """Raise PatternError at the first name that breaks a rule. fields: the file, for places."""
    names = bound(pattern.match)
    _check_kinds(pattern.match, names)
    _check_order(pattern.match)
    _check_sentences(pattern, names)
    for block in (block for target in pattern.replace for block in pattern.blocks(target)):
        _check_replacement(pattern, block, names)
    _check_unused(pattern, names)
    _check_read(pattern)
    _check_example(pattern, fields, names)


def _check_kinds(match: Block, names: Bound) -> None:
    """Check that each name has one kind: a value, an axis, an operator, or attributes."""
    kinds = {
        **dict.fromkeys(names.axes, "an axis"),
        **dict.fromkeys(names.operators, "an operator"),
        **dict.fromkeys(names.rests, "attributes"),
    }
    if not kinds:
        return
    terms = [term for assignment in match for term in walk(assignment.term)]
    sizes = {id(v) for v in _static_variables(terms) if v.name in names.axes}  # an axis may also be a size or an attribute
    for term in terms:
        if isinstance(term, Variable) and term.name in kinds and id(term) not in sizes:
            message = f"`{term.name}` is {kinds[term.name]}, it is not a value"
            raise PatternError(message, span=term.span, hint="give one of the two another name")
    for assignment in match:
        for name in assignment.names:
            if name in kinds:
                message = f"`{name}` is assigned, and it is {kinds[name]}"
                raise PatternError(message, span=assignment.span, hint="give one of the two another name")
    for name in {*names.operators, *names.axes} & {*names.rests} | {*names.operators} & {*names.axes}:
        message = f"`{name}` stands for two things"
        raise PatternError(message, span=_place(match, name), hint="give one of the two another name")


def _check_order(match: Block) -> None:
    assigned: set[str] = set()
    for assignment in match:
        for variable in (t for t in walk(assignment.term) if isinstance(t, Variable)):
            if variable.name in match.names and variable.name not in assigned:
                hint = "move the line that assigns it up, or rename one of them"
                raise PatternError(f"`{variable.name}` is used before it is assigned", span=variable.span, hint=hint)
        assigned.update(assignment.names)
        if all(n == "_" for n in assignment.names):
            raise PatternError("the line assigns no name", span=assignment.span, hint="name a result that is needed")


def _check_sentences(pattern: Pattern, names: Bound) -> None:
    known = set(names.all)
    for name, expression in pattern.let:
        if name in known:
            raise PatternError(f"`{name}` has a meaning already", span=expression.span, hint="give it another name")
        _check_sentence(expression, known)
        known.add(name)
    for sentence in pattern.where:
        _check_sentence(sentence, known)
        if not free_names(sentence):
            hint = "say something of a name of `match`, such as `x.rank == 3`"
            raise PatternError(f"`{sentence}` is about nothing that is matched", span=sentence.span, hint=hint)


def _check_sentence(expression: Expression, known: set[str]) -> None:
    for name in free_names(expression):
        if name not in known:
            raise _undefined(name, known, place_of(expression, name))


def _check_replacement(pattern: Pattern, block: Block, names: Bound) -> None:
    rests = set(names.rests)
    known = {*names.all, *(name for name, _ in pattern.let)} - rests
    last = {name: position for position, line in enumerate(block.assignments) for name in _used(line.term)}
    for position, assignment in enumerate(block.assignments):
        for term in walk(assignment.term):
            if isinstance(term, Variable) and term.name != "_" and term.name not in known:
                raise _undefined(term.name, known, term.span)
            if isinstance(term, Conditional) and term.condition.name in (*names.values, *names.assigned):
                wanted = f"write `… if {term.condition} is not None else …`"
                raise PatternError(f"`{term.condition}` is a value, not a condition", span=term.span, hint=wanted)
            for argument in (a for a in children(term) if is_optional(a)) if isinstance(term, Apply) else ():
                raise PatternError(
                    "an input that is absent is left out by itself",
                    span=argument.span,
                    hint="leave the `?` out; in a sum or product it says that the item may be absent",
                )
            if isinstance(term, Apply) and term.rest and term.rest not in rests:
                raise PatternError(
                    f"`**{term.rest}` is not captured in `match`", span=term.span, hint=spelling.hint(term.rest, rests)
                )
        for name in assignment.names:
            if name != "_" and name not in names.assigned:
                if name in known or (last.get(name, -1) <= position and name not in block.requires.asked):
                    hint = spelling.hint(name, names.assigned, "assign what is matched, or use the name in a line below")
                    message = f"`{name}` is not assigned in `match`, so nothing takes it"
                    raise PatternError(message, span=assignment.span, hint=hint)
                known.add(name)
        if all(n == "_" for n in assignment.names):
            raise PatternError("the line assigns no name", span=assignment.span, hint="name the matched value that it provides")


def _check_unused(pattern: Pattern, names: Bound) -> None:
    """Check that every captured name is used. Without a replacement the match itself is the body, and uses all names."""
    blocks = (block for target in pattern.replace for block in pattern.blocks(target))
    uses = Counter(n for block in (pattern.match, *blocks) for a in block for n in (*a.names, *_used(a.term)))
    for expression in (*pattern.where, *(e for _, e in pattern.let)):
        uses.update(free_names(expression))
    derived = {} if pattern.raised is None else dict(pattern.raised.let)  # the definition may use what no lowering does
    for name, expression in pattern.let:
        if not uses[name] and name not in derived:
            raise PatternError(
                f"`{name}` is not used", span=expression.span, hint="use it in `where` or `replace`, or leave it out"
            )
    if not pattern.replace:
        return
    hints = {
        **dict.fromkeys(names.assigned, "assign it in `replace`, use it in `match`, or write `_` for a result that nobody needs"),
        **dict.fromkeys((*names.values, *names.statics), "write `_` for any value, or use it in `replace`"),
        **{name: f"leave `**{name}` out, or pass it on in `replace`" for name in names.rests},
        **{name: f"leave `{name}[…]` out, `(A | B)(x)`, or call `{name}(…)` in `replace`" for name in names.operators},
    }
    for name, hint in hints.items():
        if uses[name] < 2 and name not in names.axes:
            message = f"`{name}` is not used" if name in names.assigned else f"`{name}` is captured and not used"
            raise PatternError(message, span=_place(pattern.match, name), hint=hint)


def _check_read(pattern: Pattern) -> None:
    """Check that every line leads to a result. A line that is neither read nor a result would not be matched."""
    needed, lines = set(pattern.results), pattern.match.assignments
    for line in reversed(lines):
        if needed.isdisjoint(line.names):
            name = next(n for n in line.names if n != "_")
            asked = any(name in free_names(e) for e in (*pattern.where, *(e for _, e in pattern.let)))
            given = any(name in _used(a.term) for block in pattern.replace.values() for a in block)
            message = f"no line of `match` reads `{name}`, and no replacement provides it, so it would not be looked for"
            hint = "read it in a line below, assign it in `replace`, or leave the line out"
            if asked or given:
                hint = f"what {'a sentence asks of' if asked else '`replace` reads'} must be part of what is matched: {hint}"
            elif not pattern.replace:
                hint = "without `replace` the last line is the result: read it there, or name it under `results`"
            raise PatternError(message, span=line.span, hint=hint)
        needed.update(_used(line.term))


def _check_example(pattern: Pattern, fields: Fields, names: Bound) -> None:
    values, statics = names.values, names.statics
    known = {*values, *statics, *names.axes}
    example = fields.get("example")
    for name, given in pattern.example.items():
        entries = each_example(example) if isinstance(example, Fields) else None
        key, data = (None, None) if entries is None else (entries.key(name), entries.get(name))
        span = None if key is None else key.span
        if name not in known:
            raise PatternError(f"`{name}` is not a free value of `match`", span=span, hint=spelling.hint(name, known))
        if name not in values and given.value is None:
            raise PatternError(
                f"`{name}` is an attribute or an axis, not a tensor", span=span, hint=f"give its value: `{name}: 2`"
            )
        if name in values and given.value is not None and given.dtype == "string":
            place = span if data is None else data.span
            raise PatternError(f"the example of `{name}` is text, and `{name}` is a tensor", span=place, hint=USAGE)
    for name in (*values, *statics):
        if name not in pattern.example:
            written = f"{name}: 1" if name in statics else f'{name}: "float32[2, 8]"'
            raise PatternError(f"`{name}` has no example", span=_place(pattern.match, name), hint=f"add `{written}` to `example`")


def _static_variables(terms: Iterable[Term]) -> Iterator[Variable]:
    """The variables used as keyword arguments of an operator, or as sizes of `rearrange`, `repeat` or `split`."""
    for term in terms:
        given = term.keywords if isinstance(term, Apply) else term.sizes if isinstance(term, Rearrange) else ()
        for _, value in given:
            yield from (t for t in walk(value) if isinstance(t, Variable) and t.name != "_")


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _used(term: Term) -> Iterator[str]:
    for inner in walk(term):
        if isinstance(inner, Variable):
            yield inner.name
        elif isinstance(inner, Apply):
            yield from (n for n in (inner.rest, inner.capture) if n)


def _place(block: Block, name: str) -> Span | None:
    """The place where `name` first occurs in the block."""
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
