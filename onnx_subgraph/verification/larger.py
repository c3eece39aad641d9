"""Cases of larger and of less usual inputs than those that a model is meant for, to find what only they show.

A Relu and a Clip at 6 differ for large numbers, a mask and its square for numbers other than 0 and 1, and a rotation and a swap
for more than two rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from onnx_subgraph.inputs.draws import Floats
from onnx_subgraph.inputs.feeds import draw_feeds, required_inputs
from onnx_subgraph.inputs.sizes import USUAL, Sizes, all_elements, symbols
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.judge import nonfinite
from onnx_subgraph.verification.search import trials
from onnx_subgraph.verification.sessions import Failure, Session, run

LONG, WIDE, FREE = 32, 64, 96
"""The seeds of a case of usual sizes, of one of many magnitudes and of a free one, relative to that of the first case."""
QUICK = 0.01
"""A model whose run takes less than these seconds is also run at usual sizes, where a band or a window shows."""
MOST_USUAL = 1 << 20
"""The most elements of all inputs of usual sizes; more take long in float64."""
SEVERAL = 3
"""The batch of a free case."""


def larger(model: ir.Model, session: Session, first: Case, fixed: Sizes, *, free: bool) -> Iterator[Case]:
    """A case of many magnitudes, and a free one (`Floats`), where these overflow nothing that the first case does not.

    session: of the original. fixed: the sizes that the user chose. free: whether there is time for a free one.
    """
    yield from _first(model, session, first, WIDE, (first.sizes,), ("wide", "less wide"))
    if free:
        several = {name: SEVERAL for name, role in symbols(required_inputs(model)).items() if role == "batch"}
        yield from _first(model, session, first, FREE, (first.sizes | several | fixed, first.sizes), ("free",))


def at_usual_sizes(
    model: ir.Model, first: Case, shapes: Mapping[str, tuple[int, ...]], found: Callable[..., Case | Failure]
) -> list[Case]:
    """A case of sizes typical of applications, for a quick model.

    first: the first case. shapes: those that the user chose. found: the case of the first sizes that run (`first_that_runs`).
    """
    if first.seconds >= QUICK:
        return []
    inputs = required_inputs(model)
    small = (sizes for sizes in trials(model, shapes, USUAL) if all_elements(inputs, sizes) <= MOST_USUAL)
    usual = found(small, (first.seed or 0) + LONG, other_than=first.sizes)
    return [] if isinstance(usual, Failure) else [replace(usual, coarse=True)]


def _first(
    model: ir.Model, session: Session, like: Case, seed: int, sizes: Sequence[Sizes], floats: Sequence[Floats]
) -> Iterator[Case]:
    """The first of these cases that overflows nothing."""
    at = (like.seed or 0) + seed
    for given, kind in itertools.product(sizes, floats):
        feeds = draw_feeds(model, given, at, kind)
        outputs = run(session, feeds)
        if not isinstance(outputs, Failure) and nonfinite(outputs) <= nonfinite(like.outputs):
            yield Case(dict(given), at, feeds, outputs, wide=True, coarse=kind == "free")
            return
