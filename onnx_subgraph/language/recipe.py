"""The recipes of `rearrange` and `repeat`: einops' notation, checked by einops' own parser.

A recipe names the axes of a value, `b s (h d) -> b h s d`; the names bind to dimensions. einops is imported only when a recipe is
read.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection

UNCHANGED = "... -> ..."
"""The recipe of a rearrangement whose result equals its input, whatever the intermediate steps."""
_AXIS = re.compile(r"[A-Za-z_]\w*")


def recipe_axes(recipe: str) -> tuple[str, ...]:
    """The named axes of a recipe, without repetition, in the order written: `b s (h d) -> …` has b, s, h, d."""
    return tuple(dict.fromkeys(_AXIS.findall(recipe)))


def recipe_mistake(word: str, recipe: str, sizes: Collection[str]) -> str | None:
    """What is wrong with the recipe of `rearrange` or `repeat`, or None. sizes: the axes whose sizes are given."""
    from einops import EinopsError
    from einops.parsing import ParsedExpression

    if "..." in recipe and recipe != UNCHANGED:
        return f"`...` stands for all axes, in `{UNCHANGED}` alone"
    sides = recipe.split("->")
    if len(sides) != 2:
        return "a recipe has one `->`"
    reserved = next((axis for axis in recipe_axes(recipe) if keyword.iskeyword(axis) or axis == "_"), None)
    if reserved is not None:
        return f"`{reserved}` can't name an axis"
    try:
        left, right = (ParsedExpression(side) for side in sides)
    except (EinopsError, ValueError) as error:
        return f"not a recipe: {str(error).strip()}"
    if left.has_non_unitary_anonymous_axes or right.has_non_unitary_anonymous_axes:
        return "an axis is a name or 1, not a number"
    before, after = set(left.identifiers), set(right.identifiers)
    unknown = sorted(set(sizes) - before - after)
    if unknown:
        return f"`{unknown[0]}` is not an axis of the recipe"
    lost = sorted(map(str, before - after))
    if lost:
        return f"the axis `{lost[0]}` is lost on the right"
    new = sorted(map(str, after - before))
    if new and word == "rearrange":
        return f"the axis `{new[0]}` is not on the left"
    return None
