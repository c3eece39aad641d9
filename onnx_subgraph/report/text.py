"""Results for a person: rich renderables, which `cli` prints.

A report first shows what was gained and proved, then what was fused. With `-v`, or if nothing was fused, it also shows matches
that were not replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from onnx_subgraph.report import blame, grouping, own
from onnx_subgraph.report.entry import missed_text
from onnx_subgraph.report.listing import short
from onnx_subgraph.report.notices import notices
from onnx_subgraph.report.reasons import Reasons, reasons
from onnx_subgraph.report.table import Rows, grid
from onnx_subgraph.report.verdicts import verdict_text
from onnx_subgraph.report.wording import (
    FOLDED,
    UNNAMED,
    assumption,
    changes,
    count,
    engines,
    ratio_text,
    timed,
    tuned,
)
from onnx_subgraph.rewriting.assumed import table_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from onnx_subgraph.errors import Span
    from onnx_subgraph.expectation.check import Check
    from onnx_subgraph.result import FuseResult
    from onnx_subgraph.timing.tuning import Tuning
    from onnx_subgraph.verification.blame import Undone
    from onnx_subgraph.verification.own import OwnWork
    from onnx_subgraph.verification.site import SiteCheck
    from onnx_subgraph.verification.verdict import Run, Verdict

DEFAULT_TARGET = "onnxruntime"
FATES = ("by itself", "kept", "replaced", "blocked")
NEAR_MISSES = 5
"""The most near misses in a fusion report; `explain` shows all."""


def fusion(result: FuseResult, *, hidden: int = 0, verbose: bool = False) -> RenderableType:
    """The report on one model. hidden: how many near misses `result` omits (`relevance`).

    verbose: also all comparisons, the time of each stage, and matches that were not replaced.
    """
    groups = grouping.fusions(result.rewrites)
    parts: list[RenderableType] = [_heading(result), _facts(result, verbose=verbose), *_notices(result)]
    if groups:
        parts += ["", *_fused(groups)]
    if result.tuning is not None and (result.tuning.choices or result.tuning.notes):
        notes = (Text(note, "dim") for note in result.tuning.notes)
        parts += ["", Text("Measured on this machine", "bold"), _choices(result.tuning), *notes]
    for heading, unknown in (("Not equivalent, and undone", False), ("Not shown to be right, and undone", True)):
        if undone := [one for one in result.undone if (one.found == "nowhere") is unknown]:
            parts += ["", Text(heading, "bold red"), _undone(undone)]
    if result.sites:
        parts += ["", Text("Each fusion by itself, against float64", "bold"), _sites(result.sites)]
    for work in result.own:
        parts += ["", Text(f"What onnxruntime does by itself on {work.provider}", "bold"), own.summary(work)]
        if not work.failure:
            parts += ["", _own(work), "", _added(work)]
    why = reasons(result)
    if why is not None:
        return Group(*parts, *_why(why, result, hidden), "")
    return Group(*parts, *(_not_fused(result, hidden) if verbose else _not_fused_in_brief(result)), "")


def _not_fused_in_brief(result: FuseResult) -> list[RenderableType]:
    """The number of matches that were not replaced, and of near misses, in a line."""
    skipped = grouping.skipped(skip for skip in result.skipped if skip.bug is None)
    near = grouping.nearly_matched(result.near_misses)
    said = [f"{count(sum(len(group.nodes) for group in skipped), 'match')} not replaced"] if skipped else []
    said += [count(sum(len(group.nodes) for group in near), "near miss")] if near else []
    if not said:
        return []
    return ["", Text(f"{' and '.join(said)}: -v lists them, `onnx-subgraph explain {result.model}` says why", "dim")]


def _not_fused(result: FuseResult, hidden: int) -> list[RenderableType]:
    """Matches that were not replaced, and near misses, in tables."""
    parts: list[RenderableType] = []
    if skipped := [skip for skip in result.skipped if skip.bug is None]:
        parts += ["", Text("Matched, not replaced", "bold"), _skipped(grouping.skipped(skipped))]
    if near := grouping.nearly_matched(result.near_misses):
        parts += ["", Text("Nearly matched", "bold"), _near_misses(near[:NEAR_MISSES])]
        parts.append(Text(f"`onnx-subgraph explain {result.model}` shows {_the_rest(near, hidden)}", "dim"))
    elif hidden:
        begun = f"{count(hidden, 'place')} where a pattern only began to match"
        parts += ["", Text(f"`onnx-subgraph explain {result.model}` shows {begun}", "dim")]
    return parts


def _why(why: Reasons, result: FuseResult, hidden: int) -> list[RenderableType]:
    """The most important reasons if nothing or little was fused."""
    parts: list[RenderableType] = ["", Text(why.title, "bold")]
    for reason in why.told:
        parts.append(Text(f"* {reason.sentence}"))
        parts += [Text(f"  change: {reason.change}")] if reason.change else []
    rest = [count(why.hidden, "other reason")] if why.hidden else []
    rest += [f"{count(hidden, 'place')} where a pattern only began to match"] if hidden else []
    if rest:
        parts.append(Text(f"`onnx-subgraph explain {result.model}` shows {' and '.join(rest)}", "dim"))
    return parts


def expectations(checks: Sequence[Check]) -> RenderableType:
    """The expectations of one model; each missed one with its place and the reason."""
    missed = [check for check in checks if not check.met]
    style = "bold red" if missed else "bold green"
    parts: list[RenderableType] = [Text.assemble("expectations  ", (f"{len(checks) - len(missed)} of {len(checks)} met", style))]
    for check in missed:
        place, *lines = missed_text(check).splitlines()
        parts += ["", Text(place, "cyan"), Text("\n".join(lines), overflow="fold")]
    if missed:
        parts += ["", Text("Where the change is meant, write it into the file, or make that again with --write-expect.", "dim")]
    return Group(*parts, "")


def explanation(result: FuseResult, *, hidden: int = 0, pattern: str = "", absence: str = "") -> RenderableType:
    """What matched in one model, what nearly did, and why not. hidden: how many near misses `result` omits.

    pattern: the only one in question. absence: the sentence if there is nothing about it.
    """
    parts: list[RenderableType] = [Text(str(result.model), "bold"), *_notices(result)]
    if not (result.rewrites or result.skipped or result.near_misses or (hidden and not absence)):
        nothing = absence or "No pattern got past its first operator here: there is nothing to explain."
        return Group(*parts, nothing, *_begun(result, hidden, pattern), "")
    if groups := grouping.fusions(result.rewrites):
        how = "" if result.target == DEFAULT_TARGET else f", with --target {result.target}"
        parts += ["", Text(f"Matched{how}", "bold"), *_fused(groups)]
    if skipped := [skip for skip in result.skipped if skip.bug is None]:
        parts += ["", Text("Matched, not replaced", "bold"), *map(_skip, grouping.skipped(skipped))]
    if near := grouping.nearly_matched(result.near_misses):
        parts += ["", Text("Nearly matched, the furthest first", "bold")]
        parts += [_near_miss(group) for group in near]
    return Group(*parts, *_begun(result, hidden, pattern))


def _begun(result: FuseResult, hidden: int, pattern: str) -> list[RenderableType]:
    if not hidden:
        return []
    begun = f"{count(hidden, 'more place')} where {'it' if pattern else 'a pattern'} only began to match"
    how = f"{pattern} --json` lists them" if pattern else "PATTERN` shows those of one pattern"
    return ["", Text(f"{begun}: `onnx-subgraph explain {result.model} {how}", "dim")]


def comparison(reference: Path, candidate: Path, verdict: Verdict) -> RenderableType:
    """Whether one model computes the same as another, output by output."""
    facts = grid()
    facts.add_row("reference", str(reference))
    facts.add_row("candidate", str(candidate))
    facts.add_row("verdict", verdict_text(verdict))
    parts: list[RenderableType] = [facts]
    if verdict.runs:
        parts += ["", _outputs(verdict.runs)]
    return Group(*parts, "")


def _notices(result: FuseResult) -> list[RenderableType]:
    """The notices at the head of the report."""
    parts: list[RenderableType] = []
    for notice in notices(result):
        parts += ["", Text.assemble((notice.title, "bold red" if notice.kind == "bug" else "bold yellow"), "  ", notice.sentence)]
        parts += [Text(f"change: {notice.change}")] if notice.change else []
    return parts


def _heading(result: FuseResult) -> Text:
    if result.output is None:
        return Text.assemble((str(result.model), "bold"), ": nothing written")
    what = " (nothing fused: an unchanged copy)" if result.unchanged else ""
    return Text.assemble((str(result.model), "bold"), " → ", (str(result.output), "bold"), what)


def _facts(result: FuseResult, *, verbose: bool) -> Table:
    facts = grid()
    before, after = result.nodes_before, result.nodes_after
    fewer = f" ({(before - after) / before:.0%} fewer)" if after < before else ""
    facts.add_row("nodes", f"{before} → {after}{fewer}, {count(len(result.rewrites), 'fusion')}")
    if result.bench is not None:
        facts.add_row("time", "\n".join(timed(result.bench)))
    facts.add_row("verdict", verdict_text(result.verdict, brief=not verbose))
    for name in result.assumed:
        facts.add_row("", f"not run on {name}: assumed, from a table of the kernels of onnxruntime {table_of(name).onnxruntime}")
    for name, said in changes(result).items():
        facts.add_row(name, said)
    if verbose or result.opset_after != result.opset_before:
        raised = f" → {result.opset_after}" if result.opset_after != result.opset_before else ""
        facts.add_row("opset", f"{result.opset_before}{raised}")
    if verbose or result.target != DEFAULT_TARGET or result.assumed:
        on = [*result.providers, *(f"{provider} (assumed)" for provider in result.assumed)]
        facts.add_row("target", f"{result.target} on {', '.join(on)}")
    if result.engines is not None:
        facts.add_row("engines", engines(result.engines))
    if result.tuning is not None:
        facts.add_row("tuned", tuned(result.tuning))
    if verbose:
        stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in result.seconds.items())
        facts.add_row("seconds", f"{sum(result.seconds.values()):.2f} ({stages})")
    return facts


def _outputs(runs: Sequence[Run]) -> Rows:
    table = Rows("output", "provider", "optimised", "runs", "worst error", "allowed", "equal", head=7)
    for group in grouping.compared(runs):
        worst = group.worst
        equal = Text("yes", "green") if group.equal else Text(worst.problem or "no", "red")
        level = "yes" if group.optimised else "no"
        error, allowed = ("–", "–") if worst.problem else (f"{worst.error:.2g}", f"{worst.bound:.2g}")
        table.add(group.output or "–", group.provider or "–", level, str(len(group.runs)), error, allowed, equal)
    return table


def _fused(groups: Sequence[grouping.Fusion]) -> list[RenderableType]:
    """The table of fusions, and below it a legend of its words."""
    assuming: dict[str, frozenset[str]] = {}
    for group in groups:
        assuming[group.pattern] = assuming.get(group.pattern, frozenset()) | group.assumes
    legend = [f"{pattern} assumes {assumption(names)}; this was not checked" for pattern, names in assuming.items() if names]
    if any(group.added > group.removed for group in groups):
        legend.append(
            "more nodes than before: they are measured to take less time, or bring operands into the fused operator's form"
        )
    return [_fusions(groups), *(Text(line, "dim") for line in legend)]


def _fusions(groups: Sequence[grouping.Fusion]) -> Rows:
    table = Rows("pattern", "operator", "count", "nodes", "first node", head=4, right=("count",))
    for group in groups:
        into = (group.op or FOLDED) + (" (function)" if group.body else "")
        first = group.sites[0]
        place = first.node or next(filter(None, first.replaces), UNNAMED)
        table.add(group.pattern, into, str(len(group.sites)), f"{group.removed} → {group.added}", place)
    return table


def _undone(undone: Sequence[Undone]) -> Rows:
    table = Rows("pattern", "count", "first at", "why", head=1, right=("count",))
    for one, *more in blame.alike(undone):
        table.add(one.rewrite.pattern, str(1 + len(more)), one.rewrite.root or UNNAMED, blame.reason(one))
    return table


def _choices(tuning: Tuning) -> Rows:
    table = Rows("way", "time", "taken", head=3, right=("time",))
    for choice in tuning.choices:
        table.add(choice.what, ratio_text(choice.ratio), Text("yes", "green") if choice.taken else "no")
    return table


def _sites(checks: Sequence[SiteCheck]) -> Rows:
    table = Rows("pattern", "error", "before", "allowed", "at", "on", "holds", head=4, right=("error", "before", "allowed"))
    for check in checks:
        found = check.accuracy
        numbers = ("–",) * 3 if found is None else tuple(f"{n:.2g}" for n in (found.fused, found.unfused, found.bound))
        style = "yellow" if found is None else "green" if found.holds else "red"
        rewrite = check.rewrite
        table.add(rewrite.pattern, *numbers, rewrite.root or UNNAMED, check.provider, Text(blame.standing(check), style))
    return table


def _own(work: OwnWork) -> Rows:
    table = Rows("its own fusion", "by itself", "kept", "replaced", "blocked", "blocked at", head=5, right=FATES)
    for fusion in own.by_operator(work):
        table.add(fusion.op, *map(str, fusion.counts), ", ".join(fusion.blocked))
    return table


def _added(work: OwnWork) -> Rows:
    table = Rows("pattern", "operator", "count", "onnxruntime by itself", head=3, right=("count",))
    for group in own.by_pattern(work):
        table.add(group.pattern, group.op or FOLDED, str(group.count), group.by_itself or Text("leaves it", "green"))
    return table


def _skipped(groups: Sequence[grouping.Skipped]) -> Rows:
    table = Rows("pattern", "count", "why", "first node", head=2, right=("count",))
    for group in groups:
        table.add(group.pattern, str(len(group.nodes)), group.reason, group.nodes[0] or UNNAMED)
    return table


def _skip(group: grouping.Skipped) -> RenderableType:
    facts = grid()
    facts.add_row("node", _names(group.nodes))
    facts.add_row("why", group.reason)
    if group.change:
        facts.add_row("change", group.change)
    return Group(Text.assemble("\n", (group.pattern, "bold"), f": matched at {count(len(group.nodes), 'place')}"), facts)


def _near_misses(groups: Sequence[grouping.NearlyMatched]) -> Rows:
    table = Rows("pattern", "count", "expected", "found", "first node", head=2, right=("count",))
    for group in groups:
        table.add(group.pattern, str(len(group.nodes)), group.expected, group.found, group.nodes[0] or UNNAMED)
    return table


def _near_miss(group: grouping.NearlyMatched) -> RenderableType:
    facts = grid()
    facts.add_row("node", _names(group.nodes))
    facts.add_row("expected", group.expected)
    facts.add_row("found", group.found)
    if group.change:
        facts.add_row("change", group.change)
    places = count(len(group.nodes), "place")
    title = Text.assemble("\n", (group.pattern, "bold"), f": {count(group.matched, 'node')} matched, at {places}")
    return Group(title, *_line(group.span), facts)


def _line(span: Span | None) -> list[RenderableType]:
    if span is None:
        return []
    place = Text(f"{short(span.file)}:{span.line}:{span.column}", "cyan")
    return [place, Text(span.caret(), no_wrap=True)] if span.text else [place]


def _names(names: Sequence[str], limit: int = 3) -> str:
    shown = ", ".join(dict.fromkeys(name or UNNAMED for name in names[:limit]))
    return f"{shown}, and {len(names) - limit} more" if len(names) > limit else shown


def _the_rest(near: Sequence[grouping.NearlyMatched], hidden: int) -> str:
    where = "where in the pattern they failed" if len(near) <= NEAR_MISSES else f"all {len(near)} and where they failed"
    return where + (f", and {count(hidden, 'place')} where a pattern only began to match" if hidden else "")
