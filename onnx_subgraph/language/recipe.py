"""The recipes of `rearrange` and `repeat`: einops' notation, checked by einops' own parser.

A recipe names the axes of a value, `b s (h d) -> b h s d`; the names bind to dimensions. einops is imported only when a recipe is
read.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection
from functools import lru_cache

UNCHANGED = "... -> ..."
"""The recipe of a rearrangement whose result equals its input, whatever the intermediate steps."""
ELLIPSIS = "..."
"""The first axes of both sides of a recipe, which keep their order; any number of them."""
_HIDDEN = "ellipsis"
"""What the names begin with that stand for the axes of an ellipsis."""
_AXIS = re.compile(r"[A-Za-z_]\w*")


def recipe_axes(recipe: str) -> tuple[str, ...]:
    """The named axes of a recipe, without repetition, in the order written: `b s (h d) -> …` has b, s, h, d."""
    return tuple(dict.fromkeys(_AXIS.findall(recipe)))


@lru_cache(maxsize=1 << 12)
def ranked(recipe: str, rank: int, side: int = -1) -> str:
    """The recipe for a result of this rank, or for an input with side 0.

    `... d -> ... 1 d` is `ellipsis0 d -> ellipsis0 1 d` for a result of rank 3. A recipe without an ellipsis stays as it is. An
    ellipsis stands for no axis if the rank is too small for the other ones.
    """
    from einops.parsing import ParsedExpression

    if ELLIPSIS not in recipe:
        return recipe
    others = len(ParsedExpression(recipe.split("->")[side]).composition) - 1
    return recipe.replace(ELLIPSIS, " ".join(f"{_HIDDEN}{n}" for n in range(rank - others)))


@lru_cache(maxsize=1 << 12)
def hidden_axes(recipe: str) -> frozenset[str]:
    """The axes of a recipe from `ranked` that an ellipsis stands for."""
    return frozenset(axis for axis in recipe_axes(recipe) if axis.startswith(_HIDDEN))


def as_written(recipe: str) -> str:
    """The recipe that `ranked` was given."""
    return re.sub(rf"{_HIDDEN}\d+( {_HIDDEN}\d+)*", ELLIPSIS, recipe)


@lru_cache(maxsize=1 << 12)
def drops_axis(recipe: str) -> bool:
    """Whether a recipe does nothing but leave out one axis of size 1, as `b 1 d -> b d`."""
    left, _, right = (side.split() for side in recipe.partition("->"))
    return left.count("1") == 1 and "1" not in right and [axis for axis in left if axis != "1"] == right


def recipe_mistake(word: str, recipe: str, sizes: Collection[str]) -> str | None:
    """What is wrong with the recipe of `rearrange` or `repeat`, or None. sizes: the axes whose sizes are given."""
    from einops import EinopsError
    from einops.parsing import ParsedExpression

    sides = recipe.split("->")
    if len(sides) != 2:
        return "a recipe has one `->`"
    if ELLIPSIS in recipe and not all(side.split()[:1] == [ELLIPSIS] for side in sides):
        return f"`{ELLIPSIS}` stands for the first axes, at the beginning of both sides"
    reserved = next((axis for axis in recipe_axes(recipe) if keyword.iskeyword(axis) or axis == "_"), None)
    reserved = reserved or next(iter(hidden_axes(recipe)), None)
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
