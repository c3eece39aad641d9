"""Which inputs of an instance have the axis of the batch first. In a symbolic spelling that axis has no size."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.matching.recipe import parse_recipe


def batched(pattern: Pattern, feeds: Mapping[str, np.ndarray]) -> frozenset[str]:
    """The inputs of highest rank, and those whose first axis has the same letter in a recipe.

    There are none if a first axis is split, or is 1: a symbol can't say that it is a multiple of a number, or 1.
    """
    words = (t for a in pattern.match for t in syntax.walk(a.term) if isinstance(t, syntax.Rearrange) and t.recipe)
    recipes = [(word.source, parse_recipe(word.recipe)) for word in words]
    ranks = {name: array.ndim for name, array in feeds.items()}
    highest = [name for name, rank in ranks.items() if rank == max(ranks.values()) > 1]
    if not highest or any(len(side[0]) != 1 for _, recipe in recipes for side in (recipe.left, recipe.right) if side):
        return frozenset()
    size = feeds[highest[0]].shape[0]
    letters = {source.name: r.left[0] for source, r in recipes if isinstance(source, syntax.Variable) and r.left}
    same = {letters[name] for name in highest if name in letters}
    others = (name for name, letter in letters.items() if letter in same and ranks.get(name, 0) > 1)
    return frozenset(name for name in (*highest, *others) if feeds[name].shape[0] == size)
