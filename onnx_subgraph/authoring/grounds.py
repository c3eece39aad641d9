"""What each part of a written pattern rests on, in words."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_subgraph.matching.sizes import shape_words, sizes
from onnx_subgraph.mining.formula import Formula, number_text, slots
from onnx_subgraph.mining.mine import Occurrence

MOST_SHOWN = 5
"""Numbers of one name that are shown."""


def grounds(places: Sequence[Occurrence], formula: Formula) -> tuple[str, ...]:
    """One sentence for each number, constant, axis and result of the formula."""
    first = places[0]
    count = f"{len(places)} place{'' if len(places) == 1 else 's'}"
    order = [first.atoms.index(atom) for atom in first.in_order]
    said = [f"Written from {count}, such as {first.name} of {first.model.name}."]
    names = {slot: name for name, slot in formula.numbers.items()}
    literals: dict[str, None] = {}
    for number, aligned in enumerate(order):
        everywhere = [slots(number, one.atoms[aligned]) for one in places]
        for position, (slot, here) in enumerate(everywhere[0]):
            values = dict.fromkeys(number_text(of_place[position][1]) for of_place in everywhere)
            if slot in names:
                shown = ", ".join(list(values)[:MOST_SHOWN]) + (", …" if len(values) > MOST_SHOWN else "")
                said.append(f"{names[slot]} is a name: it is {shown} in {count}.")
            else:
                literals[number_text(here)] = None
    if literals:
        same = "the same in" if len(places) > 1 else "as in"
        said.append(f"{', '.join(literals)} {'is' if len(literals) == 1 else 'are'} written out: {same} {count}.")
    constant = {o.value for atom in first.atoms for o in atom.operands if o.constant}
    for name, value in formula.values.items():
        if value in constant:
            said.append(f"{name} may be any value: it is a constant of shape {shape_words(sizes(value) or ())} there.")
    said += [f"{name} may be absent: not all of the {count} have it." for name in formula.optional]
    if formula.axes:
        said.append(
            f"{', '.join(formula.axes)} and the other axes of rearrange have any size; those of one letter are the same axis."
        )
    if len(formula.results) > 1:
        said.append(f"{', '.join(formula.results)} are results: others read them.")
    return tuple(said)
