"""Remove the random operators from a model: their results of one run of the original become inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.randomness import (
    Source,
    differing,
    drawn_otherwise,
    fed_name,
    listed,
    sources,
    suspicious,
    with_results_fed,
    with_results_yielded,
)
from onnx_subgraph.verification.sessions import Failure, Session, run

Opens = Callable[[ir.Model], Session | Failure]
"""Opens a session of a model, with optimisation off."""


@dataclass(frozen=True, slots=True)
class Fed:
    """model: without the random operators, which are `sources`. results: the values fed instead, and their dtypes.

    random: outputs that still differ from run to run.
    """

    model: ir.Model
    sources: tuple[Source, ...] = ()
    results: Mapping[str, ir.DataType] = field(default_factory=dict)
    random: frozenset[str] = frozenset()

    def to(self, candidate: ir.Model) -> ir.Model:
        """The candidate with the same results fed; itself where there are none."""
        return with_results_fed(candidate, self.results, self.sources) if self.results else candidate

    def drawn_otherwise(self, candidate: ir.Model) -> tuple[Source, ...]:
        """The random nodes in whose place the candidate computes something else, which is compared with their results."""
        return drawn_otherwise(candidate, self.results, self.sources) if self.results else ()


def fed(model: ir.Model, session: Session, cases: Sequence[Case], opens: Opens) -> Fed | Failure:
    """Find the random operators of the original, and feed their results. Sets the cases' `drawn` and `outputs`.

    session: of the original. cases: with the original's outputs. Returns a Failure where it does not run with the results fed.
    """
    found, different = _found(model, session, cases[0], opens)
    names = [name for source in found for name in source.results]
    if not names:
        return Fed(model, found, random=frozenset(different))
    drawing = opens(with_results_yielded(model, names))
    draws = [drawing if isinstance(drawing, Failure) else run(drawing, case.feeds) for case in cases]
    if failed := next((draw for draw in draws if isinstance(draw, Failure)), None):
        return _refused(found, failed)
    drawn = [draw for draw in draws if not isinstance(draw, Failure)]
    dtypes = {name: ir.DataType.from_numpy(np.asarray(value).dtype) for name, value in drawn[0].items()}
    without = with_results_fed(model, dtypes)
    feeding = opens(without)
    for case, draw in zip(cases, drawn, strict=True):
        case.drawn = {fed_name(name): value for name, value in draw.items()}
        outputs = feeding if isinstance(feeding, Failure) else run(feeding, case.fed_to(feeding))
        if isinstance(outputs, Failure):
            return _refused(found, outputs)
        case.outputs = outputs
    assert not isinstance(feeding, Failure)
    return Fed(without, found, dtypes, frozenset(_differing(feeding, cases[0])))


def _refused(found: Sequence[Source], failure: Failure) -> Failure:
    return Failure(f"it has random operators ({listed(found)}) and does not run with their results fed: {failure.message}")


def _found(model: ir.Model, session: Session, case: Case, opens: Opens) -> tuple[tuple[Source, ...], Collection[str]]:
    """The random operators, known ones or found by running twice, and the outputs that differed in these runs.

    A model whose operators are all known to be deterministic is not run again.
    """
    if known := sources(model):
        return known, ()
    suspects = suspicious(model)
    different = _differing(session, case) if suspects else []
    suspects = suspects if different else []
    doubted = opens(with_results_yielded(model, suspects)) if suspects else None
    if doubted is None or isinstance(doubted, Failure):
        return (), different
    once = run(doubted, case.feeds)
    again = run(doubted, case.feeds)
    if isinstance(once, Failure) or isinstance(again, Failure):
        return (), different
    return sources(model, differing(once, again)), different


def _differing(session: Session, case: Case) -> list[str]:
    """The outputs that differ in another run on the same feeds."""
    again = run(session, case.fed_to(session))
    return [] if isinstance(again, Failure) else differing(case.outputs, again)
