"""A run as Markdown, for the page of a CI job: one line a model, and below it what needs attention.

It is GitHub's flavour (tables, `<details>`). Names from a model are quoted, so that none is read as markup. Times are omitted, so
that the same run gives the same bytes.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from onnx_subgraph.report import grouping
from onnx_subgraph.report.blame import sentences
from onnx_subgraph.report.entry import missed_text
from onnx_subgraph.report.notices import Notice, notices
from onnx_subgraph.report.wording import FOLDED, UNNAMED, count, outcome, timed, tried

if TYPE_CHECKING:
    from onnx_subgraph.expectation.expectation import Section
    from onnx_subgraph.report.entry import Entry
    from onnx_subgraph.result import FuseResult

NEAR_MISSES = 5
"""The most near misses to show for one model; `explain` shows all."""


def markdown(entries: Sequence[Entry], unused: Iterable[Section] = ()) -> str:
    """The summary of a run; its models hold only near misses worth telling. unused: sections without a model in the run."""
    good = sum(entry.code == 0 for entry in entries)
    lines = [f"### onnx-subgraph: {good} of {count(len(entries), 'model')} passed", ""]
    lines += _table(("", "model", "outcome", "nodes", "fusions", "verdict"), (_row(entry) for entry in entries))
    for entry in entries:
        lines += _attention(entry)
        if entry.result is not None:
            lines += _details(entry.result)
    if names := [_code(section.model) for section in unused]:
        lines += ["", f"Expected, but not in this run: {', '.join(names)}"]
    return "\n".join(lines) + "\n\n"


def _row(entry: Entry) -> tuple[str, ...]:
    result = entry.result
    if result is None:
        return (_sign(entry), _code(str(entry.model)), entry.outcome, "", "", "")
    before, after = result.nodes_before, result.nodes_after
    verdict = result.verdict.verdict.replace("-", " ")
    return (_sign(entry), _code(str(entry.model)), entry.outcome, f"{before} → {after}", str(len(result.rewrites)), verdict)


def _sign(entry: Entry) -> str:
    if entry.code:
        return "❌"
    return "⚠️" if entry.result is not None and (entry.result.undone or _bugs(entry.result)) else "✅"


def _attention(entry: Entry) -> Iterator[str]:
    if entry.code == 0 and not (entry.result is not None and (entry.result.undone or _bugs(entry.result))):
        return
    yield from ("", f"#### {_code(str(entry.model))}: {entry.outcome}")
    if entry.result is None:
        yield from _block(entry.error)
        return
    verdict = entry.result.verdict
    if verdict.verdict == "different" and verdict.worst is not None:
        yield from _block(outcome(verdict.worst))
    if entry.code == 2 and verdict.reason:
        yield from _block(verdict.reason)
    for sentence in sentences(entry.result.undone):
        yield from _block(sentence)
    for notice in _bugs(entry.result):
        yield from _block(f"bug in onnx-subgraph: {notice.sentence} {notice.change}")
    for check in entry.missed:
        yield from _block(missed_text(check))


def _bugs(result: FuseResult) -> list[Notice]:
    return [notice for notice in notices(result) if notice.kind == "bug"]


def _details(result: FuseResult) -> Iterator[str]:
    """The fusions and near misses, folded."""
    groups = grouping.fusions(result.rewrites)
    near = grouping.nearly_matched(result.near_misses)
    if not groups and not near:
        return
    parts = [count(len(result.rewrites), "fusion")] if groups else []
    parts += [count(len(near), "kind") + " of near miss"] if near else []
    yield from ("", f"<details><summary>{_code(str(result.model))}: {', '.join(parts)}</summary>")
    if groups:
        rows = ((_code(g.pattern), _into(g), str(len(g.sites)), f"{g.removed} → {g.added}") for g in groups)
        yield from ("", *_table(("fused by", "into", "count", "nodes"), rows))
    if any(run.provider for run in result.verdict.runs):
        yield from ("", f"Verified on {', '.join(result.providers)}: {html.escape(tried(result.verdict.runs), quote=False)}.")
    for line in timed(result.bench) if result.bench is not None else ():
        yield from ("", f"Time: {html.escape(line, quote=False)}.")
    if near:
        shown = (
            (_code(g.pattern), str(len(g.nodes)), _code(g.expected), _code(g.found), _code(g.nodes[0] or UNNAMED))
            for g in near[:NEAR_MISSES]
        )
        yield from ("", *_table(("nearly matched", "count", "expected", "found", "first at"), shown))
    yield from ("", "</details>")


def _into(group: grouping.Fusion) -> str:
    how = " (function)" if group.body else ""
    return _code(group.op or FOLDED) + how + (f" assuming {', '.join(sorted(group.assumes))}" if group.assumes else "")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_line(head), _line(["---"] * len(head)), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _code(text: str) -> str:
    """`text` as code, in a table or outside; as HTML, because a backtick or a bar in a name ends Markdown's code."""
    quoted = html.escape(" ".join(text.split()), quote=False)
    return f"<code>{quoted.replace('|', '&#124;').replace('`', '&#96;').replace('*', '&#42;').replace('_', '&#95;')}</code>"


def _block(text: str) -> Iterator[str]:
    """`text` as a code block, with a fence that does not occur in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    yield from ("", f"{fence}text", *text.splitlines(), fence)
