"""Search sizes with which a model runs: try likely ones, then those that onnxruntime's refusals suggest (`refusal`)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import onnx_ir as ir

from onnx_subgraph.inputs.draws import Floats
from onnx_subgraph.inputs.feeds import Feeds, draw_feeds, required_inputs
from onnx_subgraph.inputs.refusal import Refusals
from onnx_subgraph.inputs.sizes import SECOND, SMALLER, Likely, Sizes, assignments, baked, elements_of, moderate, symbols
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.judge import varies
from onnx_subgraph.verification.sessions import Failure, Outputs, Session, run

SECONDS = 60.0
"""The time limit of a search."""
MOST_TRIALS = 120
"""The most sets of sizes that are tried."""
LONGER = (32, 128, 512, 2048, 8192)
"""Lengths that are tried last: short inputs may be shorter than a window of audio, or than what convolutions leave out."""
MOST_NAMED = 4
"""The most inputs whose shapes a message gives."""
MOST_ELEMENTS = 1 << 20
"""The most elements of an input with a long length."""


def trials(model: ir.Model, shapes: Mapping[str, tuple[int, ...]], likely: Likely) -> Iterator[Sizes]:
    """Sizes to try, the likeliest first.

    Then come sizes from the model's constants, for one dimension and for all but the batch, and at last longer ones. shapes:
    input → shape, as chosen by the user. Raises UsageError where one does not fit its input.
    """
    yield from moderate(required_inputs(model), _trials(model, shapes, likely))


def _trials(model: ir.Model, shapes: Mapping[str, tuple[int, ...]], likely: Likely) -> Iterator[Sizes]:
    """As `trials`, whatever the number of elements."""
    inputs = required_inputs(model)
    start = next(assignments(inputs, shapes, likely))
    yield from assignments(inputs, shapes, likely)
    roles, free = symbols(inputs), _free(inputs, shapes)
    lengths = [name for name in free if roles[name] != "batch"] or free
    for size in baked(model):
        yield start | dict.fromkeys(lengths, size)
        for name in free:
            yield start | {name: size}
    yield from (start | dict.fromkeys(lengths, size) for size in LONGER)


def long_trials(model: ir.Model, shapes: Mapping[str, tuple[int, ...]], likely: Likely, length: int) -> Iterator[Sizes]:
    """Sizes where one dimension is this long, and the others are likely sizes."""
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
    floats: Floats = "normal",
) -> Case | Failure:
    """The case of the first sizes that the session runs with, or a Failure with a next step.

    other_than: sizes to leave out. seconds: the time limit of the search. alone: as for `timed`. floats: as for `draw_feeds`.
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
        feeds = draw_feeds(model, sizes, seed, floats)
        outputs, taken = timed(session, feeds, alone=alone)
        if not isinstance(outputs, Failure):
            return Case(sizes, seed, feeds, outputs, seconds=taken)
        said = said or outputs.message
        refusals.learn(outputs.message, sizes)
    next_step = "give its shapes with --shape INPUT=1x128 or its feeds with --inputs FEEDS.npz"
    if refusals.fixed:
        failed = "the original model does not run on the shapes given"
    elif len(tried) == 1 and not symbols(required_inputs(model)):
        failed = f"the original model itself fails in onnxruntime{_only_shapes(model)}"
        next_step = "export it again so that onnxruntime runs it; --inputs FEEDS.npz helps only where the values matter"
    elif len(tried) == 1:
        failed, next_step = "the original model does not run on inputs of its shapes", "give its feeds with --inputs FEEDS.npz"
    else:
        failed = f"no feeds were found that the original model runs on ({len(tried)} sets of sizes were tried)"
    return Failure(f"{failed}; {next_step}. onnxruntime says: {said}")


def _only_shapes(model: ir.Model) -> str:
    """Which shapes the inputs have, where all of them are fixed."""
    shapes = [f"{value.name}: {'x'.join(map(str, value.shape or ())) or 'a scalar'}" for value in required_inputs(model)]
    some = shapes[:MOST_NAMED] + ["…"] * (len(shapes) > MOST_NAMED)
    return f" on the only shapes that its inputs have ({', '.join(some)})" if shapes else ", and has no inputs to choose"


def on_smaller_images(
    first: Case,
    seed: int,
    slow: float,
    found: Callable[..., Case | Failure],
    trials: Callable[[Likely], Iterator[Sizes]],
) -> tuple[Case, Likely]:
    """The first case with smaller images, while its run takes more than `slow` seconds, and the sizes of the second one.

    The sizes of `first` if it is quick, or where the model does not run on small images, or gives the same number everywhere.
    found: the case of the first sizes that run, of those that `trials` gives.
    """
    second = SECOND
    for likely, other_likely in SMALLER:
        if first.seconds <= slow:
            break
        smaller = found(itertools.islice(trials(likely), 1), seed, other_than=first.sizes)
        if isinstance(smaller, Failure) or not varies(smaller.outputs):
            break
        first, second = smaller, other_likely
    return first, second


def timed(session: Session, feeds: Feeds, *, alone: bool) -> tuple[Outputs | Failure, float]:
    """The outputs of a run and its time in seconds.

    alone: whether the run uses only the CPU. Then its processor time counts if it is less than the wall time: on a busy machine
    wall time would reduce the number of cases.
    """
    at, busy = time.monotonic(), time.process_time()
    outputs = run(session, feeds)
    taken = time.monotonic() - at
    return outputs, min(taken, time.process_time() - busy) if alone else taken
