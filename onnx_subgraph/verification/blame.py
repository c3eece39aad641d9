"""Find wrong rewrites, undo them, and verify the rest again.

Each rewrite is first checked separately against float64 (`site`). If the models differ although no rewrite is wrong separately,
bisection over the rewrites finds the culprits, with log2(n) verifications of whole models each. A rewrite that can't be checked
separately is kept only if the model's outputs would show an error there; that is tested by planting one (`planting`).

The number of verifications and their time are limited (`bisection`). Where they do not suffice, or no single rewrite explains the
difference, the most rewrites are kept with which the model was seen to be equal. Without any, the model stays "different", and
the reason of its verdict says so.

A pattern of the user's that was wrong at one place is suspect at its others: they are checked on drawn values of all magnitudes
as well, because the model's own values may not reach what is wrong with it.

A match may have several replacements. If one is wrong, or nothing shows that it is right, one by another operator or lowering is
tried: onnxruntime's Attention and MultiHeadAttention differ where a mask hides a whole row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from onnx_subgraph.rewriting.apply import Barred
from onnx_subgraph.rewriting.rewrite import Place, Rewrite, Way
from onnx_subgraph.verification.accuracy import Accuracy
from onnx_subgraph.verification.bisection import Fused, Rewritten, Trials, bisect
from onnx_subgraph.verification.coverage import left_to_outputs, resting_on, unshown
from onnx_subgraph.verification.site import SiteCheck, worst
from onnx_subgraph.verification.verdict import Verdict

MOST_ROUNDS = 8
"""The most rounds of checks. After an undo another pattern may match in the same place, and be wrong too."""
MOST_TRIED = 2
"""The most replacements that are tried at one place."""

Make = Callable[[Barred], Fused]
"""Rewrites the model again, without what may not be replaced."""

HINT = "--only and --skip choose other patterns, -v names them; --inputs FEEDS.npz compares on inputs that matter"
"""The next step where a search ended."""


Fused_contra = TypeVar("Fused_contra", bound=Rewritten, contravariant=True)


class Judge(Protocol[Fused_contra]):
    """What `settle` asks about a rewritten model."""

    def verdict(self, fused: Fused_contra) -> Verdict:
        """Whether it computes the same as the original."""

    def check(self, fused: Fused_contra, thorough: bool) -> Sequence[SiteCheck]:
        """The check of each rewrite alone. thorough: because the model is known to differ."""

    def doubt(self, fused: Fused_contra, wrong: Collection[Rewrite]) -> Sequence[SiteCheck]:
        """The check of others on drawn values of all magnitudes: of those that are suspect because these rewrites are wrong."""

    def planted(self, fused: Fused_contra, rewrite: Rewrite) -> Verdict | None:
        """The verdict on the model with a planted error at the rewrite; None where none can be planted there."""


@dataclass(frozen=True, slots=True)
class Undone:
    """A rewrite that was undone.

    found: where the error was seen: at the "site", in the outputs of the "model", or "nowhere": nothing shows that the rewrite is
    right, and `problem` says why.
    output: the value that differed; an output of the model where `found` is "model".
    error, bound: its error against float64 (against the reference's output), and the allowed one.
    original: the error before the rewrite; None where unknown. problem: another defect, or "".
    site: where `found` is "model", the rewrite's accuracy in the separate check, if known.
    overflows: the number of elements where the original overflows and the fused model does not, if nothing else is wrong.
    drawn: whether the error was seen on drawn values.
    instead: the main operator of another replacement of the same match, which is kept; "" where there is none.
    """

    rewrite: Rewrite
    found: str
    provider: str
    output: str
    error: float
    bound: float
    original: float | None = None
    problem: str = ""
    site: Accuracy | None = None
    overflows: int = 0
    drawn: bool = False
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Settled(Generic[Fused]):
    """What remains after the wrong rewrites are undone.

    sites: the separate checks of the remaining rewrites. ended: whether the search ended without finding all wrong ones.
    """

    fused: Fused
    verdict: Verdict
    undone: tuple[Undone, ...] = ()
    sites: tuple[SiteCheck, ...] = ()
    ended: bool = False


def settle(fused: Fused, found: Verdict, make: Make[Fused], judge: Judge[Fused]) -> Settled[Fused]:
    """Undo wrong rewrites. Returns the model and its verdict, which is still "different" where no rewrite can be blamed.

    fused: the model with all rewrites, whose verdict is `found`.
    """
    undone: dict[Place, list[Undone]] = {}
    checks: tuple[SiteCheck, ...] = ()
    trials, ended = Trials(judge.verdict), False
    kept: frozenset[Place] | None = None

    def barred(place: Place) -> Collection[Way] | None:
        ones = undone.get(place, ())
        may_stay = kept is None or place in kept
        return {one.rewrite.way for one in ones} if may_stay and len(ones) < MOST_TRIED else None

    def only(places: Collection[Place]) -> Fused:
        left = frozenset(places)
        return make(lambda place: barred(place) if place in left else None)

    def by_itself(place: Place) -> Verdict | None:
        made = only([place])
        return trials(made) if any(rewrite.place == place for rewrite in made.held) else None

    for _ in range(MOST_ROUNDS):
        if not fused.held or (found.verdict == "not-run" and not found.blind):
            break
        checks = tuple(judge.check(fused, found.verdict == "different"))
        guilty = [_at_site(one) for one in worst(checks) if one.wrong]
        if not guilty and found.verdict == "different":
            trials.limit(len(fused.held))
            by_place = {rewrite.place: rewrite for rewrite in fused.held}
            alone = {one.rewrite.place: one.accuracy for one in worst(checks)}
            search = bisect(tuple(by_place), found, lambda places: trials(only(places)), by_itself, lambda: trials.left)
            what, example = search.ended or ("", "")
            why = f"{what} by {trials.made} verifications{example}; {HINT}"
            kept = trials.equal if search.ended else kept
            if search.ended and not kept:
                found, ended = replace(found, reason="; ".join(filter(None, (why, found.reason)))), True
                break
            shown = {place: one for place, one in search.guilty.items() if not kept or place not in kept}
            guilty = [_in_model(by_place[place], one, alone.get(place)) for place, one in shown.items()]
            besides = (one for place, one in by_place.items() if place not in shown and kept and place not in kept)
            guilty += [_beside(rewrite, why) for rewrite in besides]
        elif not guilty:
            hidden = [one for one in left_to_outputs(found, fused.held, checks) if _misses(judge.planted(fused, one.rewrite))]
            guilty = [*map(_unshown, unshown(found, fused.held, checks)), *map(_hidden, hidden)]
        if not guilty:
            break
        wrong = {one.rewrite.place: one.rewrite for one in guilty if one.found != "nowhere"}
        guilty += [_at_site(one) for one in worst(judge.doubt(fused, wrong.values())) if one.wrong]
        for one in guilty:
            undone.setdefault(one.rewrite.place, []).append(one)
        fused = make(barred)
        found = trials(fused)
    left = {rewrite.place: rewrite.op for rewrite in fused.held}
    sites = tuple(c for c in checks if c.rewrite.place in left)
    told = tuple(replace(one, instead=left.get(place, "")) for place, (one, *_) in undone.items())
    return Settled(fused, resting_on(found, fused.held, sites), told, sites, ended)


def _at_site(check: SiteCheck) -> Undone:
    accuracy = check.accuracy
    assert accuracy is not None
    errors = accuracy.fused, accuracy.bound, accuracy.unfused, accuracy.problem
    return Undone(check.rewrite, "site", check.provider, check.result, *errors, drawn=check.values == "drawn")


def _unshown(check: SiteCheck) -> Undone:
    return Undone(check.rewrite, "nowhere", check.provider, check.result, float("inf"), 0.0, problem=check.unknown)


def _hidden(check: SiteCheck) -> Undone:
    why = check.unknown or "the values that flow there show nothing"
    return replace(_unshown(check), problem=f"{why}, and the outputs do not show an error that is planted there")


def _beside(rewrite: Rewrite, why: str) -> Undone:
    """A rewrite that was undone because the search for wrong ones ended."""
    return Undone(rewrite, "nowhere", "", "", float("inf"), 0.0, problem=f"the outputs differ with it and others, and {why}")


def _misses(verdict: Verdict | None) -> bool:
    """Whether the outputs fail to show a planted error."""
    return verdict is None or verdict.verdict != "different"


def _in_model(rewrite: Rewrite, found: Verdict, site: Accuracy | None) -> Undone:
    run = found.worst
    assert run is not None, "a verdict that is different has a run that is not equal"
    return Undone(rewrite, "model", run.provider, run.output, run.error, run.bound, None, run.problem, site, run.overflows)
