"""onnxruntime's own fusions, grouped by operator and by pattern, for a table each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx_subgraph.report.wording import count

if TYPE_CHECKING:
    from onnx_subgraph.verification.own import OwnWork


INSIDE = "inside a larger one"
"""What onnxruntime makes where our result is an inner value of one of its fusions."""


@dataclass(frozen=True, slots=True)
class ByOperator:
    """One of onnxruntime's fused operators. counts: in the original, then kept, replaced and blocked. blocked: the values."""

    op: str
    counts: tuple[int, int, int, int]
    blocked: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ByPattern:
    """Our fusions of one pattern for which onnxruntime makes `by_itself`: an operator, `INSIDE`, or "" for nothing."""

    pattern: str
    op: str
    by_itself: str
    count: int


def summary(work: OwnWork) -> str:
    """In one line, whether our fusions keep all of onnxruntime's."""
    if work.failure:
        return f"not known: {work.failure}"
    added = sum(site.added for site in work.sites)
    blocked = count(len(work.blocked), "fusion") + " of its own blocked" if work.blocked else "none of its own blocked"
    nodes = f"{count(work.nodes_original, 'node')} by itself, {work.nodes_fused} with ours"
    return f"{nodes}; {added} of our {count(len(work.sites), 'fusion')} it does not make; {blocked}"


def by_operator(work: OwnWork) -> Iterator[ByOperator]:
    """Onnxruntime's fusions, in the order of their first one."""
    for op in dict.fromkeys(fusion.op for fusion in work.own):
        mine = [fusion for fusion in work.own if fusion.op == op]
        kept, replaced, blocked = ([f.value for f in mine if f.fate == fate] for fate in ("kept", "replaced", "blocked"))
        yield ByOperator(op, (len(mine), len(kept), len(replaced), len(blocked)), tuple(blocked))


def by_pattern(work: OwnWork) -> Iterator[ByPattern]:
    """Our fusions, in the order of the first of each kind."""
    kinds = [(site.rewrite.pattern, site.rewrite.op, site.op or (INSIDE if site.inside else "")) for site in work.sites]
    for kind in dict.fromkeys(kinds):
        yield ByPattern(*kind, kinds.count(kind))
