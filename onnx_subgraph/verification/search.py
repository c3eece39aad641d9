"""Sizes that a model runs with: likely ones are tried, and what onnxruntime refuses says which to try next (`refusal`)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping

import onnx_ir as ir

from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.feeds import draw_feeds, elements_of, required_inputs
from onnx_subgraph.verification.refusal import Refusals
from onnx_subgraph.verification.sessions import Failure, Session, run
from onnx_subgraph.verification.sizes import Likely, Sizes, assignments, baked, symbols

SECONDS = 60.0
"""How long sizes are tried before the search is given up."""
MOST_TRIALS = 120
"""How many sets of sizes are tried."""
MOST_ELEMENTS = 1 << 20
"""Of an input whose length is chosen to be long."""


def trials(model: ir.Model, shapes: Mapping[str, tuple[int, ...]], likely: Likely) -> Iterator[Sizes]:
    """Sizes to try, the likeliest first; then those that the model's own constants name, for one dimension and for all but
    the batch. shapes: input → shape, as the user has chosen it. Raises UsageError where one does not fit its input.
    """
    inputs = required_inputs(model)
    start = next(assignments(inputs, shapes, likely))
    yield from assignments(inputs, shapes, likely)
    roles, free = symbols(inputs), _free(inputs, shapes)
    for size in baked(model):
        yield {name: (size if name in free and roles[name] != "batch" else start[name]) for name in start}
        for name in free:
            yield start | {name: size}


def long_trials(model: ir.Model, shapes: Mapping[str, tuple[int, ...]], likely: Likely, length: int) -> Iterator[Sizes]:
    """Sizes of which one is so long, and the others are likely."""
    inputs = required_inputs(model)
    roles, start = symbols(inputs), next(assignments(inputs, shapes, likely))
    for name in (name for name in _free(inputs, shapes) if roles[name] != "batch"):
        if all(elements_of(value, start | {name: length}) <= MOST_ELEMENTS for value in inputs):
            yield start | {name: length}


def _free(inputs: list[ir.Value], shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    fixed = {name for value in inputs if value.name in shapes for name in symbols([value])}
    return [name for name in symbols(inputs) if name not in fixed]


def first_that_runs(
    model: ir.Model,
    session: Session,
    trials: Iterable[Sizes],
    refusals: Refusals,
    seed: int,
    *,
    other_than: Sizes | None = None,
    seconds: float = SECONDS,
    alone: bool = False,
) -> tuple[Case | Failure, float]:
    """The case of the first sizes that the session runs with, and the seconds of that run; a Failure that says what to do.

    other_than: sizes that are not wanted again. seconds: of the search. alone: whether the run has the processor for itself, so
    that processor time counts where it is less.
    """
    said = ""
    tried: list[Sizes] = []
    begun = time.monotonic()
    for sizes in itertools.islice(trials, MOST_TRIALS):
        if sizes in tried or sizes == other_than:
            continue
        if time.monotonic() - begun > seconds:
            break
        tried.append(sizes)
        feeds = draw_feeds(model, sizes, seed)
        at, busy = time.monotonic(), time.process_time()
        outputs = run(session, feeds)
        taken = time.monotonic() - at
        if alone:  # a processor shared with others is no reason to look less closely
            taken = min(taken, time.process_time() - busy)
        if not isinstance(outputs, Failure):
            return Case(sizes, seed, feeds, outputs), taken
        said = said or outputs.message
        refusals.learn(outputs.message, sizes)
    if refusals.fixed:
        failed = "the original model does not run on the shapes given"
    else:
        failed = f"no feeds were found that the original model runs on ({len(tried)} sets of sizes were tried)"
    next_step = "give its shapes with --shape INPUT=1x128 or its feeds with --inputs FEEDS.npz"
    return Failure(f"{failed}; {next_step}. onnxruntime says: {said}"), 0.0
