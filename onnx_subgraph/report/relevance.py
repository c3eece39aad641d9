"""Selects the near misses that are worth telling.

Many places resemble a pattern: every Add after a MatMul is nearly a Gemm. `fuse` shows near misses that came most of the way or
failed at a number, that contain distinctive operators, where nothing else was fused, and where the target has a replacement.
`explain` shows those that came most of the way, for any target; of patterns of one or two operators, what can be mended. About
one pattern it shows those that came furthest, about one node all.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, TypeGuard

from onnx_subgraph.language.library import is_built_in
from onnx_subgraph.language.optional import is_optional
from onnx_subgraph.language.term import Apply, Block, Chain, Either, Rearrange, Term, Variable, children, operators_of, walk
from onnx_subgraph.matching.anchors import lacking
from onnx_subgraph.matching.failure import Kind
from onnx_subgraph.matching.normalise import normalise
from onnx_subgraph.matching.remembered import remembered
from onnx_subgraph.operators.names import qualified
from onnx_subgraph.report.wording import count

if TYPE_CHECKING:
    from onnx_subgraph.language.library import Library
    from onnx_subgraph.language.pattern import Pattern
    from onnx_subgraph.matching.match import NearMiss
    from onnx_subgraph.result import FuseResult

LEAST = 3
"""The least operators in a near miss: two in a row are found everywhere."""
MOST_OF_THE_WAY = 2 / 3
"""The least share of a pattern's operators that must have matched."""
ROUNDED = 0.1
"""The largest relative error of a constant that counts as rounding."""
INSTEAD = {"onnxruntime": ("standard",), "native": ("onnxruntime", "standard")}
"""Target → the other targets whose replacement it uses if it has none."""


def telling(result: FuseResult, library: Library) -> FuseResult:
    """`result` with only the near misses that are worth telling a user of `fuse`."""
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
        return _says_something(pattern) and (nearly or miss.numbers is not None)

    return replace(result, near_misses=tuple(miss for miss in result.near_misses if tells(miss)))


def asked(result: FuseResult, pattern: Pattern) -> FuseResult:
    """`result` with only the near misses that explain why one pattern does not fuse: those about as far as the furthest.

    If the pattern fuses elsewhere, or the model lacks an operator that it needs, a near miss must match more than half of it.
    """
    is_answered = bool(result.rewrites or result.skipped)
    lacks = missing(result, pattern)
    furthest = size(pattern.match) if is_answered or lacks else max((m.matched for m in result.near_misses), default=0)

    def answers(miss: NearMiss) -> bool:
        if (2 * miss.matched > furthest and (not lacks or miss.matched >= LEAST)) or _is_near_number(miss):
            return True
        in_its_place = miss.operators == lacks and miss.matched >= LEAST
        return not is_answered and bool(lacks) and (in_its_place or miss.kind is Kind.READER)

    return replace(result, near_misses=tuple(filter(answers, result.near_misses)))


def missing(result: FuseResult, pattern: Pattern) -> tuple[str, ...]:
    """Operators of which every match needs one, if the model has none of them; () if the pattern could match."""
    if not pattern.is_formula:
        return ()

    def had(operators: Collection[tuple[str, str]]) -> int:
        return sum(result.operators_before.get(qualified(operator), 0) for operator in operators)

    return tuple(sorted(map(qualified, lacking(normalise(pattern).primary, had))))


def absence(result: FuseResult, pattern: Pattern, library: Library) -> str:
    """Why a pattern without a match and a near miss is not in the model, in a sentence."""
    results = {head for block in pattern.replace.values() if (head := _result(block))} - operators_of(pattern.match)
    there = [f"{op} is there already, {count(n, 'time')}" for op in sorted(results) if (n := result.operators_before.get(op, 0))]
    if there:
        return f"{pattern.id} finds nothing to fuse; {' and '.join(there)}."
    if needed := missing(result, pattern):
        wanted = set(needed)
        makers = [p.id for p in library.patterns if any(_result(block) in wanted for block in p.replace.values())]
        makers = [maker for maker in makers if maker != pattern.id]
        made = f"; {' and '.join(makers)} can make one" if 0 < len(makers) < LEAST else ""
        return f"{pattern.id} is not in the model: it needs {' or '.join(needed)}, and there is none{made}."
    most = max((m.matched for m in result.near_misses), default=0)
    found = f"at most {most} of its {size(pattern.match)} operators are found together" if most else "nothing is like it"
    return f"{pattern.id} is not in the model: {found}."


def _result(block: Block) -> str:
    """The operator of the last result of a replacement, "" if it is not a single one."""
    last = [*block][-1].term
    return str(last.operators[0]) if isinstance(last, Apply) and len(last.operators) == 1 else ""


def answering(result: FuseResult, library: Library) -> FuseResult:
    """`result` with only the near misses that explain why nothing more was fused."""
    known = {pattern.id: pattern for pattern in library.patterns}
    return replace(result, near_misses=tuple(m for m in result.near_misses if _answers(m, known.get(m.pattern))))


