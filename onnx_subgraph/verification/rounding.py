"""Measure the error of a session's outputs against a float64 evaluation of the original."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from onnx_subgraph.evaluator.truth import UnknownError
from onnx_subgraph.verification.blocks import Array
from onnx_subgraph.verification.bounds import is_float
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.judge import flatten
from onnx_subgraph.verification.reference import Reference
from onnx_subgraph.verification.sessions import Failure, Session, run
from onnx_subgraph.verification.verdict import Rounding, Run, Verdict

COARSEST = 2.0**16
"""The ratio of a rounding of bfloat16 (8 significant bits) to one of float32 (24)."""


class Truth:
    """The original's outputs in float64 for its first provider's cases. Evaluated once."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference

    @cached_property
    def _cases(self) -> tuple[tuple[Case, dict[str, Array]], ...]:
        cases = self._reference.cases(self._reference.providers[0])
        return () if isinstance(cases, Failure) else tuple((c, flatten(self._reference.truth(c.given))) for c in cases)

    def roundings(self, session: Session | Failure) -> tuple[Rounding, ...]:
        """For each float output the largest error over the cases. Raises UnknownError where there is no float64 evaluation."""
        worst: dict[str, Rounding] = {}
        for one in self._all(session):
            before = worst.get(one.output, one)
            worst[one.output] = Rounding(one.output, max(one.kernels, before.kernels), max(one.onnxruntime, before.onnxruntime))
        return tuple(worst.values())

    def _all(self, session: Session | Failure) -> Iterator[Rounding]:
        for case, truth in self._cases:
            outputs = session if isinstance(session, Failure) else run(session, case.fed_to(session))
            if isinstance(outputs, Failure):
                continue
            mine, own = flatten(outputs), flatten(case.outputs)
            for name, exact in truth.items():
                if name in mine and name in own and is_float(own[name]):
                    yield Rounding(name, distance(mine[name], exact), distance(own[name], exact))


def distance(array: Array, exact: Array) -> float:
    """The largest difference, relative to the largest element of the truth; absolute where the truth is 0 everywhere.

    Infinite where the shapes differ, and where one is NaN or infinite and the other is not the same. A truth beyond the range of
    the array's dtype counts as infinite.
    """
    if array.shape != exact.shape:
        return math.inf
    with np.errstate(over="ignore", invalid="ignore"):
        wide, stored = array.astype(np.float64), exact.astype(array.dtype).astype(np.float64)
    numbers = np.isfinite(wide) & np.isfinite(stored)
    if not np.array_equal(wide[~numbers], stored[~numbers], equal_nan=True):
        return math.inf
    size = float(np.abs(exact[numbers]).max(initial=0.0))
    return float(np.abs(wide[numbers] - exact[numbers]).max(initial=0.0)) / (size or 1.0)


def with_roundings(verdict: Verdict, truth: Truth, session: Session | Failure) -> Verdict:
    """The verdict with the errors of the session's outputs against float64, or with the reason why these are unknown."""
    if verdict.verdict != "equivalent":
        return verdict
    try:
        return replace(verdict, roundings=truth.roundings(session))
    except UnknownError as why:
        said = f"how far the outputs are from float64 is unknown: {why}"
        return replace(verdict, reason="; ".join(filter(None, (verdict.reason, said))))


def held_to(verdict: Verdict, accuracy: float | None) -> Verdict:
    """The verdict; "different" where an output's error against float64 exceeds the accuracy, "not-run" where it is unknown.

    accuracy: None for any.
    """
    if accuracy is None or verdict.verdict != "equivalent" or not verdict.also:
        return verdict
    if not verdict.roundings:
        return replace(verdict, verdict="not-run", reason=f"{verdict.reason}, and --accuracy needs it")
    far = max(verdict.roundings, key=lambda one: one.kernels)
    if far.kernels <= accuracy:
        return verdict
    problem = f"is {far.kernels:.1e} of its largest element from float64, --accuracy allows {accuracy:.1e}"
    run = Run("", True, {}, None, far.output, far.kernels, accuracy, (), problem)
    return replace(verdict, verdict="different", runs=(*verdict.runs, run))
