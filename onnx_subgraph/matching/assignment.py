"""Assign the items of a chain in the graph to the terms of a chain in the pattern.

Tries only the first of equivalent assignments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Protocol

import onnx_ir as ir

from onnx_subgraph.matching.failure import Kind, Recorder
from onnx_subgraph.matching.normal import Chain, Choice, Constant, Layout, Name, Normal, NormalPattern, Nothing, Operation
from onnx_subgraph.matching.state import State
from onnx_subgraph.matching.view import Virtual

Target = ir.Value | Virtual
Terms = tuple[tuple[Normal, float], ...]
"""The items of a sum or product in normal form, with their signs or exponents."""
Items = tuple[tuple[Target, float], ...]
"""The items of a sum or product in the graph, with their signs or exponents."""


class Matching(Protocol):
    """The part of the matcher that assignments need."""

    normal: NormalPattern
    recorder: Recorder

    def may(self, term: Normal, value: Target) -> bool:
        """Whether `value` can possibly match `term`; cheaper than matching."""
        ...

    def match(self, term: Normal, value: Target, state: State) -> Iterable[State]:
        """The states in which `value` equals `term`."""
        ...

    def negated(self, term: Chain | Name | Operation, value: Target, state: State) -> Iterable[State]:
        """The states in which `value` is the negative of `term`."""
        ...


def assigned(matcher: Matching, chain: Chain, items: Items, state: State) -> Iterator[State]:
    """Every assignment of the items to those of the chain. Of interchangeable terms (`twins`), the first gets the first item."""
    return _assigned(matcher, chain.items, items, tuple(range(len(items))), {}, state, chain.is_product)


def _assigned(
    matcher: Matching,
    terms: Terms,
    items: Items,
    free: tuple[int, ...],
    latest: Mapping[int, int],
    state: State,
    product: bool,
) -> Iterator[State]:
    """free: the positions of unassigned items. latest: class of twins → the position assigned to the last of them."""
    if not terms:
        yield state
        return
    chosen = min(range(len(terms)), key=lambda i: specificity(terms[i][0], state)) if len(terms) > 1 else 0
    (term, power), others = terms[chosen], terms[:chosen] + terms[chosen + 1 :]
    twin = matcher.normal.twins.get(id(term), -1)
    only = twin >= 0 and len(free) == len(terms) and all(matcher.normal.twins.get(id(t)) == twin for t, _ in others)
    tried = False
    for position in free[:1] if only else free:
        if twin >= 0 and position < latest.get(twin, -1):
            continue
        value, actual = items[position]
        if actual == power:
            if not matcher.may(term, value):
                continue
            tried = True
            found = matcher.match(term, value, state)
        elif not product and isinstance(term, Chain | Name | Operation) and actual == -power:
            found = matcher.negated(term, value, state)
        else:
            continue
        left = tuple(p for p in free if p != position)
        after = latest if twin < 0 else {**latest, twin: position}
        for reached in found:
            if others:
                yield from _assigned(matcher, others, items, left, after, reached, product)
            else:
                yield reached
    if not tried:
        other = next((items[p][0] for p in free if items[p][1] == power), None)
        if other is not None:
            matcher.recorder.fail(Kind.ITEM, state, term.span, other, term)
        else:
            said = (_operand_like(power) if product else "another addend", "", "")
            matcher.recorder.fail(Kind.ITEM, state, term.span, None, said=said)


def specificity(term: Normal, state: State | None = None) -> int:
    """The order of trying; smaller is first: structure, then bound names, then free names."""
    if isinstance(term, Name):
        return 2 if term.definition is not None or (state is not None and term.name in state.bindings) else 4
    return _SPECIFICITY[type(term)]


_SPECIFICITY = {Operation: 0, Layout: 0, Chain: 1, Constant: 1, Nothing: 1, Choice: 3}


@lru_cache(maxsize=1 << 14)
def most_specific_first(terms: tuple[Normal, ...]) -> tuple[int, ...]:
    """The positions of arguments in the order of trying."""
    return tuple(sorted(range(len(terms)), key=lambda i: specificity(terms[i])))


def _operand_like(power: float) -> str:
    """A description of a missing factor."""
    return "another factor" if power == 1 else f"a power of {power:g}"
