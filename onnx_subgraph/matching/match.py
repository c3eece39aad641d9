"""What matching yields: a `Match`, or the `NearMiss` that says how far a candidate got.

Both are values: nothing in them is changed after they are made, and making them changes nothing in the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnx_subgraph.errors import Span
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.term import Static
from onnx_subgraph.matching.failure import Kind

Binding = ir.Value | np.ndarray | ir.Attr | Static | None
"""What a name of a pattern stands for in a match:

* `ir.Value`: a value of the graph (constants among them, when they exist as one value);
* `numpy.ndarray`: a constant that no single value of the graph holds (the product of two scales), or a `let` constant;
* `ir.Attr`: an attribute captured by keyword; `int`, `float`, `str`, `bool`, tuples: a named axis, a `let` number, a captured
  operator name (`"com.microsoft.Gelu"` or `"Relu"`);
* `dict[str, ir.Attr]` for `**rest` (see `Match.rest`);
* `None`: absent.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """One place in a graph where a pattern matches.

    bindings: what every name of the pattern stands for; a name that no chosen alternative bound is absent from it or None.
    rest: the attributes that each `**name` captured.
    roots: name → value for every name on the left of the `match` block that was matched.
    nodes: the matched nodes in topological order, transparent ones (Identity, Dropout) on the way included.
    chosen: for every Either or optional name (by position in the pattern, `id` of the term) the index of what matched.
    doubles: values that other nodes compute a second time, from inner values of the match → the result that they are equal to.
    part: whether it is a part of another match of its pattern, which it may take the place of where that can't be replaced.
    selector: for a region that somebody chose in Python, who did (`onnx_subgraph.regions.selector.Selector`).

    A region binds `x0`, `x1`, … to what it reads, and `y0`, `y1`, …, which are its roots, to what it provides.
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


@dataclass(frozen=True, slots=True)
class NearMiss:
    """The furthest that a candidate got before it failed.

    span: the place in the pattern file that failed. node: the name of the node in the model where it failed.
    expected, found: in words. matched: how many nodes had matched. anchor: the name of the node it started from.
    change: the smallest change of the model that would let the pattern get further, in words. unknown: whether it failed because
    a type or a shape is not known. kind: what is not as the pattern says. numbers: the number that was expected and the one that
    was found, where only that is wrong. operators: those one of which was expected. there: the operator where it failed.
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


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A place where the search for a pattern was bounded: it may match there, and nobody knows.

    node: the name of the node where it would have ended. reason: which bound it was, in words.
    """

    pattern: str
    node: str
    reason: str
