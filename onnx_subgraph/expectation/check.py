"""Check a section against a result: one `Check` for each expectation, with reasons for a failed one.

If a pattern fused less often than expected, the reasons are its near misses and its matches that could not be replaced, each with
the node and with what was expected and found there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnx_subgraph.errors import Span
from onnx_subgraph.expectation.expectation import AttributeValues, Fusions, Limit, Scalar, Section, Tolerance
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.result import FuseResult
from onnx_subgraph.rewriting.rewrite import Rewrite
from onnx_subgraph.verification.verdict import Run, Verdict

MOST_REASONS = 3
"""The most reasons of one kind in a check; `explain` lists all."""
UNNAMED = "(a node without a name)"
_INDEX = re.compile(r"(?<=[./])\d+(?=[./])")
"""The index of a layer in a scope: `/encoder/layer.3/output`."""
_SAME = 1e-6
"""The relative difference up to which two attributes are equal, because attributes are float32."""


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation and the finding. what: the counted or measured thing. span: the place of the expectation in its file.

    reasons: why it failed, if known, one line each.
    """

    what: str
    expected: str
    found: str
    met: bool
    span: Span
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.what}: expected {self.expected}, found {self.found}"


def check(section: Section, result: FuseResult, told: Sequence[NearMiss]) -> tuple[Check, ...]:
    """Check every expectation of `section` against `result`, in the order of `reading.KEYS`.

    told: the near misses to report and count; the others only serve as reasons.
    """
    return tuple(_checks(section, result, told))


def bytes_text(size: int) -> str:
    """A number of bytes as text: `438.2 MB`."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} B"


NONE = "none"
"""What an expectation says of an attribute that an operator does not have."""


def number_text(value: Scalar) -> str:
    """An attribute's value as text: `1e-05`, as short as float32 allows."""
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def places(near_misses: Iterable[NearMiss], pattern: str) -> list[NearMiss]:
    """The near misses of `pattern`, the furthest match first. Equal findings of several alternatives count once."""
    once: dict[tuple[str, ...], NearMiss] = {}
    for miss in near_misses:
        key = (miss.anchor, miss.node, miss.expected, miss.found)
        if miss.pattern == pattern and (key not in once or miss.matched > once[key].matched):
            once[key] = miss
    return sorted(once.values(), key=lambda miss: -miss.matched)


def _checks(section: Section, result: FuseResult, told: Sequence[NearMiss]) -> Iterator[Check]:
    for pattern, fusions in section.fusions.items():
        yield from _pattern(pattern, fusions, result, told)
    if section.near_misses is not None and section.near_misses_span is not None:
        yield from _near_misses(section.near_misses, section.near_misses_span, told)
    if section.engines is not None:
        yield limited("engines", section.engines, 0 if result.engines is None else result.engines.count)
    if section.nodes is not None:
        yield limited("nodes", section.nodes, result.nodes_after)
    if section.size is not None:
        yield _size(section.size, result.size)
    for provider, span in section.providers.items():
        yield _provider(provider, span, result)
    if section.tolerance is not None:
        yield held_to(section.tolerance, result.verdict)


def limited(what: str, limit: Limit, found: int, reasons: tuple[str, ...] = ()) -> Check:
    """Check a number against its limit. reasons: why the number is different."""
    met = limit.allows(found)
    return Check(what, limit.text, str(found), met, limit.span, () if met else reasons)


# Fusions


def _pattern(pattern: str, fusions: Fusions, result: FuseResult, told: Sequence[NearMiss]) -> Iterator[Check]:
    sites = [rewrite for rewrite in result.rewrites if rewrite.pattern == pattern]
    if fusions.count is not None:
        fewer = len(sites) < fusions.count.number
        reasons = (
            _why_fewer(pattern, sites, result, told) if fewer else [f"fused at: {_listed([_place(site) for site in sites])}"]
        )
        yield limited(pattern, fusions.count, len(sites), tuple(reasons))
    for name, values in fusions.attributes.items():
        yield _attribute(pattern, name, values, sites)


def _why_fewer(pattern: str, sites: Sequence[Rewrite], result: FuseResult, told: Sequence[NearMiss]) -> list[str]:
    wrong = [undone.rewrite for undone in result.undone if undone.rewrite.pattern == pattern]
    skips = [skip for skip in result.skipped if skip.pattern == pattern]
    reasons = [f"undone: node {rewrite.root}: with it, the model was not equivalent" for rewrite in wrong[:MOST_REASONS]]
    reasons += [f"matched, not replaced: node {skip.node or UNNAMED}: {skip.reason}" for skip in skips[:MOST_REASONS]]
    gone = {node for rewrite in result.rewrites for node in rewrite.replaces if node}
    left = [miss for miss in result.near_misses if not {miss.anchor, miss.node} & gone]
    near = list(dict.fromkeys(map(nearly, places(told, pattern) or places(left, pattern))))
    reasons += near[:MOST_REASONS]
    more = sum(max(0, len(found) - MOST_REASONS) for found in (wrong, skips, near))
    if more:
        reasons.append(f"and {more} more: `onnx-subgraph explain {result.model} {pattern}`")
    if not reasons:
        reasons += [f"not in {scope}, as in its neighbours" for scope in _gaps(sites)[:MOST_REASONS]]
    if before := _built_on(sites, result):
        reasons.append(f"elsewhere it takes what {' or '.join(before)} made: it may be missing there, too")
    return reasons or [f"nothing that is left in the model is like {pattern}"]


