"""A model without its random operators: what they gave in one run of the original is fed from then on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.randomness import (
    Source,
    differing,
    fed_name,
    feedable,
    listed,
    sources,
    suspicious,
    with_results_fed,
    with_results_yielded,
)
from onnx_subgraph.verification.sessions import Failure, Session, run

Opens = Callable[[ir.Model], Session | Failure]
"""Makes a session of a model, optimisation off."""


@dataclass(frozen=True, slots=True)
class Fed:
    """model: without the random operators, which are `sources`. random: outputs that differ from run to run nevertheless."""

    model: ir.Model
    sources: tuple[Source, ...] = ()
    random: frozenset[str] = frozenset()

    @property
    def results(self) -> tuple[str, ...]:
        """The values that are fed."""
        return tuple(feedable(self.sources))


def fed(model: ir.Model, session: Session, cases: Sequence[Case], opens: Opens) -> Fed | Failure:
    """Finds the random operators of the original, and feeds what they give: the cases get it, and outputs that follow from it.

    session: of the original. cases: with the original's outputs. Returns a Failure where it does not run with them fed.
    """
    found, different = _found(model, session, cases[0], opens)
    if not found:
        return Fed(model, random=frozenset(different))
    results = feedable(found)
    without = with_results_fed(model, results)
    drawing, session_without = opens(with_results_yielded(model, results)), opens(without)
    for case in cases:
        if (failed := _feed(case, drawing, session_without)) is not None:
            return Failure(f"it has random operators ({listed(found)}) and does not run with their results fed: {failed.message}")
    assert not isinstance(session_without, Failure)
    return Fed(without, found, frozenset(_differing(session_without, cases[0])))


def _found(model: ir.Model, session: Session, case: Case, opens: Opens) -> tuple[tuple[Source, ...], Collection[str]]:
    """The random operators, known or found by running twice, and the outputs that showed the latter."""
    if known := sources(model):
        return known, ()
    different = _differing(session, case)
    suspects = suspicious(model) if different else []
    doubted = opens(with_results_yielded(model, suspects)) if suspects else None
    if doubted is None or isinstance(doubted, Failure):
        return (), different
    once = run(doubted, case.feeds)
    again = run(doubted, case.feeds)
    if isinstance(once, Failure) or isinstance(again, Failure):
        return (), different
    return sources(model, differing(once, again)), different


def _feed(case: Case, drawing: Session | Failure, without: Session | Failure) -> Failure | None:
    """Draws what the random operators give in a case, and runs the model without them on it."""
    if isinstance(drawing, Failure) or isinstance(without, Failure):
        return drawing if isinstance(drawing, Failure) else without  # type: ignore[return-value]
    drawn = run(drawing, case.feeds)
    if isinstance(drawn, Failure):
        return drawn
    case.drawn = {fed_name(name): value for name, value in drawn.items()}
    outputs = run(without, case.fed_to(without))
    if isinstance(outputs, Failure):
        return outputs
    case.outputs = outputs
    return None


def _differing(session: Session, case: Case) -> list[str]:
    """The outputs that another run on the same feeds gives otherwise."""
    again = run(session, case.fed_to(session))
    return [] if isinstance(again, Failure) else differing(case.outputs, again)
