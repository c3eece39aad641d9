"""Undone rewrites, and the verdict on each rewrite alone: one sentence each, for people and for logs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from onnx_subgraph.report.grouping import anonymous, grouped
from onnx_subgraph.report.wording import count

if TYPE_CHECKING:
    from onnx_subgraph.verification.blame import Undone
    from onnx_subgraph.verification.site import SiteCheck


def sentence(undone: Undone, more: int = 0) -> str:
    """Which rewrite was undone, and why: `gelu at /Mul is undone: …`. more: how many others were, for the same reason."""
    others = f" and {count(more, 'other place')}" if more else ""
    return f"{undone.rewrite.pattern} at {undone.rewrite.root}{others} is undone: {reason(undone)}"


def sentences(undone: Iterable[Undone]) -> list[str]:
    """`sentence` for the first of those that are alike."""
    return [sentence(first, len(more)) for first, *more in alike(undone)]


def alike(undone: Iterable[Undone]) -> list[list[Undone]]:
    """Those of one pattern that were undone for the same reason, numbers aside."""
    return grouped(undone, lambda one: (one.rewrite.pattern, re.sub(r"\d[\d.e+-]*", "#", anonymous(reason(one)))))


def reason(undone: Undone) -> str:
    """How the rewrite was wrong, or that nothing shows it to be right; for a user's lowering, with its file.

    Where another replacement is kept, also which operators they were.
    """
    rewrite, how = undone.rewrite, _reason(undone)
    how = f"as in {rewrite.lowering}, {how}" if rewrite.lowering else f"as {rewrite.op}, {how}" if undone.instead else how
    return f"{how}; it is replaced by {undone.instead} instead" if undone.instead else how


def _reason(undone: Undone) -> str:
    if undone.found == "nowhere":
        return f"nothing shows it to be right: {undone.problem}"
    if undone.found == "model":
        what = undone.problem or f"differs by {undone.error:.2g}, {undone.bound:.2g} is allowed"
        if undone.site is not None:
            what += f"; by itself it {distance(undone.site.fused, undone.site.bound, undone.site.unfused)}"
        what += "; --fix-overflows keeps the fusion" if undone.overflows else ""
        return f"with it, the output '{undone.output}' {what}" if undone.output else f"with it, the model {what}"
    value = f"its result {undone.output}" if undone.output else "it"
    where = "on drawn values, " if undone.drawn else ""
    return f"{where}{value} {undone.problem or distance(undone.error, undone.bound, undone.original)}"


def distance(error: float, bound: float, original: float | None) -> str:
    """The error of a fused result against the reference, its bound, and the error before the fusion."""
    before = "" if original is None else f", and {original:.2g} was the error before"
    return f"is {error:.2g} from the truth; {bound:.2g} is allowed{before}"


def standing(check: SiteCheck) -> str:
    """Whether a rewrite is correct alone: "yes", the problem, or why it is not known."""
    if check.accuracy is None:
        return f"not known: {check.unknown}"
    if not check.accuracy.holds:
        return check.accuracy.problem or "no"
    how = ["on drawn values"] if check.values == "drawn" else []
    how += ["against the unfused result"] if check.against == "unfused" else []
    how += [f"as {check.like}"] if check.like else []
    return f"yes, {', '.join(how)}" if how else "yes"
