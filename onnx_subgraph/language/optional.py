"""Optional names: `Conv(x, w, b?)`, `scale? * (q @ k) + mask?`.

`?` is not in Python's grammar, so it is processed first. Each `?` outside strings and comments is replaced by a space, which
keeps all columns, and its place is recorded (`marks`). `check_optional` checks where optional names may be used.
"""

from __future__ import annotations

import re

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language.term import Apply, Chain, Either, Literal, Term, Variable, children, walk

MOST_OPTIONAL = 6
"""Maximum number of optional items in one sum or product; each doubles the number of forms."""
USAGE = "it may mark an optional input or an item of a sum or product: `Conv(x, w, b?)`, `scale? * x`"

_TOKEN = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\?""")

Place = tuple[int, int]
"""A 1-based line and a 0-based column, in characters."""


def without_marks(text: str) -> tuple[str, frozenset[Place]]:
    """`text` with a space for each `?` outside strings and comments, and the places of these."""
    places: set[Place] = set()

    def blank(token: re.Match[str]) -> str:
        if token[0] != "?":
            return token[0]
        start = token.start()
        places.add((text.count("\n", 0, start) + 1, start - (text.rfind("\n", 0, start) + 1)))
        return " "

    return _TOKEN.sub(blank, text), frozenset(places)


def is_optional(term: Term) -> bool:
    """Whether `term` is a name that may be absent."""
    return isinstance(term, Variable) and term.optional


def check_optional(term: Term) -> None:
    """Raise PatternError where an optional name is used in `term` where nothing may be absent."""
    if is_optional(term):
        raise _misplaced(term, "a line without a result can't match")
    for outer in walk(term):
        if isinstance(outer, Chain):
            _check_chain(outer)
            continue
        allowed = outer.arguments if isinstance(outer, Apply) else ()
        for inner in children(outer):
            if is_optional(inner) and not any(inner is argument for argument in allowed):
                raise _misplaced(inner, _reason(outer))


def _check_chain(chain: Chain) -> None:
    optional = [t for t, _ in chain.items if is_optional(t)]
    if len(optional) > MOST_OPTIONAL:
        message = f"more than {MOST_OPTIONAL} optional items in one sum or product"
        raise PatternError(message, span=optional[MOST_OPTIONAL].span, hint="split the pattern in two")
    if optional and all(is_optional(t) or isinstance(t, Literal) for t, _ in chain.items):
        message = f"nothing is left of `{chain}` if all its optional items are absent"
        raise PatternError(message, span=chain.span, hint="leave out one `?`")


def _misplaced(term: Term, reason: str) -> PatternError:
    assert isinstance(term, Variable)
    message = f"`{term.name}` can't be optional here: {reason}"
    return PatternError(message, span=term.span, hint=f"leave the `?` out; {USAGE}")


def _reason(outer: Term) -> str:
    match outer:
        case Apply():
            return "a name behind a keyword is absent wherever the model does not have it"
        case Either():
            return "one of the alternatives must match"
        case _:
            return "layout needs a value to work on"
