"""Notices at the head of a report: what kept the tool from looking, and changes of the interface that the user requested.

Each notice is one sentence and the next step. All reports use the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from onnx_subgraph.report import grouping
from onnx_subgraph.report.wording import UNNAMED, count

if TYPE_CHECKING:
    from onnx_subgraph.model.gaps import Gap
    from onnx_subgraph.result import FuseResult

REPORT = "please report it with what --json has under `bugs`"


class Notice(NamedTuple):
    """One notice. kind: "bug", "inputs", "interface" or "gap". title: a few words. change: the next step, "" for none."""

    kind: str
    title: str
    sentence: str
    change: str = ""


class Gaps(NamedTuple):
    """The gaps in shape inference of one operator for one reason. patterns: those that need the missing information."""

    first: Gap
    places: tuple[str, ...]
    behind: frozenset[str]
    patterns: tuple[str, ...]


def notices(result: FuseResult) -> tuple[Notice, ...]:
    """The notices of a result, the most serious first."""
    return (
        *_bugs(result),
        *_initializers(result),
        *(_gap(group) for group in gaps(result) if group.patterns or not group.first.node),
    )


def bug(skip: grouping.Skipped) -> str:
    """A bug of this tool in one line: `gelu at /Mul: TypeError: …`."""
    assert skip.bug is not None
    more = f" and {count(len(skip.nodes) - 1, 'other place')}" if len(skip.nodes) > 1 else ""
    return f"{skip.pattern} at {skip.nodes[0] or UNNAMED}{more}: {skip.bug.error}"


def gaps(result: FuseResult) -> tuple[Gaps, ...]:
    """Where shape inference gave up; gaps that affect the most patterns first."""
    by_reason: dict[tuple[str, str], list[Gap]] = {}
    for gap in result.gaps:
        by_reason.setdefault((gap.operator, gap.reason), []).append(gap)
    found = (_gathered(same, result) for same in by_reason.values())
    return tuple(sorted(found, key=lambda group: (-len(group.patterns), -len(group.behind))))


def _gathered(same: Sequence[Gap], result: FuseResult) -> Gaps:
    behind = frozenset().union(*(gap.behind for gap in same))
    return Gaps(same[0], tuple(gap.node for gap in same), behind, tuple(sorted(set(_needing(behind, result)))))


def _needing(behind: frozenset[str], result: FuseResult) -> Iterable[str]:
    """The patterns that failed there because of an unknown shape or type."""
    from onnx_subgraph.model.gaps import DECLARE  # imports onnx, which a list of patterns does not need

    yield from (m.pattern for m in result.near_misses if m.unknown and behind & {m.node, m.anchor})
    yield from (s.pattern for s in result.skipped if s.change == DECLARE and s.node in behind)


def _bugs(result: FuseResult) -> Iterable[Notice]:
    for group in grouping.skipped(skip for skip in result.skipped if skip.bug is not None):
        yield Notice("bug", "Bug", f"{bug(group)}. What it matched there is as it was, and everything else was fused.", REPORT)


def _initializers(result: FuseResult) -> Iterable[Notice]:
    """Notices about initializers: those that a run may override are not constants; those made constant change the interface."""
    if number := len(result.overridable.names):
        are = "initializer is an input" if number == 1 else "initializers are inputs"
        sentence = (
            f"{number} {are} as well, which a run may replace: at the {count(result.overridable.readers, 'node')} that "
            f"read {'it' if number == 1 else 'them'} nothing is fused that needs a constant."
        )
        change = "--constant-initializers takes them out of the inputs; onnxruntime is often much faster with constants"
        yield Notice("inputs", "Weights are inputs", sentence, change)
    if number := len(result.made_constant):
        inputs = f"{count(number, 'initializer')} {'is' if number == 1 else 'are'} no input any more"
        yield Notice("interface", "Interface", f"As --constant-initializers asks, {inputs}: a run can't replace them.")


def _gap(group: Gaps) -> Notice:
    first = group.first
    if not first.node:
        where = "in the whole model"
    elif len(group.places) > 1:
        where = f"at {len(group.places)} {first.operator or 'inputs'}, first at {first.node}"
    else:
        where = f"at {first.node}" + (f" ({first.operator})" if first.operator else "")
    needing = f"{count(len(group.patterns), 'pattern')} {'needs' if len(group.patterns) == 1 else 'need'} what is missing"
    nodes = f" behind it, at {count(len(group.behind), 'node')}" if first.node else ""
    sentence = f"Shape inference gives up {where}: {first.reason}. {needing}{nodes}."
    return Notice("gap", "Unknown shapes", sentence, first.change)
