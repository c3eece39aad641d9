"""Which near misses a person who fuses a model wants to hear of.

Many places look a little like a pattern: every Add after a MatMul nearly is a Gemm. `fuse` shows those that came most of the
way, or failed at a number, through operators that say something, where nothing else was fused and the target has a replacement;
`explain` those that came most of the way whatever the target, and asked about one pattern or node all.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from onnx_subgraph.language.term import Apply, Block, Chain, Either, Rearrange, Term, children, operators_of, walk

if TYPE_CHECKING:
    from onnx_subgraph.language.library import Library
    from onnx_subgraph.language.pattern import Pattern
    from onnx_subgraph.matching.match import NearMiss
    from onnx_subgraph.pipeline import FuseResult

LEAST = 3
"""Two operators in a row are found everywhere; from three on a likeness says something."""
MOST_OF_THE_WAY = 2 / 3
"""The part of a pattern's operators that must have matched."""
ROUNDED = 0.1
"""The relative difference of a constant that somebody may have rounded."""
INSTEAD = {"onnxruntime": ("standard",)}
"""Target → the other targets whose replacement it takes where it has none."""


def telling(result: FuseResult, library: Library) -> FuseResult:
    """`result` with only the near misses that are worth telling whoever fuses the model."""
    gone = {node for rewrite in result.rewrites for node in rewrite.replaces if node}
    made = {(rewrite.node, rewrite.op) for rewrite in result.rewrites}
    known = {pattern.id: pattern for pattern in library.patterns}

    def tells(miss: NearMiss) -> bool:
        pattern = known.get(miss.pattern)
        if pattern is None:
            return False
        block = _replacement(pattern, result.target)
        if block is None and result.target != "function":
            return False
        places = {miss.anchor, miss.node}
        emitted = operators_of(block) if block is not None else set()
        if places & gone or any((place, op) in made for place in places for op in emitted):
            return False
        nearly = miss.matched >= max(LEAST, MOST_OF_THE_WAY * size(pattern.match))
        return _says_something(pattern) and (nearly or _is_another_number(miss))

    return replace(result, near_misses=tuple(miss for miss in result.near_misses if tells(miss)))


def answering(result: FuseResult, library: Library) -> FuseResult:
    """`result` with only the near misses that answer why nothing more was fused."""
    known = {pattern.id: pattern for pattern in library.patterns}
    return replace(result, near_misses=tuple(m for m in result.near_misses if _answers(m, known.get(m.pattern))))


def unfused(result: FuseResult) -> FuseResult:
    """`result` with only the near misses of the model as it was, whose place was not fused after all.

    A place is fused where its own pattern, or one that took about as much away, was replaced; what failed at an operator that
    another fusion put there says nothing to the model's author.
    """
    by_node = {node: rewrite for rewrite in result.rewrites for node in rewrite.replaces if node}
    ops = {rewrite.node: rewrite.op for rewrite in result.rewrites if rewrite.op}

    def is_left(miss: NearMiss) -> bool:
        taken = [by_node[place] for place in {miss.anchor, miss.node} if place in by_node]
        if any(rewrite.pattern == miss.pattern or 2 * len(rewrite.replaces) >= miss.matched for rewrite in taken):
            return False
        return miss.node not in ops or not miss.found.startswith(ops[miss.node])

    return replace(result, near_misses=tuple(filter(is_left, result.near_misses)))


def _answers(miss: NearMiss, pattern: Pattern | None) -> bool:
    if pattern is None or pattern.grow is not None:
        return pattern is not None
    if not _says_something(pattern) or " that reads `" in miss.expected:
        return False
    if all(isinstance(assignment.term, Rearrange) for assignment in pattern.match) and not miss.expected.startswith("`"):
        return False  # every chain of layout operators is another rearrangement
    whole = size(pattern.match)
    return miss.matched >= max(min(LEAST, whole), MOST_OF_THE_WAY * whole) or _is_near_number(miss)


def size(block: Block) -> int:
    """How many operators the smallest graph has that `block` matches."""
    return sum(_size(assignment.term) for assignment in block)


def _size(term: Term) -> int:
    match term:
        case Either(alternatives=alternatives):
            return min(map(_size, alternatives))
        case Chain(items=items):
            return len(items) - 1 + sum(map(_size, children(term)))
        case Apply() | Rearrange():
            return 1 + sum(map(_size, children(term)))
        case _:
            return 0


def _is_another_number(miss: NearMiss) -> bool:
    """Whether only a constant is another one: somebody rounded it too far, or wrote another function on purpose."""
    return miss.expected.startswith("the constant ") and re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", miss.found) is not None


def _is_near_number(miss: NearMiss) -> bool:
    """Whether only a constant is another one, and not by much."""
    if not _is_another_number(miss):
        return False
    wanted = float(miss.expected.removeprefix("the constant "))
    return abs(wanted - float(miss.found)) <= ROUNDED * abs(wanted)


def _says_something(pattern: Pattern) -> bool:
    """Whether it holds an operator besides + - * /, which are everywhere."""
    return any(isinstance(inner, Apply | Rearrange) for assignment in pattern.match for inner in walk(assignment.term))


def _replacement(pattern: Pattern, target: str) -> Block | None:
    return next((pattern.replace[t] for t in (target, *INSTEAD.get(target, ())) if t in pattern.replace), None)
