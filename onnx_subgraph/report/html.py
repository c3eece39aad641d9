"""The report as one page for a browser, on screen and on paper: no script, nothing fetched, everything from the model escaped.

This module chooses what the page says; `page/` holds its template, its drawings' template and its style.
"""

from __future__ import annotations

import base64
import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_subgraph.errors import PatternError, UsageError
from onnx_subgraph.expectation.check import bytes_text
from onnx_subgraph.files.models import size_on_disk
from onnx_subgraph.language.formulas import used_formulas
from onnx_subgraph.language.shared import source_of
from onnx_subgraph.report import blame, grouping, listing, own
from onnx_subgraph.report.alike import alike
from onnx_subgraph.report.looks import Look, highlights, look_of, some_names
from onnx_subgraph.report.notices import notices
from onnx_subgraph.report.reasons import reasons
from onnx_subgraph.report.wording import (
    ASSUMED,
    FOLDED,
    UNNAMED,
    count,
    evidence,
    flushed,
    outcome,
    recurrent,
    simplified,
    timed,
    tried,
)
from onnx_subgraph.rewriting.assumed import table_of

if TYPE_CHECKING:
    from onnx_subgraph.language.library import Library
    from onnx_subgraph.language.pattern import Pattern
    from onnx_subgraph.report.entry import Entry
    from onnx_subgraph.verification.blame import Undone
    from onnx_subgraph.verification.own import OwnWork

PAGE = Path(__file__).with_name("page")
NEEDS = {"jinja2": "Jinja2", "fast_sugiyama": "fast-sugiyama"}
"""Module → the package that brings it; the extra `report` has them all."""

MOST_DRAWN = 6
"""Drawings of one fusion, of what its sites look like most often; sites that look otherwise are listed only."""
WIDE, VERY_WIDE = 540, 1200
"""Pixels from which a drawing takes the whole width of the page, and from which it is scrolled and no longer shrunk to that."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of "before and after". bars: the lengths of two bars, in thousandths of the longest."""

    name: str
    before: int
    after: int
    bars: tuple[int, int]

    @property
    def change(self) -> str:
        """`+3`, `−12`, or `0`."""
        return f"{self.after - self.before:+d}".replace("-", "−") if self.after != self.before else "0"


@dataclass(frozen=True, slots=True)
class Section:
    """One fusion: what it is and where it was made."""

    fusion: grouping.Fusion
    summary: str
    formula: str
    file: str
    into: str
    looks: tuple[Look, ...]


@dataclass(frozen=True, slots=True)
class Headline:
    """The verdict in a word or two, and what follows from it. mood: "good", "bad", "warn" or "nothing"."""

    mood: str
    words: str
    sentence: str


def check_installed() -> None:
    """Raises UsageError where a package that the page is made with is missing."""
    if missing := [package for module, package in NEEDS.items() if find_spec(module) is None]:
        hint = "install it with: pip install 'onnx-subgraph[report]'"
        raise UsageError(f"--report needs {' and '.join(missing)}, which is not installed", hint=hint)


def page(entry: Entry, library: Library, *, hidden: int = 0) -> str:
    """The page on a model that could be fused, and whose rewrites were noted down (`Options.excerpts`).

    hidden: how many near misses the entry does not tell of (`relevance`). Raises UsageError where the extra is not installed.
    """
    result = entry.result
    assert result is not None
    return rendered(
        "page.html.jinja",
        result=result,
        headline=headline(entry),
        checks=entry.checks,
        notices=notices(result),
        why=reasons(result),
        undone=_undone(result.undone),
        standing=blame.standing,
        tried=tried(result.verdict.runs) if any(run.provider for run in result.verdict.runs) else "",
        placements=[(placement, grouping.placed(placement)) for placement in result.verdict.placements],
        own=[_own(work) for work in result.own],
        inside=own.INSIDE,
        folded=FOLDED,
        tables={provider: table_of(provider).onnxruntime for provider in result.assumed},
        evidence=evidence(result.verdict),
        flushed=flushed(result.flushed, result.unflushed),
        simplified=simplified(result.simplified, result.unsimplified),
        recurrent=recurrent(result.recurrent, result.unrecurrent),
        latency=timed(result.bench) if result.bench is not None else (),
        sections=[_section(fusion, library) for fusion in grouping.fusions(result.rewrites)],
        operators=histogram(result.operators_before, result.operators_after),
        sizes=(_size(result.model), _size(result.output) or result.size),
        compared=grouping.compared(result.verdict.runs),
        near_misses=grouping.nearly_matched(result.near_misses),
        hidden=hidden,
        skipped=grouping.skipped(skip for skip in result.skipped if skip.bug is None),
        versions={name: _version(name) for name in ("onnx-subgraph", "onnxruntime", "onnx")},
        names=some_names,
        unnamed=UNNAMED,
        wide=WIDE,
        very_wide=VERY_WIDE,
    )


