"""Cases of larger and of less usual inputs than those that a model is meant for, to find what only they show.

A Relu and a Clip at 6 differ for large numbers, a mask and its square for numbers other than 0 and 1, and a rotation and a swap
for more than two rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.draws import Floats
from onnx_subgraph.verification.feeds import draw_feeds, required_inputs
from onnx_subgraph.verification.judge import nonfinite
from onnx_subgraph.verification.sessions import Failure, Session, run
from onnx_subgraph.verification.sizes import Sizes, symbols

WIDE, FREE = 64, 96
"""The seeds of a case of many magnitudes and of a free one, relative to that of the first case."""
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
