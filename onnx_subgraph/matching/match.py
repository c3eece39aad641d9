"""The results of matching: a `Match`, or a `NearMiss` that says how far a candidate got.

Both are immutable, and creating them does not change the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnx_subgraph.errors import Span
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.term import Static, operators_of
from onnx_subgraph.matching.equalities import MATCHED_AS
from onnx_subgraph.matching.failure import Kind
from onnx_subgraph.matching.state import Visited

Binding = ir.Value | np.ndarray | ir.Attr | Static | None
"""The value bound to a name of a pattern:

* `ir.Value`: a value of the graph, or a constant that exists as one value;
* `numpy.ndarray`: a constant that is not a single value of the graph (the product of two scales), or a `let` constant;
* `ir.Attr`: an attribute captured by keyword; `int`, `float`, `str`, `bool`, tuples: a named axis, a `let` number, a captured
  operator name (`"com.microsoft.Gelu"` or `"Relu"`);
* `dict[str, ir.Attr]` for `**rest` (see `Match.rest`);
* `None`: absent.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """One place in a graph where a pattern matches.

    bindings: name → what it is bound to. A name that no chosen alternative binds is missing or None.
    rest: the attributes that each `**name` captured.
    roots: name → value for every matched name on the left of the `match` block.
    nodes: the matched nodes in topological order, including skipped transparent ones (Identity, Dropout).
    chosen: for every Either or optional name (by the `id` of its term), the index of the matched alternative.
    doubles: values that other nodes compute from inner values of the match → the equal result of the match.
    visited: the matched nodes with the part of the pattern that each matched; empty for a region. A node may be there twice.
    part: whether it is inside another match of its pattern; it is used if the larger one cannot be replaced.
    selector: for a region, the Python selector that chose it (`onnx_subgraph.regions.selector.Selector`).
    A region binds `x0`, `x1`, … to its inputs and `y0`, `y1`, … to its outputs; the latter are its roots.
    """

    pattern: Pattern
    graph: ir.Graph | ir.Function
    bindings: Mapping[str, Binding]
    rest: Mapping[str, Mapping[str, ir.Attr]]
    roots: Mapping[str, ir.Value]
    nodes: tuple[ir.Node, ...]
    chosen: Mapping[int, int]
    selector: object = None
    doubles: Mapping[ir.Value, ir.Value] = field(default_factory=dict)
    part: bool = False
    visited: Visited = ()

    @property
    def is_renamed(self) -> bool:
        """Whether it is a single node that is matched as another operator: a GlobalAveragePool as the ReduceMean that it is."""
        node, *others = self.nodes
        is_other = (node.domain, node.op_type) in MATCHED_AS and node.op_type not in operators_of(self.pattern.match)
        return is_other and not others


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A matched node as text. type: of its first result, "" where unknown."""

    name: str
    operator: str
    type: str


@dataclass(frozen=True, slots=True)
class SeenLine:
    """A line of a pattern file, and the nodes that its parts matched, in topological order. text: without indentation."""

    file: str
    number: int
    text: str
    nodes: tuple[SeenNode, ...]


@dataclass(frozen=True, slots=True)
class NearMiss:
    """The furthest failure of a candidate.

    span: the place in the pattern file that failed. node: the name of the model's node where it failed.
    expected, found: as text. matched: the number of matched nodes. anchor: the name of the node it started from.
    change: the smallest change of the model that would let the pattern get further, as text; "" where the model computes
    something else. unknown: whether it failed because a type or shape is unknown. kind: what does not match. numbers: the
    expected and the found number, if only the number is wrong. operators: the expected operators, any of which would match.
    there: the operator where it failed.
    lines: the lines of the pattern that had matched, with their nodes; () where not requested.
    """

    pattern: str
    span: Span | None
    anchor: str
    node: str
    expected: str
    found: str
    matched: int
    change: str = ""
    unknown: bool = False
    kind: Kind = Kind.TERM
    numbers: tuple[float, float] | None = None
    operators: tuple[str, ...] = ()
    there: str = ""
    lines: tuple[SeenLine, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A place where the search for a pattern was abandoned. Whether the pattern matches there is unknown.

    node: the name of the node that was being matched. reason: which bound was reached, as text.
    """

    pattern: str
    node: str
    reason: str
