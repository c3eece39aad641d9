"""The evidence for a verdict: for each fusion, whether a run reached it, and what shows that it is right.

A fusion that passed its separate check is proved. Otherwise the model's outputs are the evidence, if a run reached the fusion and
a planted error there shows in some output. A fusion without evidence is undone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from onnx_subgraph.rewriting.rewrite import Place, Rewrite
from onnx_subgraph.verification.site import SiteCheck, worst
from onnx_subgraph.verification.verdict import Coverage, Verdict


def unshown(verdict: Verdict, rewrites: Sequence[Rewrite], sites: Sequence[SiteCheck]) -> list[SiteCheck]:
    """The rewrites without evidence, each with the reason why it could not be checked separately."""
    ran = _scopes_that_ran(rewrites, verdict)
    return [c for c in _not_proved(rewrites, sites) if verdict.blind or c.rewrite.place.scope not in ran]


def left_to_outputs(verdict: Verdict, rewrites: Sequence[Rewrite], sites: Sequence[SiteCheck]) -> list[SiteCheck]:
    """The rewrites for which only the model's outputs can be evidence."""
    if verdict.verdict != "equivalent":
        return []
    ran = _scopes_that_ran(rewrites, verdict)
    return [check for check in _not_proved(rewrites, sites) if check.rewrite.place.scope in ran]


def resting_on(verdict: Verdict, rewrites: Sequence[Rewrite], sites: Sequence[SiteCheck]) -> Verdict:
    """The verdict on a model whose rewrites are not wrong, with the evidence for each.

    It is "equivalent" even if the outputs show nothing, provided that each rewrite passed its separate check.
    """
    if verdict.verdict == "different" or (verdict.verdict == "not-run" and not verdict.blind) or not sites:
        return verdict
    by_place = {check.rewrite.place: check for check in worst(sites)}
    counted = replace(verdict, coverage=_coverage(rewrites, by_place, verdict))
    if not verdict.blind or unshown(verdict, rewrites, sites):
        return counted
    return replace(counted, verdict="equivalent", reason=f"each fusion is right by itself; {verdict.reason}")


def _not_proved(rewrites: Sequence[Rewrite], sites: Sequence[SiteCheck]) -> list[SiteCheck]:
    by_place = {check.rewrite.place: check for check in worst(sites)}
    checks = (by_place[rewrite.place] for rewrite in rewrites if rewrite.place in by_place)
    return [check for check in checks if not check.proved]


def _scopes_that_ran(rewrites: Sequence[Rewrite], verdict: Verdict) -> frozenset[str]:
    """The scopes that ran. A graph runs as a whole, so one of its nodes tells for a rewrite that leaves no node."""
    ran = {rewrite.place.scope for rewrite in rewrites if rewrite.node in verdict.reached.reached}
    return frozenset({"", *ran}) if verdict.runs else frozenset()


def _coverage(rewrites: Sequence[Rewrite], sites: Mapping[Place, SiteCheck], verdict: Verdict) -> Coverage:
    counts: Counter[str] = Counter()
    scopes = _scopes_that_ran(rewrites, verdict)
    for rewrite in rewrites:
        ran = "body" if rewrite.body and rewrite.node not in verdict.reached.kernel else "kernel"
        counts[ran if rewrite.place.scope in scopes else "alone"] += 1
        check = sites.get(rewrite.place)
        if check is None or not check.proved:
            counts["outputs"] += 1
            continue
        counts[check.against] += 1
        counts["drawn"] += check.values == "drawn"
    return Coverage(**counts)
