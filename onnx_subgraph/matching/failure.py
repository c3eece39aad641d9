"""Failures as values, and the recorder that receives them. The text of a failure is made only when it is read.

The rank of a failure says how far the candidate got: `NODE` for each matched node, and a fraction of it for smaller differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import Enum, auto

import onnx_ir as ir

from onnx_subgraph.errors import Span
from onnx_subgraph.matching.normal import Normal
from onnx_subgraph.matching.state import EMPTY, NODE, State, Visited
from onnx_subgraph.matching.view import Virtual

SLIGHTLY = NODE // 4
"""Subtracted from the rank if the operator of a node is right, but its attributes or inputs are wrong."""
LONGER = NODE // 100
"""Added to the rank of a chain's failure for each of its nodes."""


class Kind(Enum):
    """What does not match."""

    TERM = auto()  # another operator, number or chain
    NUMBER = auto()  # the number of a sum or product
    CONSTANT = auto()  # a computed value instead of a constant, or a constant instead of a computed value
    VALUE = auto()  # not a value of the graph
    SAME = auto()  # a different value, node or operator than the one already bound to the name
    RESULT = auto()  # another result of the node
    INPUTS = auto()  # more or fewer inputs, or an omitted input
    STATIC = auto()  # an attribute or a constant input
    RANK = auto()  # the rank of a value
    ITEM = auto()  # an item of a sum or product
    LAYOUT = auto()  # another rearrangement
    SENTENCE = auto()  # a false or unknown sentence
    READER = auto()  # a matched value is not read as the pattern requires
    READ_ELSEWHERE = auto()  # an inner value is read outside the match


Said = tuple[str, str, str]
"""The expected and the found, as text, and the smallest change. "" for what can be derived, and where no change is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """Where a candidate failed, before it is put into words.

    term: the expected term of the pattern, if any. said: texts otherwise. numbers: the expected number and the found one; None
    for the number of `value`. stored: what the model should have in the place of what, if not the numbers that are said. nodes:
    all matched nodes, if only a condition failed. visited: the nodes that had matched until then, with the part of the pattern
    that each matched, the last first.
    """

    kind: Kind
    rank: int
    span: Span | None
    value: ir.Value | Virtual | None
    term: Normal | None = None
    said: Said | None = None
    numbers: tuple[float, float | None] | None = None
    stored: tuple[str, str] | None = None
    nodes: Collection[ir.Node] = ()
    visited: Visited = ()

    @property
    def matched(self) -> int:
        """The number of matched nodes."""
        return len(self.nodes) or (self.rank + SLIGHTLY) // NODE

    def since(self, state: State) -> Failure:
        """The same failure without what `state`, from which the match went on, had matched before."""
        before = sum(1 for _ in state.visited())
        return replace(self, rank=self.rank - state.rank, visited=self.visited[: len(self.visited) - before])


class Recorder:
    """Receives every failure and ignores it. Used when no reasons are requested."""

    furthest: float = math.inf
    """Only failures with a higher rank are kept."""

    def fail(
        self,
        kind: Kind,
        state: State,
        span: Span | None,
        value: ir.Value | Virtual | None,
        term: Normal | None = None,
        said: Said | Callable[[], Said] | None = None,
        *,
        numbers: tuple[float, float | None] | None = None,
        stored: tuple[str, str] | None = None,
        nodes: Callable[[], Collection[ir.Node]] | None = None,
    ) -> None:
        """Report that `value` does not match, at this state of the match."""
        if state.rank > self.furthest:
            said, visited = said() if callable(said) else said, tuple(state.visited())
            reached = nodes() if nodes is not None else ()
            self.keep(Failure(kind, state.rank, span, value, term, said, numbers, stored, reached, visited))

    def keep(self, failure: Failure) -> None:
        """Keep a failure that got further than any before."""


SILENT = Recorder()


class Furthest(Recorder):
    """Keeps the failure with the highest rank."""

    def __init__(self) -> None:
        self.furthest = -math.inf
        self.failure: Failure | None = None

    def keep(self, failure: Failure) -> None:
        """Replace the kept failure."""
        self.failure, self.furthest = failure, failure.rank

    def take(self) -> Failure | None:
        """Return the kept failure and forget it."""
        failure = self.failure
        self.put_back(None)
        return failure

    def put_back(self, failure: Failure | None) -> None:
        """Keep exactly this failure, or none."""
        self.failure, self.furthest = failure, -math.inf if failure is None else failure.rank

    def again(self, failure: Failure, state: State = EMPTY) -> None:
        """Keep an earlier failure again, after what `state` has matched."""
        if failure.rank + state.rank > self.furthest:
            visited = (*failure.visited, *state.visited())
            self.keep(replace(failure, rank=failure.rank + state.rank, visited=visited))