def rendered(template: str, **said: object) -> str:
    """A page by the template of that name. Raises UsageError where the extra is not installed."""
    check_installed()
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def printable(value: object) -> object:
        return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=FileSystemLoader(PAGE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(count=count, outcome=outcome, bytes_text=bytes_text, short=listing.short, assumed_words=ASSUMED)
    style = f"{(PAGE / 'style.css').read_text(encoding='utf-8')}\n{highlights()}\n"
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    # A hash allows this one style and no other; nothing else is allowed at all.
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return environment.get_template(template).render(style=Markup(style), policy=policy, **said)


def headline(entry: Entry) -> Headline:
    """What a reader has to know first."""
    result = entry.result
    assert result is not None
    fused = count(len(result.rewrites), "fusion")
    written = f"{result.output.name} was written." if result.output is not None else "Nothing was written."
    undone = f" {count(len(result.undone), 'fusion')} that did not hold {'is' if len(result.undone) == 1 else 'are'} undone."
    undone = undone if result.undone else ""
    match result.verdict.verdict:
        case "different":
            return Headline("bad", "Different", f"After {fused} the model does not compute what it did.{undone} {written}")
        case "not-run":
            why = f": {result.verdict.reason}" if result.verdict.reason else ""
            return Headline("warn", "Not verified", f"{fused}; nothing was compared{why}. {written}")
        case _ if entry.missed:
            return Headline("bad", entry.outcome.capitalize(), f"The model is equivalent after {fused}.{undone} {written}")
        case _ if not result.rewrites:
            return Headline("warn" if undone else "nothing", "Nothing fused", f"The model is as it was.{undone} {written}")
        case _:
            held = f"After {fused} every output is within its bound of the original."
            if not result.verdict.runs:
                held = f"Each of {fused} is right by itself; the model was not run."
            return Headline("warn" if undone else "good", "Equivalent", f"{held}{undone} {written}")


def histogram(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[Row, ...]:
    """How often each operator is there, before and after; what changed most comes first, what did not change last."""
    longest = max([*before.values(), *after.values()], default=1)
    rows = [
        Row(name, a, b, (round(1000 * a / longest), round(1000 * b / longest)))
        for name in {**before, **after}
        for a, b in [(before.get(name, 0), after.get(name, 0))]
    ]
    return tuple(sorted(rows, key=lambda row: (-abs(row.after - row.before), -row.before, row.name)))


def visible(words: str) -> str:
    """`words` with a sign in the place of every character that is not seen or turns the order of its neighbours around."""
    if words.isprintable():
        return words
    hidden = {"Cc", "Cf", "Cs", "Co", "Cn"}
    return "".join("\ufffd" if unicodedata.category(c) in hidden and c not in "\n\t" else c for c in words)


def _size(path: Path | None) -> int | None:
    """The bytes of a model file with its data; None for one that was not written or is gone."""
    return size_on_disk(path) if path is not None and path.is_file() else None


def _section(fusion: grouping.Fusion, library: Library) -> Section:
    pattern = next((pattern for pattern in library.patterns if pattern.id == fusion.pattern), None)
    looks = [look_of(group.sites, drawn=number < MOST_DRAWN) for number, group in enumerate(alike(fusion.sites))]
    return Section(
        fusion=fusion,
        summary=pattern.summary if pattern is not None else "",
        formula=_formula(pattern) if pattern is not None else "",
        file=listing.short(pattern.file) if pattern is not None else "",
        into=fusion.op or FOLDED,
        looks=tuple(looks),
    )


def _undone(undone: Sequence[Undone]) -> list[tuple[Undone, str, Look | None]]:
    """What was taken back, why, and how it looked; of those that look the same only the first is drawn."""
    looks = {group.first.place: look_of(group.sites) for group in alike(one.rewrite for one in undone)[:MOST_DRAWN]}
    return [(one, blame.reason(one), looks.get(one.rewrite.place)) for one in undone]


def _own(work: OwnWork) -> tuple[OwnWork, str, list[own.ByOperator], list[own.ByPattern]]:
    """What one provider does by itself, in a line and in two tables."""
    return work, own.summary(work), list(own.by_operator(work)), list(own.by_pattern(work))


def _formula(pattern: Pattern) -> str:
    """What the file of a pattern says of it, with the formulas that it uses."""
    try:
        source, used = source_of(Path(pattern.file), pattern.id), used_formulas(Path(pattern.file), pattern.id)
    except (OSError, PatternError):  # deleted or changed since it was loaded
        return ""
    written = listing.formula(source, without=("id", "summary", "formerly", "example", "keeps", "fuses"))
    return "\n".join([written, *map(listing.shared, used)])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a checkout that is not installed, or a wheel of onnxruntime under another name
        return ""
