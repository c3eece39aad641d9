"""Choices that a rounding inside the original changes: the order of two rows with equal scores (TopK), a label (ArgMax).

The few runs with noise that set a bound may miss such a choice. So where some elements of a candidate differ, and the model
chooses by computed numbers, the original runs with noise again: on all its roundings, and by turns only on the last ones before a
choice, which takes no longer than a run without noise. A run is noted if an element moved far beyond its bound. The candidate is
right if all its outputs agree with one of these runs, within the same bounds. Whatever does not flip is judged as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any

import onnx_ir as ir

from onnx_subgraph.model.nested import operands
from onnx_subgraph.verification.blocks import Array
from onnx_subgraph.verification.bounds import FLOOR
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.cases import Drawing
from onnx_subgraph.verification.judge import beyond, flatten
from onnx_subgraph.verification.noise import dependent, nodes_of, rounds
from onnx_subgraph.verification.rounded import is_choice
from onnx_subgraph.verification.sessions import Failure, run
from onnx_subgraph.verification.trial import Outcome
from onnx_subgraph.verification.whole_numbers import whole_numbers

ROUNDS = 6
"""How often the original runs with noise again. In even rounds the noise is before choices only."""
RUNS = 8
"""The most runs of a round. Of two equal scores, each exchanges the rows with a probability of one half."""
SECONDS = 5.0
"""The time limit of a round with noise everywhere. There is at least one run of each case."""
LIMIT = 30.0
"""The time limit in seconds of all rounds: some twenty runs of a detector that takes a second. A run that has begun ends."""
MOST = 0.5
"""The largest fraction of elements that differ by a choice …"""
FEW = 8
"""… if there are more than these."""
FAR = 8.0
"""How far beyond its bound an element moves that flips, in units of the bound."""


@dataclass
class Flips:
    """The runs with noise of the original on one provider that look for choices.

    tell: called with what is done. rounds: how many rounds there were. seconds: how long they took together.
    """

    drawing: Drawing
    tell: Callable[[str], None]
    rounds: int = 0
    seconds: float = 0.0

    def look(self, outcomes: Iterable[Outcome]) -> bool:
        """One more round for the cases of these outcomes. False if none may show a choice, or there were enough."""
        cases = list({id(one.case): one.case for one in outcomes if _may_flip(one)}.values())
        if self.rounds == ROUNDS or self.seconds >= LIMIT or not cases or not self._chooses:
            return False
        self.tell(f"choices on {self.drawing.provider}: does a rounding change them?")
        near = self.rounds % 2 == 0
        self.rounds += 1
        noise: dict[str, Any] = {"among": before_choices, "units": FLOOR} if near else {}
        session = self.drawing.open_noisy(seed=1009 * self.rounds, **noise)
        if isinstance(session, Failure):
            return True
        begin = perf_counter()
        left = LIMIT - self.seconds
        for _ in range(RUNS):
            for case in cases:
                given = run(session, case.fed_to(session))
                if not isinstance(given, Failure):
                    _note(case, flatten(given))
            took = perf_counter() - begin
            if took >= (left if near else min(SECONDS, left)):
                break
        self.seconds += took
        return True

    @cached_property
    def _chooses(self) -> bool:
        """Whether an operator chooses by what noise moves, and the bounds are not the user's."""
        free = self.drawing.rtol is None and self.drawing.atol is None
        return free and bool(before_choices(self.drawing.fed.model))


def before_choices(model: ir.Model) -> set[ir.Value]:
    """The values that were rounded last before an operator that chooses."""
    nodes = nodes_of(model)
    moved, found = dependent(model) - whole_numbers(nodes), set[ir.Value]()
    left = [value for node in nodes if is_choice(node) for value in operands(node)]
    seen = set[ir.Value]()
    while left:
        if (value := left.pop()) in seen or value not in moved:
            continue
        seen.add(value)
        node = value.producer()
        if node is None or rounds(node):
            found.add(value)
        else:
            left += operands(node)
    return found


def _may_flip(outcome: Outcome) -> bool:
    """Whether some elements of an output differ, but not most."""
    theirs, bounds = flatten(outcome.outputs), outcome.case.bounds
    for name, array in flatten(outcome.case.outputs).items():
        if name in theirs and _alike(array, theirs[name]):
            off = beyond(array, theirs[name], bounds[name])
            if off.any() and (off.mean() <= MOST or off.size <= FEW):
                return True
    return False


def _note(case: Case, outputs: dict[str, Array]) -> None:
    """Add a run with noise to the case if it exceeds a bound by far."""
    mine = flatten(case.outputs)
    if mine.keys() != outputs.keys() or not all(_alike(array, outputs[name]) for name, array in mine.items()):
        return
    if any(beyond(array, outputs[name], case.bounds[name].times(FAR)).any() for name, array in mine.items()):
        case.flipped.append(outputs)


def _alike(one: Array, other: Array) -> bool:
    return (one.shape, one.dtype) == (other.shape, other.dtype)
