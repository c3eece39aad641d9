"""Find the wrong rewrites among many by bisection over the models that have some of them.

The number of verifications and their time are limited (`Trials`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Generic, Protocol, TypeVar

from onnx_subgraph.rewriting.rewrite import Place, Rewrite
from onnx_subgraph.verification.verdict import Verdict

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
        """The places of the most rewrites with which a model ran and did not differ."""
        held = [key for key, found in self._known.items() if found.verdict == "equivalent" or found.blind]
        return max((frozenset(place for place, _ in key) for key in held), key=len, default=frozenset())

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
