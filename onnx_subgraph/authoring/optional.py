"""Find the parts that only some places have: items of a sum or product that are optional in the formula.

Two units have one formula if the second unit is the first one without such items. If only one item of a sum or product is left,
it replaces the sum or product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, islice

import onnx_ir as ir

from onnx_subgraph.mining.atom import Atom, Items, Operand
from onnx_subgraph.mining.cluster import Cluster, Kinds
from onnx_subgraph.mining.formula import Slot
from onnx_subgraph.mining.mine import Occurrence

MOST_ITEMS = 3
"""Maximum number of items that one place may lack."""
MOST_TRIED = 200
"""Maximum number of combinations of items that are left out of one unit."""


@dataclass(frozen=True, slots=True)
class Family:
    """The places of one formula.

    places: those with all items come first. Their atoms are aligned; an atom without nodes is absent at its place.
    optional: the items that are absent at some places, as (number of the atom in the first place, number of the operand). The
    operand -1 is the number of a sum or product.
    """

    places: tuple[Occurrence, ...]
    optional: frozenset[Slot] = frozenset()


def family(chosen: Sequence[Occurrence], others: Sequence[Sequence[Occurrence]]) -> Family:
    """The chosen places, and those of other units that differ from them only by optional items."""
    kinds = Kinds()
    groups = {_cluster(kinds, group[0].in_order).kind: group for group in reversed((chosen, *others))}
    wanted = _cluster(kinds, chosen[0].in_order).kind
    best, lacking = chosen, dict[int, _Reduced]()
    for kind, group in groups.items():
        if not 0 <= len(group[0].atoms) - len(chosen[0].atoms) <= MOST_ITEMS:
            continue  # leaving out an item removes at most one atom, its sum or product
        found = _lacking(kinds, group[0].in_order, frozenset(groups) - {kind})
        if (wanted == kind or wanted in found) and len(found) > len(lacking):
            best, lacking = group, found
    places = [_padded(best[0], one, place, kinds) for kind, one in lacking.items() for place in groups[kind]]
    return Family((*best, *places), frozenset(slot for one in lacking.values() for slot in one.removed))


@dataclass(frozen=True, slots=True)
class _Reduced:
    """A unit without some items. atoms: number in the whole unit → atom. instead: number of an absent atom → value."""

    removed: tuple[Slot, ...]
    atoms: Mapping[int, Atom]
    instead: Mapping[int, ir.Value]
    cluster: Cluster


def _cluster(kinds: Kinds, atoms: Sequence[Atom]) -> Cluster:
    return kinds.of(0, atoms, range(len(atoms)))


def _lacking(kinds: Kinds, atoms: Sequence[Atom], wanted: frozenset[int]) -> dict[int, _Reduced]:
    """Kind → the unit of `atoms` without some items, for the wanted kinds."""
    items = list(_items(atoms))
    subsets = chain.from_iterable(combinations(items, count) for count in range(1, MOST_ITEMS + 1))
    found: dict[int, _Reduced] = {}
    for removed in islice(subsets, MOST_TRIED):
        one = _without(kinds, atoms, removed)
        if one is not None and one.cluster.kind in wanted:
            found.setdefault(one.cluster.kind, one)
    return found


def _items(atoms: Sequence[Atom]) -> Iterator[Slot]:
    """The items that can be optional: the number of a sum or product, or an outside value that is read once."""
    made = {value for atom in atoms for value in atom.results}
    reads = Counter(operand.value for atom in atoms for operand in atom.operands)
    for number, atom in enumerate(atoms):
        if isinstance(atom.form, Items):
            if atom.form.constant is not None:
                yield number, -1
            for place, operand in enumerate(atom.operands):
                if operand.number is None and operand.value not in made and reads[operand.value] == 1:
                    yield number, place


def _without(kinds: Kinds, atoms: Sequence[Atom], removed: tuple[Slot, ...]) -> _Reduced | None:
    """The unit without these items; None if a sum or product would be empty."""
    kept: dict[int, Atom] = {}
    instead: dict[ir.Value, Operand] = {}
    gone: dict[int, ir.Value] = {}
    for number, atom in enumerate(atoms):
        operands = tuple(
            replace(instead.get(operand.value, operand), port=operand.port)
            for place, operand in enumerate(atom.operands)
            if (number, place) not in removed
        )
        form = replace(atom.form, constant=None) if isinstance(atom.form, Items) and (number, -1) in removed else atom.form
        if not operands:
            return None
        if isinstance(form, Items) and form.constant is None and len(operands) == 1 and operands[0].port == 1:
            instead[atom.results[0]], gone[number] = operands[0], operands[0].value
        else:
            kept[number] = replace(atom, form=form, operands=operands)
    return _Reduced(removed, kept, gone, _cluster(kinds, tuple(kept.values()))) if kept else None


def _padded(whole: Occurrence, reduced: _Reduced, place: Occurrence, kinds: Kinds) -> Occurrence:
    """A place that lacks items, its atoms aligned with those of the whole unit."""
    ordered, own = place.in_order, _cluster(kinds, place.in_order)
    numbers = list(reduced.atoms)
    here = {numbers[i]: ordered[j] for i, j in zip(reduced.cluster.aligned, own.aligned, strict=True)}
    made = {value: (number, i) for number, atom in reduced.atoms.items() for i, value in enumerate(atom.results)}
    padded: dict[Atom, Atom] = {}
    for number, atom in enumerate(whole.in_order):
        if number not in here:
            source = made.get(reduced.instead[number])
            results = () if source is None else (here[source[0]].results[source[1]],)
            padded[atom] = replace(atom, nodes=(), results=results)
        elif (number, -1) in reduced.removed:
            padded[atom] = replace(here[number], form=atom.form)
        else:
            padded[atom] = here[number]
    return replace(place, atoms=tuple(padded[atom] for atom in whole.atoms))