def unfused(result: FuseResult) -> FuseResult:
    """`result` with only the near misses in the original model, at places that were not fused after all.

    A place is fused if its own pattern, or one that removed about as much, was replaced. A failure at an operator that another
    fusion created tells the model's author nothing.
    """
    by_node = {node: rewrite for rewrite in result.rewrites for node in rewrite.replaces if node}
    ops = {rewrite.node: rewrite.op for rewrite in result.rewrites if rewrite.op}

    def is_left(miss: NearMiss) -> bool:
        taken = [by_node[place] for place in {miss.anchor, miss.node} if place in by_node]
        if any(rewrite.pattern == miss.pattern or 2 * len(rewrite.replaces) >= miss.matched for rewrite in taken):
            return False
        return miss.node not in ops or miss.kind is not Kind.TERM or miss.there != ops[miss.node]

    return replace(result, near_misses=tuple(filter(is_left, result.near_misses)))


def _answers(miss: NearMiss, pattern: Pattern | None) -> bool:
    if pattern is None or not pattern.is_formula:
        return pattern is not None
    if not _says_something(pattern) or miss.kind is Kind.READER:
        return False
    if all(_is_layout(assignment.term) for assignment in pattern.match) and miss.kind is not Kind.SENTENCE:
        return False  # every chain of layout operators is another rearrangement
    whole = size(pattern.match)
    is_far = miss.matched >= max(min(LEAST, whole), MOST_OF_THE_WAY * whole)
    if _is_near_number(miss) or not is_built_in(pattern.file):
        return is_far or _is_near_number(miss)
    return is_far and (_is_mendable(miss) or (whole >= LEAST and miss.kind is not Kind.CONSTANT))


def _is_mendable(miss: NearMiss) -> bool:
    """Whether another export of the same network may match: with a known shape, a constant weight, or no second reader.

    Otherwise the network computes something else. Small patterns fail in that way at every second node.
    """
    return miss.unknown or miss.kind is Kind.READ_ELSEWHERE or (miss.kind is Kind.CONSTANT and not miss.there)


def _is_layout(term: Term) -> bool:
    """Whether a term only rearranges a value."""
    if isinstance(term, Either):
        return all(map(_is_layout, term.alternatives))
    return isinstance(term, Rearrange | Variable)


def size(block: Block) -> int:
    """The number of operators in the smallest graph that `block` matches."""
    return _Smallest(block).size()


class _Smallest:
    """The smallest of all alternatives, in each line of a block. A line only reads earlier lines."""

    def __init__(self, block: Block) -> None:
        self._terms = [assignment.term for assignment in block]
        self._line = {name: line for line, assignment in enumerate(block) for name in assignment.names}
        self._together = remembered(self._operators)
        self._alone: list[tuple[int, frozenset[int]]] = []
        for term in self._terms:
            self._alone.append(self._term(term))

    def size(self) -> int:
        """The number of operators in the smallest graph with the lines that no other line reads."""
        read = {self._line[t.name] for term in self._terms for t in walk(term) if self._is_line(t)}
        return self._together(frozenset(range(len(self._terms))) - read)

    def _is_line(self, term: Term) -> TypeGuard[Variable]:
        return isinstance(term, Variable) and term.name in self._line

    def _operators(self, lines: frozenset[int]) -> int:
        """The number of operators that these lines and the lines behind them have."""
        needed, waiting, total = set(lines), list(lines), 0
        while waiting:
            operators, read = self._alone[waiting.pop()]
            total += operators
            waiting += read - needed
            needed |= read
        return total

    def _term(self, term: Term) -> tuple[int, frozenset[int]]:
        """The operators of a term and the lines that it reads."""
        match term:
            case Either(alternatives=alternatives):
                return min(map(self._term, alternatives), key=lambda one: one[0] + self._together(one[1]))
            case Chain(items=items):
                inside = [t for t, _ in items if not is_optional(t)]
                own = max(0, len(inside) - 1)
            case Apply() | Rearrange():
                inside, own = list(children(term)), 1
            case _:
                return 0, frozenset({self._line[term.name]}) if self._is_line(term) else frozenset()
        each = [self._term(child) for child in inside]
        return own + sum(operators for operators, _ in each), frozenset().union(*(lines for _, lines in each))


def _is_near_number(miss: NearMiss) -> bool:
    """Whether the only difference is a constant, by a little: probably rounded too far."""
    if miss.numbers is None:
        return False
    wanted, found = miss.numbers
    return abs(wanted - found) <= ROUNDED * abs(wanted)


def _says_something(pattern: Pattern) -> bool:
    """Whether it contains an operator besides + - * /, which are everywhere."""
    return any(isinstance(inner, Apply | Rearrange) for assignment in pattern.match for inner in walk(assignment.term))


def _replacement(pattern: Pattern, target: str) -> Block | None:
    return next((pattern.replace[t] for t in (target, *INSTEAD.get(target, ())) if t in pattern.replace), None)
