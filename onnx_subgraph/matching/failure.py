"""Failures as values, and the recorder that is told of them; they are put into words only when somebody reads them.

How far a candidate got is its rank, a whole number: `NODE` for each node that matched, and less than that for what says more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

import onnx_ir as ir

from onnx_subgraph.errors import Span
from onnx_subgraph.matching.normal import Normal
from onnx_subgraph.matching.state import NODE, State
from onnx_subgraph.matching.view import Virtual

SLIGHTLY = NODE // 4
"""How much lower a failure ranks where the operator of a node is right, and what is said of it is wrong."""
LONGER = NODE // 100
"""How much higher the failure of a chain ranks for each of its nodes."""


class Kind(Enum):
    """What is not as the pattern says."""

    TERM = auto()  # another operator, number or chain stands there
    NUMBER = auto()  # the number of a sum or product
    CONSTANT = auto()  # a computed value in place of a constant, or a constant in place of one
    VALUE = auto()  # no value of the graph stands there
    SAME = auto()  # another value, node or operator than the one that a name stands for
    RESULT = auto()  # another result of the node
    INPUTS = auto()  # more or fewer inputs, or one that is left out
    STATIC = auto()  # an attribute or a constant input
    RANK = auto()  # of how many axes a value is
    ITEM = auto()  # an item of a sum or product
    LAYOUT = auto()  # another rearrangement
    SENTENCE = auto()  # a sentence is false or unknown
    READER = auto()  # nothing wanted reads a value that is there
    READ_ELSEWHERE = auto()  # an inner value outlives the match


Said = tuple[str, str, str]
"""What was expected, what was found, and the smallest change; "" for what stands there, and for what is expected in its place."""


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """Where a candidate failed, in raw form.

    term: what was expected, where that is a term of the pattern. said: it in words otherwise. numbers: the number that was
    expected, and the one that was found, None for that of the value. nodes: all that had matched, where only a condition failed.
    """

    kind: Kind
    rank: int
    span: Span | None
    value: ir.Value | Virtual | None
    term: Normal | None = None
    said: Said | None = None
    numbers: tuple[float, float | None] | None = None
    nodes: Collection[ir.Node] = ()

    @property
    def matched(self) -> int:
        """How many nodes had matched."""
        return (self.rank + SLIGHTLY) // NODE

    def at(self, rank: int) -> Failure:
        """The same failure at another rank."""
        return replace(self, rank=rank)


class Recorder:
    """Is told of everything that fails, and forgets it: most matching is done without a question."""

    furthest: float = math.inf
    """The rank that a failure must be above to be kept."""

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
        nodes: Callable[[], Collection[ir.Node]] | None = None,
    ) -> None:
        """`value` is not what the pattern says, this far into a match."""
        if state.rank > self.furthest:
            said = said() if callable(said) else said
            self.keep(Failure(kind, state.rank, span, value, term, said, numbers, nodes() if nodes is not None else ()))

    def keep(self, failure: Failure) -> None:
        """Remember a failure that got further than any before."""

    def visit(self, nodes: Iterable[ir.Node], span: Span | None) -> None:
        """These nodes are what stands there in the pattern."""

    def span_of(self, node: ir.Node | None) -> Span | None:
        """Where the pattern says what a node is, as far as it was told."""
        return None


SILENT = Recorder()


class Furthest(Recorder):
    """Keeps the failure of the highest rank, and where the pattern says what a node is."""

    def __init__(self) -> None:
        self.furthest = -math.inf
        self.failure: Failure | None = None
        self.spans: dict[ir.Node | None, Span | None] = {}

    def keep(self, failure: Failure) -> None:
        """Remember a failure in place of the one before."""
        self.failure, self.furthest = failure, failure.rank

    def visit(self, nodes: Iterable[ir.Node], span: Span | None) -> None:
        """Remember where the pattern says what these nodes are."""
        self.spans.update(dict.fromkeys(nodes, span))

    def span_of(self, node: ir.Node | None) -> Span | None:
        """Where the pattern says what a node is."""
        return self.spans.get(node)

    def take(self) -> Failure | None:
        """The failure that came furthest; it is forgotten."""
        failure = self.failure
        self.put_back(None)
        return failure

    def put_back(self, failure: Failure | None) -> None:
        """Remember what was taken, and nothing else."""
        self.failure, self.furthest = failure, -math.inf if failure is None else failure.rank

    def again(self, failure: Failure, above: int) -> None:
        """Remember a failure that was met before, its rank counted from `above`."""
        if failure.rank + above > self.furthest:
            self.keep(failure.at(failure.rank + above))