def _gaps(sites: Iterable[Rewrite]) -> list[str]:
    """The missing scopes in a row of layers: `/layer.1` if the `sites` are in `/layer.0`, `/layer.2` and `/layer.3`."""
    rows: dict[tuple[str, str], set[int]] = {}
    for site in sites:
        scope = site.node.rpartition("/")[0] + "/"
        for number in _INDEX.finditer(scope):
            rows.setdefault((scope[: number.start()], scope[number.end() : -1]), set()).add(int(number.group()))
    return [
        f"{before}{index}{after}"
        for (before, after), seen in rows.items()
        if len(seen) > 1
        for index in range(max(seen))
        if index not in seen
    ]


def _built_on(sites: Iterable[Rewrite], result: FuseResult) -> list[str]:
    """The patterns whose operators were fused again in `sites`."""
    makers = {rewrite.node: rewrite.pattern for rewrite in result.rewrites if rewrite.node}
    return list(dict.fromkeys(makers[name] for site in sites for name in site.replaces if name in makers))


def nearly(miss: NearMiss) -> str:
    """A near miss as one line."""
    count = f"{miss.matched} node{'' if miss.matched == 1 else 's'} matched"
    return f"nearly: node {miss.node or UNNAMED}: expected {miss.expected}, found {miss.found} ({count})"


def _attribute(pattern: str, name: str, expected: AttributeValues, sites: Sequence[Rewrite]) -> Check:
    wrong = [(site, value) for site in sites if not _among(value := dict(site.attributes).get(name), expected.values)]
    values = sorted({NONE if value is None else number_text(value) for _, value in wrong})
    found = f"{', '.join(values)} at {_listed([_place(site) for site, _ in wrong])}" if wrong else "nothing else"
    what = f"{name} of {pattern}"
    return Check(what, " or ".join(map(number_text, expected.values)), found, not wrong, expected.span)


def _among(value: Scalar | None, expected: Iterable[Scalar]) -> bool:
    return any(_same(value, other) for other in expected)


def _same(value: Scalar | None, other: Scalar) -> bool:
    if isinstance(value, int | float) and isinstance(other, int | float):
        return math.isclose(value, other, rel_tol=_SAME)
    return (NONE if value is None else value) == other


# Near misses


def _near_misses(limits: Mapping[str, Limit], span: Span, told: Sequence[NearMiss]) -> Iterator[Check]:
    for pattern, limit in limits.items():
        near = places(told, pattern)
        yield limited(f"near misses of {pattern}", limit, len(near), tuple(map(nearly, near[:MOST_REASONS])))
    others = {miss.pattern: None for miss in told if miss.pattern not in limits}
    found = {pattern: places(told, pattern) for pattern in others}
    reasons = tuple(f"{pattern}, {nearly(near[0])}" for pattern, near in found.items())
    said = ", ".join(f"{len(near)} of {pattern}" for pattern, near in found.items()) or "none"
    yield Check("near misses of other patterns" if limits else "near misses", "none", said, not found, span, reasons)


# Size and verification


def _size(limit: Limit, size: int | None) -> Check:
    if size is None:
        return Check("size", limit.text, "no size: nothing was fused", False, limit.span)
    return Check("size", limit.text, f"{bytes_text(size)} ({size} bytes)", limit.allows(size), limit.span)


def _provider(provider: str, span: Span, result: FuseResult) -> Check:
    runs = [run for run in result.verdict.runs if run.provider == provider]
    what = f"verification on {provider}"
    if provider not in result.providers:
        hint = f"the run verified on {', '.join(result.providers)}; add --provider {provider}"
        return Check(what, "equivalent", "not run", False, span, (hint,))
    if not runs and (result.verdict.runs or result.verdict.verdict != "equivalent"):
        return Check(what, "equivalent", "not run", False, span, tuple(filter(None, [result.verdict.reason])))
    different = [run for run in runs if not run.equal]
    return Check(what, "equivalent", "different" if different else "equivalent", not different, span, _outputs(different))


def _outputs(runs: Sequence[Run]) -> tuple[str, ...]:
    return tuple(f"output {name}" for name in dict.fromkeys(run.output for run in runs))


def held_to(tolerance: Tolerance, verdict: Verdict) -> Check:
    """Check the largest difference of an output against the tolerance."""
    expected = f"a difference of at most {tolerance.value:g}"
    if verdict.verdict == "not-run":
        return Check("tolerance", expected, "not verified", False, tolerance.span, (verdict.reason,))
    worst = max(verdict.runs, key=lambda run: (bool(run.problem), run.error), default=None)
    if worst is None:
        return Check("tolerance", expected, "none: nothing fused", True, tolerance.span)
    if worst.problem:
        return Check("tolerance", expected, f"{worst.output}: {worst.problem}", False, tolerance.span)
    found = f"{worst.error:.2g} in output {worst.output}"
    return Check("tolerance", expected, found, worst.error <= tolerance.value, tolerance.span)


def _place(rewrite: Rewrite) -> str:
    return rewrite.node or next(filter(None, rewrite.replaces), UNNAMED)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_REASONS])
    return f"{shown}, and {len(names) - MOST_REASONS} more" if len(names) > MOST_REASONS else shown
