"""More cases where outputs of labels have few elements: a classifier gives one for each row, and few equal ones show little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from onnx_subgraph.inputs.draws import Floats
from onnx_subgraph.inputs.feeds import draw_feeds
from onnx_subgraph.verification.bounds import is_float
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.judge import flatten
from onnx_subgraph.verification.sessions import Failure, Session, run

ENOUGH = 300
"""The elements of an output after which it needs no further case. If all are equal, up to one in a hundred may differ unseen."""
MOST = 32
"""The most further cases."""
SEED = 128
"""The seed of the first one, relative to that of the first case."""


def of_labels(model: ir.Model, session: Session, cases: Sequence[Case], floats: Floats, most: int) -> Iterator[Case]:
    """Further cases of the sizes of `cases`, until all outputs that are not of floats have enough elements.

    session: of the original. most: the most cases for which there is time.
    """
    counts = dict[str, int]()
    for case in cases:
        _count(case, counts)
    first, last = cases[0], cases[-1]
    for number in range(min(MOST, most)):
        if all(count >= ENOUGH for count in counts.values()):
            return
        sizes, seed = (first, last)[number % 2].sizes, (first.seed or 0) + SEED + number
        outputs = run(session, feeds := draw_feeds(model, sizes, seed, floats))
        if not isinstance(outputs, Failure):
            case = Case(dict(sizes), seed, feeds, outputs, coarse=True)
            _count(case, counts)
            yield case


def _count(case: Case, counts: dict[str, int]) -> None:
    """Add the elements of the case's outputs that are not of floats. Those that are always empty do not count."""
    for name, array in flatten(case.outputs).items():
        if array.size and not is_float(array):
            counts[name] = counts.get(name, 0) + array.size
