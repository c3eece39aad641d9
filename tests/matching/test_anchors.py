"""The prefilter: where a pattern can't start, judged by its operators before any term is matched."""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random

import pytest

from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.matching.anchors import choose, needs
from onnx_subgraph.matching.normal import NormalPattern, Operation, walk
from onnx_subgraph.matching.normalise import normalise


@cache
def built_in() -> tuple[NormalPattern, ...]:
    return tuple(normalise(pattern) for pattern in load_patterns().patterns if pattern.is_formula)


@pytest.mark.parametrize("seed", range(20))
def test_a_pattern_whose_operators_a_graph_lacks_has_no_anchor(seed: int) -> None:
    """The prefilter by operators skips exactly the patterns that the anchor cost would skip."""
    random = Random(seed)
    every = sorted({o for n in built_in() for t in walk(n.primary) if isinstance(t, Operation) for o in t.operators})
    present = set(random.sample(every, k=len(every) * (seed + 1) // 22))
    skipped = Counter[bool]()
    for normal in built_in():
        needed = needs(normal.primary)
        lacks = any(map(present.isdisjoint, needed))
        cost = choose(normal.primary, lambda operators: len(present & operators)).cost
        assert lacks == (cost == 0) or not needed, normal.pattern.id  # a pattern of chains alone is not prefiltered
        skipped[lacks] += 1
    assert skipped[True]
    assert skipped[False]
