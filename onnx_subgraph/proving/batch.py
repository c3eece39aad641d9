"""Which inputs of an instance have the axis of the batch first. In a symbolic spelling that axis has no size."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.recipe import Recipe, parse_recipe


def batched(pattern: Pattern, feeds: Mapping[str, np.ndarray]) -> frozenset[str]:
    """The inputs of highest rank, and those whose first axis has the same letter in a recipe.

    There are none if a first axis is split or 1, because a symbol can't say that it is a multiple of a number; if it is another
    axis elsewhere; if it moves to where axes are merged or split; or if only inputs of lower rank have a letter. An axis of the
    size 1 is one that is broadcast, if the first axis of another input is larger.
    """
    terms = [t for a in pattern.match for t in syntax.walk(a.term)]
    words = [t for t in terms if isinstance(t, syntax.Rearrange)]
    if any(word.word == "split" for word in words) and any(_moves_first(term) for term in terms):
        return frozenset()
    words = [word for word in words if word.recipe]
    recipes = [(word.source, parse_recipe(word.recipe)) for word in words]
    ranks = {name: array.ndim for name, array in feeds.items()}
    highest = [name for name, rank in ranks.items() if rank == max(ranks.values()) > 1]
    if not highest or not all(_keeps_first(recipe) for _, recipe in recipes):
        return frozenset()
    size = feeds[highest[0]].shape[0]
    if size == 1 and any(array.ndim > 2 and array.shape[0] != 1 for array in feeds.values()):
        return frozenset()
    letters = {source.name: r.left[0] for source, r in recipes if isinstance(source, syntax.Variable) and r.left}
    same = {letters[name] for name in highest if name in letters}
    if not same.isdisjoint(axis for _, recipe in recipes for axis in recipe.left[1:]):
        return frozenset()
    if not same and not letters.keys().isdisjoint(ranks):
        return frozenset()
    others = (name for name, letter in letters.items() if letter in same and ranks.get(name, 0) > 1)
    return frozenset(name for name in (*highest, *others) if feeds[name].shape[0] == size)


def _keeps_first(recipe: Recipe) -> bool:
    """Whether the first axis is one axis, before and after, and the same unless axes only change places."""
    sides = [side for side in (recipe.left, recipe.right) if side]
    only_moved = all(len(axis) == 1 for side in sides for axis in side)
    return all(len(side[0]) == 1 for side in sides) and (only_moved or len({side[0] for side in sides}) == 1)


def _moves_first(term: syntax.Term) -> bool:
    """Whether a term is a Transpose of the first axis."""
    keywords = dict(term.keywords) if isinstance(term, syntax.Apply) and term.operators[0].name == "Transpose" else {}
    perm = keywords.get("perm")
    return isinstance(perm, syntax.Literal) and isinstance(perm.value, tuple) and perm.value[:1] != (0,)
