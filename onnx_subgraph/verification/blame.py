"""Which rewrites are wrong: they are found, undone, and what is left is verified again.

Each rewrite is held against the truth by itself (`site`), whatever the model's outputs say. Where they differ and no rewrite is
wrong by itself, bisection over the rewrites finds those that make them differ: with whole models, log2(n) verifications for each.
A rewrite that can't be held by itself stays where the outputs would show an error: one is planted there (`planting`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from onnx_subgraph.rewriting.apply import Admits
from onnx_subgraph.rewriting.rewrite import Place, Rewrite
from onnx_subgraph.verification.accuracy import Accuracy
from onnx_subgraph.verification.coverage import left_to_outputs, resting_on, unshown
from onnx_subgraph.verification.site import SiteCheck, worst
from onnx_subgraph.verification.verdict import Verdict

MOST_ROUNDS = 8
"""How often the guilty are looked for: where one was undone another pattern may match, and be wrong in its turn."""
MOST_BISECTED = 8
"""How many rewrites are found one by one in a round; after them whatever their patterns did is undone."""


class Rewritten(Protocol):
    """A model after rewriting."""

    @property
    def held(self) -> tuple[Rewrite, ...]:
        """What was replaced and is held by itself, in the order of the commits."""
        ...


Fused = TypeVar("Fused", bound=Rewritten)
Make = Callable[[Admits], Fused]
"""Rewrites the model anew where it may."""
Check = Callable[[Fused, bool], Sequence[SiteCheck]]
"""Holds each rewrite by itself; whether thoroughly, since the model is known to be different."""

Plant = Callable[[Fused, Rewrite], "Verdict | None"]
"""The verdict on the model with an error at a rewrite; None where none can be planted there."""


@dataclass(frozen=True, slots=True)
class Undone:
    """A rewrite that was taken back. found: how, at the "site" itself or in the outputs of the "model"; or "nowhere": nothing
    shows it to be right, and `problem` says why.

    output: the value that differed; an output of the model where `found` is "model". error, bound: how far it was from the truth
    (from the reference's output), and how far it might be. original: how far it was before the rewrite; None where unknown.
    problem: "" or what was wrong besides. overflows: at how many elements the original overflows and the fused model does not,
    where nothing else is wrong. site: where `found` is "model", how near to the truth it is by itself, if known.
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


@dataclass(frozen=True, slots=True)
class Settled(Generic[Fused]):
    """What is left when the guilty are undone. sites: how each rewrite that is left stands by itself."""

    fused: Fused
    verdict: Verdict
    undone: tuple[Undone, ...] = ()
    sites: tuple[SiteCheck, ...] = ()


def settle(
    first: Fused, make: Make[Fused], verdict: Callable[[Fused], Verdict], check: Check[Fused], plant: Plant[Fused]
) -> Settled[Fused]:
    """The model without the rewrites that are wrong, and its verdict: "different" still where none can be blamed.

    first: the model with all rewrites.
    """
    fused, found = first, verdict(first)
    undone: dict[Place, Undone] = {}
    checks: tuple[SiteCheck, ...] = ()

    def may_stay(place: Place) -> bool:
        return place not in undone

    for _ in range(MOST_ROUNDS):
        if not fused.held or (found.verdict == "not-run" and not found.blind):
            break
        checks = tuple(check(fused, found.verdict == "different"))
        guilty = [_at_site(one) for one in worst(checks) if one.wrong]
        if not guilty and found.verdict == "different":
            guilty = _bisected(fused, found, make, verdict, {c.rewrite.place: c.accuracy for c in worst(checks)})
        elif not guilty:
            hidden = [one for one in left_to_outputs(found, fused.held, checks) if _hides(plant(fused, one.rewrite))]
            guilty = [*map(_unshown, unshown(found, fused.held, checks)), *map(_hidden, hidden)]
        if not guilty:
            break
        undone.update((one.rewrite.place, one) for one in guilty)
        fused = make(may_stay)
        found = verdict(fused)
    left = {rewrite.place for rewrite in fused.held}
    sites = tuple(c for c in checks if c.rewrite.place in left)
    return Settled(fused, resting_on(found, fused.held, sites), tuple(undone.values()), sites)


def _at_site(check: SiteCheck) -> Undone:
    accuracy = check.accuracy
    assert accuracy is not None
    return Undone(
        check.rewrite, "site", check.provider, check.result, accuracy.fused, accuracy.bound, accuracy.unfused, accuracy.problem
    )


def _unshown(check: SiteCheck) -> Undone:
    return Undone(check.rewrite, "nowhere", check.provider, check.result, float("inf"), 0.0, problem=check.unknown)


def _hidden(check: SiteCheck) -> Undone:
    why = check.unknown or "the values that flow there show nothing"
    return replace(_unshown(check), problem=f"{why}, and the outputs do not show an error that is planted there")


def _hides(verdict: Verdict | None) -> bool:
    """Whether the outputs of the model with an error in it do not show that."""
    return verdict is None or verdict.verdict != "different"


def _bisected(
    fused: Fused,
    found: Verdict,
    make: Make[Fused],
    verdict: Callable[[Fused], Verdict],
    sites: Mapping[Place, Accuracy | None],
) -> list[Undone]:
    by_place = {rewrite.place: rewrite for rewrite in fused.held}

    def test(places: Collection[Place]) -> Verdict:
        allowed = frozenset(places)
        return verdict(make(allowed.__contains__))

    guilty = bisect(tuple(by_place), found, test)
    return [_in_model(by_place[place], seen, sites.get(place)) for place, seen in guilty.items()]


def _in_model(rewrite: Rewrite, found: Verdict, site: Accuracy | None) -> Undone:
    run = found.worst
    assert run is not None, "a verdict that is different has a run that is not equal"
    return Undone(rewrite, "model", run.provider, run.output, run.error, run.bound, None, run.problem, site, run.overflows)


def bisect(places: Sequence[Place], found: Verdict, test: Callable[[Collection[Place]], Verdict]) -> dict[Place, Verdict]:
    """The places without which the model is not different, and the verdict that showed each; {} where it stays different.

    found: the verdict with all places. test: the verdict with some. Places come in the order of their rewriting, so the first
    ones of them can always be rewritten without the others.
    """
    guilty: dict[Place, Verdict] = {}
    left = list(places)
    if test(()).verdict == "different":  # the model was made different before, by its new opset, or is so each time it runs
        return {}
    while found.verdict == "different" and left and len(guilty) < MOST_BISECTED:
        fewest, most = 0, len(left)  # with `fewest` of them it is not different, with `most` it is
        while most - fewest > 1:
            middle = (fewest + most) // 2
            seen = test(left[:middle])
            if seen.verdict == "different":
                most, found = middle, seen
            else:
                fewest = middle
        guilty[left.pop(most - 1)] = found
        found = test(left)
    if found.verdict == "different":
        patterns = {place.pattern for place in guilty}
        others = [place for place in left if place.pattern not in patterns]
        if test(others).verdict == "different":
            return {}
        guilty |= dict.fromkeys(_besides(left, others), found)
    return guilty


def _besides(places: Iterable[Place], others: Collection[Place]) -> list[Place]:
    kept = set(others)
    return [place for place in places if place not in kept]
