"""Groups equal events of a result: one entry for what happened in the same way at many places.

A model of 24 equal layers has 24 equal fusions, 24 equal skips and 24 equal near misses. Each becomes one group with the names of
all its nodes. Names in a reason are compared without their numbers: `/layer.0/Add` and `/layer.1/Add_2` count as equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from onnx_subgraph.errors import Span
    from onnx_subgraph.matching.match import NearMiss, SeenLine
    from onnx_subgraph.rewriting.rewrite import Bug, Rewrite, Skip
    from onnx_subgraph.verification.verdict import Placement, Run

Item = TypeVar("Item")

_NAME = re.compile(r"[\w./:-]*[/_:][\w./:-]*|\b[A-Za-z]\w*(?:\.\w+)+")
"""A name in a model (`/layer.0/Add`, `val_12`, `encoder.layer.0.weight`), not a number or a type."""

_OPERANDS = re.compile(r"(?<=\w)\((?=[^()`]*[/_:\w])[^()`]*\)$| that reads `[^`]*`$")
"""The operands of an operator in a reason, `Add(a, b)`, and the value that should be read."""


class Fusion(NamedTuple):
    """All rewrites of one pattern into one operator, in the order of the graph."""

    pattern: str
    op: str
    sites: tuple[Rewrite, ...]

    @property
    def removed(self) -> int:
        """The number of removed nodes."""
        return sum(len(site.replaces) for site in self.sites)

    @property
    def added(self) -> int:
        """The number of added nodes."""
        return sum(site.added for site in self.sites)

    @property
    def assumes(self) -> frozenset[str]:
        """The assumptions at any of the sites."""
        return frozenset().union(*(site.assumes for site in self.sites))

    @property
    def body(self) -> bool:
        """Whether the operator is a function in the model."""
        return any(site.body for site in self.sites)


class Skipped(NamedTuple):
    """All matches of one pattern that were not replaced for the same reason.

    opset: the required one, or None. change: what would fix the first match, "" if unknown. bug: the bug of this tool that is the
    reason, or None. replaced: whether another replacement was made.
    """

    pattern: str
    reason: str
    opset: int | None
    nodes: tuple[str, ...]
    change: str = ""
    bug: Bug | None = None
    replaced: bool = False


class NearlyMatched(NamedTuple):
    """All candidates of one pattern that failed at one place of it in the same way.

    span: the place in the pattern file. matched: how many nodes had matched. nodes: the names of those where it failed. anchors:
    the names of the nodes that the candidates started from, in the same order. change: what would fix the first.
    lines: those that had matched at the first place.
    """

    pattern: str
    span: Span | None
    expected: str
    found: str
    matched: int
    nodes: tuple[str, ...]
    anchors: tuple[str, ...]
    change: str = ""
    lines: tuple[SeenLine, ...] = ()


class Compared(NamedTuple):
    """All comparisons of one output on one provider, with graph optimisation on or off in the candidate's session."""

    output: str
    provider: str
    optimised: bool
    runs: tuple[Run, ...]

    @property
    def worst(self) -> Run:
        """The run with a problem, or else with the largest error in units of its bound."""
        return max(self.runs, key=lambda run: (bool(run.problem), run.error / run.bound if run.bound else run.error))

    @property
    def equal(self) -> bool:
        """Whether all of them are equal."""
        return all(run.equal for run in self.runs)


class Placed(NamedTuple):
    """Where the nodes of one operator ran: how many on a provider, and the names of those that it left to the CPU."""

    op: str
    taken: int
    fallen: tuple[str, ...]


def fusions(rewrites: Iterable[Rewrite]) -> tuple[Fusion, ...]:
    """`rewrites` by pattern and operator, in the order of their first one."""
    groups = grouped(rewrites, lambda r: (r.pattern, r.op))
    return tuple(Fusion(sites[0].pattern, sites[0].op, tuple(sites)) for sites in groups)


def skipped(skips: Iterable[Skip]) -> tuple[Skipped, ...]:
    """`skips` by pattern and reason, in the order of their first one."""
    groups = grouped(skips, lambda s: (s.pattern, anonymous(s.reason), s.opset))
    return tuple(
        Skipped(f.pattern, f.reason, f.opset, tuple(s.node for s in g), f.change, f.bug, f.replaced)
        for g in groups
        for f in g[:1]
    )


def nearly_matched(near_misses: Iterable[NearMiss]) -> tuple[NearlyMatched, ...]:
    """`near_misses` grouped by their failure, those that matched furthest first.

    If several candidates or alternatives of a pattern fail in the same way at one place, only the furthest counts.
    """
    once: dict[Hashable, NearMiss] = {}
    for miss in near_misses:
        key = (miss.pattern, miss.node, miss.expected, miss.found)
        if key not in once or miss.matched > once[key].matched:
            once[key] = miss
    near_misses = once.values()
    groups = grouped(near_misses, lambda n: (n.pattern, n.span, _alike(n.expected), _alike(n.found)))
    result = (
        NearlyMatched(
            pattern=group[0].pattern,
            span=group[0].span,
            expected=group[0].expected,
            found=group[0].found,
            matched=max(n.matched for n in group),
            nodes=tuple(n.node for n in group),
            anchors=tuple(n.anchor for n in group),
            change=group[0].change,
            lines=group[0].lines,
        )
        for group in groups
    )
    return tuple(sorted(result, key=lambda g: (-g.matched, -len(g.nodes), g.pattern)))


def compared(runs: Iterable[Run]) -> tuple[Compared, ...]:
    """`runs` by output, provider and optimisation, in the order of their first one."""
    groups = grouped(runs, lambda r: (r.output, r.provider, r.optimised))
    return tuple(Compared(g[0].output, g[0].provider, g[0].optimised, tuple(g)) for g in groups)


def placed(placement: Placement) -> tuple[Placed, ...]:
    """Where the nodes of each operator ran; those with nodes on the CPU come first."""
    rows = [
        Placed(op, sum(n.op == op for n in placement.taken), tuple(n.name for n in placement.fallen if n.op == op))
        for op in {node.op for node in placement.nodes}
    ]
    return tuple(sorted(rows, key=lambda row: (-len(row.fallen), -row.taken, row.op)))


def anonymous(words: str) -> str:
    """`words` without the numbers in names: equal for the same reason in equal layers."""
    return _NAME.sub(lambda name: re.sub(r"\d+", "#", re.sub(r"_\d+", "", name.group())), words)


def _alike(words: str) -> str:
    """`words` without the operands of operators and the value to be read: equal for the same failure at two places."""
    return anonymous(_OPERANDS.sub("", words))


def grouped(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    """The items with equal keys together, in the order of the first of each."""
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())
