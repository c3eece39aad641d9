"""Twins: items of a sum or product that are equal except for their names, so that they are interchangeable.

In `a * b + c * d` neither the order of the products nor that of their factors matters, unless the pattern uses one of the names
elsewhere. The matcher tries one of the equivalent assignments; for n products there are n! * 2 ** n.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping

from onnx_subgraph.language import term as syntax
from onnx_subgraph.matching.normal import Chain, Constant, Layout, Name, Normal, Nothing, Operation, walk


def twins(roots: Iterable[Normal], mentioned: Collection[str]) -> Mapping[int, int]:
    """`id` of an item with a twin in the same chain → the number of its class.

    mentioned: the names used outside the terms: in a sentence, an attribute, or the list of shared values.
    """
    terms = [term for root in roots for term in walk(root)]
    own = _own_names(terms, mentioned)
    classes: dict[int, int] = {}
    for chain in terms:
        if not isinstance(chain, Chain):
            continue
        alike: dict[Hashable, list[Normal]] = {}
        for item, power in chain.items:
            signature = _signature(item, own, {})
            if signature is not None:
                alike.setdefault((signature, power), []).append(item)
        for members in alike.values():
            if len(members) > 1:
                number = len(classes)
                classes.update((id(member), number) for member in members)
    return classes


def _own_names(terms: Iterable[Normal], mentioned: Collection[str]) -> frozenset[str]:
    """The free names that occur once in the pattern and are not used elsewhere."""
    counts: Counter[str] = Counter()
    taken = set(mentioned)
    for term in terms:
        if isinstance(term, Name) and term.definition is None:
            counts[term.name] += 1
        elif isinstance(term, Operation):
            taken.update(t.name for _, k in term.term.keywords for t in syntax.walk(k) if isinstance(t, syntax.Variable))
    return frozenset(name for name, count in counts.items() if count == 1 and name not in taken)


def _signature(term: Normal, own: frozenset[str], numbers: dict[str, int]) -> Hashable | None:
    """A key that twins share: the term with its own names numbered by first appearance; None where it cannot have a twin."""
    match term:
        case Name(optional=optional) if optional is not None:
            return None
        case Name(name=name, definition=None):
            return ("own", numbers.setdefault(name, len(numbers))) if name in own else ("name", name)
        case Name() | Layout():
            return ("this", id(term))
        case Constant(value=value):
            return ("constant", value)
        case Nothing():
            return ("nothing",)
        case Chain(is_product=is_product, constant=constant, items=items, scalar=None):
            inside = tuple((_signature(item, own, numbers), power) for item, power in items)
            return None if any(s is None for s, _ in inside) else ("chain", is_product, constant, inside)
        case Operation(term=applied, operators=operators, arguments=arguments, assignment=-1):
            given = tuple(_signature(argument, own, numbers) for argument in arguments)
            is_fixed = applied.rest is None and all(isinstance(value, syntax.Literal) for _, value in applied.keywords)
            if not is_fixed or applied.capture or len(operators) > 1 or any(s is None for s in given):
                return None
            return ("operation", operators, tuple((key, str(value)) for key, value in applied.keywords), given)
        case _:
            return None
