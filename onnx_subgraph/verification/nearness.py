"""Decide whether outputs that differ from onnxruntime's are as near to the float64 result as onnxruntime's are.

Another runtime sums in another order in every kernel, not only in fused ones. So it may differ from onnxruntime by more than the
noise, and still be as accurate. The truth is the original, evaluated in float64. No element's error may exceed `SLACK` times
onnxruntime's largest error. The root mean square of all errors may not exceed `AGGREGATE` times onnxruntime's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.inliner import inline_local_functions

from onnx_subgraph.evaluator.truth import UnknownError, evaluate
from onnx_subgraph.files.texts import make_readable
from onnx_subgraph.verification.accuracy import SLACK
from onnx_subgraph.verification.blocks import Array
from onnx_subgraph.verification.bounds import AGGREGATE, Bound, Noise, bound, is_float
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.judge import Finding, compare, flatten
from onnx_subgraph.verification.randomness import with_results_fed
from onnx_subgraph.verification.sessions import Failure, Outputs, Session, run

MOST_WEIGHTS = 1 << 30
"""The most bytes of weights of a model that is evaluated in float64; the evaluation takes about six times as many."""

FAR = 16.0
"""A candidate may differ from the original by this factor more than the original differs from the truth."""

Evaluate = Callable[[Mapping[str, Any]], Outputs]
"""The float64 results for these feeds. Raises UnknownError where they can't be computed."""


def exactly(path: Path, model: ir.Model, drawn: Mapping[str, ir.DataType] | None = None) -> Evaluate:
    """The float64 evaluation of the model in the file `path`. model: the model read from it.

    drawn: the results of random operators that are among the feeds (`with_results_fed`).
    """
    proto: list[onnx.ModelProto] = []

    def truth(feeds: Mapping[str, Any]) -> Outputs:
        if not proto:
            alone = _standing_alone(path, model)
            proto.append(ir.to_proto(with_results_fed(ir.from_proto(alone), drawn)) if drawn else alone)
        return evaluate(proto[0], feeds)

    return truth


def _standing_alone(path: Path, model: ir.Model) -> onnx.ModelProto:
    """The model with its weights embedded and its functions inlined. Raises UnknownError where it is too large."""
    weights = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)
    if weights > MOST_WEIGHTS:
        raise UnknownError(f"it has more than {MOST_WEIGHTS >> 20} MiB of weights")
    try:
        proto = onnx.load(path)
        make_readable(proto)
        return inline_local_functions(proto)
    except Exception as error:  # errors of onnx's inliner
        raise UnknownError(str(error)) from error


def nearness(
    case: Case, names: Collection[str], optimised: Session | Failure, truth: Evaluate, outputs: Outputs
) -> dict[str, Finding]:
    """The outputs among `names` that are near enough to the truth: name → the largest error and its bound.

    optimised: a session of the original with optimisation on. Raises UnknownError where the truth can't be computed, or
    onnxruntime's own outputs are further from it than the model's noise explains; then the evaluation can't be trusted.
    """
    exact = flatten(truth(case.given))
    mine, theirs = flatten(case.outputs), flatten(outputs)
    other = optimised if isinstance(optimised, Failure) else run(optimised, case.fed_to(optimised))
    again = {} if isinstance(other, Failure) else flatten(other)
    found = {}
    for name in names:
        reference = mine.get(name)
        if reference is None or not is_float(reference) or name not in exact or name not in theirs:
            continue
        with np.errstate(over="ignore"):
            rounded = exact[name].astype(reference.dtype)
        if not (own := compare(reference, rounded, case.bounds[name])).equal:
            raise UnknownError(own.problem or f"onnxruntime's own {name} is {own.error:.3g} from it, {own.bound:.3g} is allowed")
        allowed = around(rounded, (reference, again.get(name, reference)), case.parts.get(name, ()))
        finding = compare(rounded, theirs[name], allowed)
        if finding.equal:
            found[name] = finding
    return found


def inaccurate(case: Case, errors: Mapping[str, float], truth: Evaluate) -> set[str]:
    """The outputs that differ about as much as the original is wrong, further from the truth than its bound. {} if unknown.

    errors: output → how far the candidate is from the original.
    """
    try:
        exact = flatten(truth(case.given))
    except UnknownError:
        return set()
    mine = flatten(case.outputs)
    floats = [name for name in errors if name in exact and is_float(mine[name])]
    with np.errstate(over="ignore"):
        rounded = {name: exact[name].astype(mine[name].dtype) for name in floats}
    own = {name: compare(rounded[name], mine[name], case.bounds[name]) for name in floats}
    return {name for name, one in own.items() if not one.equal and errors[name] <= FAR * one.error}


def around(truth: Array, own: Sequence[Array], parts: Iterable[Array] = ()) -> Bound:
    """The allowed error of an output. truth: rounded to the output's dtype. own: onnxruntime's outputs. parts: masks."""
    noise = Noise()
    for one in own:
        noise.add(truth, one)
    floor = bound(truth)
    largest = 0.0 if noise.largest is None else float(noise.largest.max(initial=0.0))
    apart = tuple((mask, around(truth[mask], [one[mask] for one in own if one.shape == truth.shape])) for mask in parts)
    return Bound(floor.element + SLACK * largest, floor.aggregate + AGGREGATE * noise.loudest, parts=apart)
