"""More cases where outputs of labels have few elements. A classifier gives one label for each row; few equal ones show little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter

import onnx_ir as ir

from onnx_subgraph.inputs.draws import Floats
from onnx_subgraph.inputs.feeds import draw_feeds, required_inputs
from onnx_subgraph.inputs.sizes import Sizes, symbols
from onnx_subgraph.verification.bounds import is_float
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.judge import flatten
from onnx_subgraph.verification.sessions import Failure, Session, run

ENOUGH = 300
"""The elements of an output after which it needs no further case. If all are equal, up to one in a hundred may differ unseen."""
MOST = 32
"""The most further cases."""
ROWS = 16
"""The batch of a further case, where the user chose none."""
SEED = 128
"""The seed of the first one, relative to that of the first case."""


def of_labels(
    model: ir.Model, session: Session, cases: Sequence[Case], fixed: Sizes, floats: Floats, seconds: float
) -> Iterator[Case]:
    """Further cases, like `cases` but for the batch, until all outputs that are not of floats have enough elements.

    session: of the original. fixed: the sizes that the user chose. seconds: how long the runs of all may take.
    """
    counts = dict[str, int]()
    for case in cases:
        _count(case, counts)
    rows = {name: ROWS for name, role in symbols(required_inputs(model)).items() if role == "batch"} | dict(fixed)
    first, last, begin = cases[0], cases[-1], perf_counter()
    for number in range(MOST):
        if all(count >= ENOUGH for count in counts.values()) or perf_counter() - begin > seconds:
            return
        like, seed = (first, last)[number % 2].sizes, (first.seed or 0) + SEED + number
        sizes = like | rows
        outputs = run(session, feeds := draw_feeds(model, sizes, seed, floats))
        if isinstance(outputs, Failure):
            rows = {}  # some graphs run with one row only
        else:
            case = Case(dict(sizes), seed, feeds, outputs, coarse=True)
            _count(case, counts)
            yield case


def _count(case: Case, counts: dict[str, int]) -> None:
    """Add the elements of the case's outputs that are not of floats. Those that are always empty do not count."""
    for name, array in flatten(case.outputs).items():
        if array.size and not is_float(array):
            counts[name] = counts.get(name, 0) + array.size
