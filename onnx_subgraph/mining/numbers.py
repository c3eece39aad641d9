"""Which numbers of a unit are a part of it, and which differ from place to place, and so have a name."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from onnx_subgraph.matching.view import close
from onnx_subgraph.mining.atom import Atom
from onnx_subgraph.mining.formula import Slot, slots

NAMES = "abcdefgh"


def named(occurrences: Sequence[Sequence[Atom]], order: Sequence[int], optional: Collection[Slot] = ()) -> dict[Slot, str]:
    """The names of the numbers that are not the same in all occurrences, whose atoms are aligned.

    order: for each atom of the formula, its place among the aligned ones. optional: numbers that have a name in any case.
    """
    found: dict[Slot, str] = {}
    first = occurrences[0]
    for number, place in enumerate(order):
        values = [[n for _, n in slots(number, atoms[place])] for atoms in occurrences]
        for (slot, here), others in zip(slots(number, first[place]), zip(*values, strict=True), strict=True):
            if slot in optional or not all(close(here, n, 2e-5) for n in others):
                used = len(found)
                found[slot] = NAMES[used] if used < len(NAMES) else f"a{used}"
    return found
