"""Find wrong rewrites, undo them, and verify the rest again.

Each rewrite is first checked separately against float64 (`site`). If the models differ although no rewrite is wrong separately,
bisection over the rewrites finds the culprits, with log2(n) verifications of whole models each. A rewrite that can't be checked
separately is kept only if the model's outputs would show an error there; that is tested by planting one (`planting`).

The number of verifications and their time are limited (`Trials`). Where they do not suffice, or no single rewrite explains the
difference, the most rewrites are kept with which the model was seen to be equal. Without any, the model stays "different", and
the reason of its verdict says so.

A match may have several replacements. If one is wrong, or nothing shows that it is right, one by another operator is tried:
onnxruntime's Attention and MultiHeadAttention differ where a mask hides a whole row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import monotonic
from typing import Generic, Protocol, TypeVar

from onnx_subgraph.rewriting.apply import Barred
from onnx_subgraph.rewriting.rewrite import Place, Rewrite
from onnx_subgraph.verification.accuracy import Accuracy
from onnx_subgraph.verification.coverage import left_to_outputs, resting_on, unshown
from onnx_subgraph.verification.site import SiteCheck, worst
from onnx_subgraph.verification.verdict import Verdict

MOST_ROUNDS = 8
"""The most rounds of checks. After an undo another pattern may match in the same place, and be wrong too."""
MOST_TRIED = 2
"""The most operators that are tried at one place."""
MOST_BISECTED = 8
"""The most rewrites found by bisection in a round. After that, all rewrites of the same patterns are undone."""
MOST_SEARCHED = 4
"""A search may make as many verifications as it takes to find so many rewrites among all …"""
MORE = 24
"""… and so many more."""
PATIENCE = 180.0
"""No search for another rewrite begins after so many seconds."""


class Rewritten(Protocol):
    """A model after rewriting."""

    @property
    def held(self) -> tuple[Rewrite, ...]:
        """The rewrites that are checked separately, in the order of the commits."""
        ...


Fused = TypeVar("Fused", bound=Rewritten)
Make = Callable[[Barred], Fused]
"""Rewrites the model again, without what may not be replaced."""
Check = Callable[[Fused, bool], Sequence[SiteCheck]]
"""Checks each rewrite separately. The flag asks for a thorough check, because the model is known to differ."""

HINT = "--only and --skip choose other patterns, -v names them; --inputs FEEDS.npz compares on inputs that matter"
"""The next step where a search ended."""

Plant = Callable[[Fused, Rewrite], "Verdict | None"]
"""The verdict on the model with a planted error at a rewrite; None where none can be planted there."""


class Trials(Generic[Fused]):
    """Verifies models, each of them once, and counts. made: how many verifications there were."""

    def __init__(self, verdict: Callable[[Fused], Verdict]) -> None:
        self._verdict = verdict
        self._known: dict[tuple[tuple[Place, str], ...], Verdict] = {}
        self._first, self._most, self._until = 0.0, inf, inf
        self.made = 0

    def __call__(self, fused: Fused) -> Verdict:
        """The verdict on a model."""
        key = tuple((rewrite.place, rewrite.op) for rewrite in fused.held)
        if key not in self._known:
            self.made += 1
            self._known[key] = self._verdict(fused)
        return self._known[key]

    @property
    def equal(self) -> frozenset[Place]:
        """The places of the most rewrites with which a model was equivalent."""
        known = (frozenset(place for place, _ in key) for key, found in self._known.items() if found.verdict == "equivalent")
        return max(known, key=len, default=frozenset())

    def limit(self, rewrites: int) -> None:
        """Limit the search among so many rewrites; a search that goes on keeps its limit."""
        if self._most == inf:
            self._first = self.made + _steps(rewrites)
            self._most = self.made + MORE + MOST_SEARCHED * _steps(rewrites)
            self._until = monotonic() + PATIENCE

    @property
    def left(self) -> float:
        """How many verifications the search may still make. However long they take, it may find one rewrite."""
        return 0 if self.made >= self._first and monotonic() > self._until else self._most - self.made


@dataclass(frozen=True, slots=True)
class Search:
    """The places to undo, with the verdict that showed each. ended: what was not found, and an example or "", where it ended."""

    guilty: Mapping[Place, Verdict]
    ended: tuple[str, str] | None = None


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


def settle(
    fused: Fused,
    found: Verdict,
    make: Make[Fused],
    verdict: Callable[[Fused], Verdict],
    check: Check[Fused],
    plant: Plant[Fused],
) -> Settled[Fused]:
    """Undo wrong rewrites. Returns the model and its verdict, which is still "different" where no rewrite can be blamed.

    fused: the model with all rewrites, whose verdict is `found`.
    """
    undone: dict[Place, list[Undone]] = {}
    checks: tuple[SiteCheck, ...] = ()
    trials, ended = Trials(verdict), False
    kept: frozenset[Place] | None = None

    def barred(place: Place) -> Collection[str] | None:
        ones = undone.get(place, ())
        may_stay = kept is None or place in kept
        return {one.rewrite.op for one in ones} if may_stay and len(ones) < MOST_TRIED else None

    def only(places: Collection[Place]) -> Fused:
        left = frozenset(places)
        return make(lambda place: barred(place) if place in left else None)

    def by_itself(place: Place) -> Verdict | None:
        made = only([place])
        return trials(made) if any(rewrite.place == place for rewrite in made.held) else None

    for _ in range(MOST_ROUNDS):
        if not fused.held or (found.verdict == "not-run" and not found.blind):
            break
        checks = tuple(check(fused, found.verdict == "different"))
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
            for place, rewrite in by_place.items():
                if place in search.guilty and not (kept and place in kept):
                    guilty.append(_in_model(rewrite, search.guilty[place], alone.get(place)))
                elif kept and place not in kept:
                    guilty.append(_beside(rewrite, why))
        elif not guilty:
            hidden = [one for one in left_to_outputs(found, fused.held, checks) if _misses(plant(fused, one.rewrite))]
            guilty = [*map(_unshown, unshown(found, fused.held, checks)), *map(_hidden, hidden)]
        if not guilty:
            break
        for one in guilty:
            undone.setdefault(one.rewrite.place, []).append(one)
        fused = make(barred)
        found = trials(fused)
    left = {rewrite.place: rewrite.op for rewrite in fused.held}
    sites = tuple(c for c in checks if c.rewrite.place in left)
    wrong = tuple(replace(one, instead=left.get(place, "")) for place, (one, *_) in undone.items())
    return Settled(fused, resting_on(found, fused.held, sites), wrong, sites, ended)


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


def bisect(
    places: Sequence[Place],
    found: Verdict,
    test: Callable[[Collection[Place]], Verdict],
    by_itself: Callable[[Place], Verdict | None] = lambda place: None,
    affordable: Callable[[], float] = lambda: inf,
) -> Search:
    """Find the places to undo so that the model no longer differs; none where it still differs without all.

    found: the verdict with all places. test: the verdict with some of them. Places must be in the order of their rewriting: any
    leading part of them can be rewritten without the rest. by_itself: the verdict with one of them alone, None where it needs
    others. affordable: how many verifications may still be made.
    """
    guilty: dict[Place, Verdict] = {}
    left, ended = list(places), ("not all rewrites that change the outputs were found", "")
    if test(()).verdict == "different":  # it differs without any rewrite: by its new opset, or from run to run
        return Search({})
    equal = 0  # with so many of the first it does not differ
    while found.verdict == "different" and left and len(guilty) < MOST_BISECTED:
        if affordable() < _steps(len(left) - equal) + 2:
            break
        fewest, most = min(equal, len(left) - 1), len(left)  # equal with `fewest` of them, different with `most`
        while most - fewest > 1:
            middle = (fewest + most) // 2
            seen = test(left[:middle])
            if seen.verdict == "different":
                most, found = middle, seen
            else:
                fewest = middle
        guilty[one := left.pop(most - 1)] = found
        equal, found = most - 1, test(left)
        if found.verdict == "different" and (alone := by_itself(one)) is not None and alone.verdict != "different":
            ended = "no single rewrite that changes the outputs was found", f": {one.pattern} at {one.results[0]} alone does not"
            break
    if found.verdict != "different":
        return Search(guilty)
    patterns = {place.pattern for place in guilty}
    others = [place for place in left if place.pattern not in patterns]
    if not guilty or test(others).verdict == "different":
        return Search(guilty, ended)
    return Search({**guilty, **dict.fromkeys(_besides(left, others), found)})


def _besides(places: Iterable[Place], others: Collection[Place]) -> list[Place]:
    kept = set(others)
    return [place for place in places if place not in kept]


def _steps(places: int) -> int:
    """How many verifications find one of so many places, and try the others."""
    return max(0, places - 1).bit_length() + 1
