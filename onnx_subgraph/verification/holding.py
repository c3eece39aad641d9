"""Check one rewrite separately: run the replaced nodes and the replacement on the same values, and compare both with float64.

The truth is the replaced nodes, evaluated in float64. If an operator of them has no definition here, the provider's unfused
result takes its place, and the bound is how far noise moves that result (`judge`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from onnx_subgraph.evaluator.truth import UnknownError
from onnx_subgraph.rewriting.cutting import Cutting
from onnx_subgraph.verification.accuracy import EPSILON, LEAST, Accuracy, accuracy, largest
from onnx_subgraph.verification.bounds import bound
from onnx_subgraph.verification.judge import compare
from onnx_subgraph.verification.sessions import Failure, Outputs
from onnx_subgraph.verification.side import Side, Values, has_infinity
from onnx_subgraph.verification.systematic import (
    NARROW,
    chance,
    constants_gain,
    gain,
    has_rounded_constants,
    kernel_gain,
    parts,
)

Array = np.ndarray

FOLDED = 2.0
"""Allowed error for folded weights of a narrow dtype, which are rounded once more; in ulps of the largest value."""
SMALLEST = 2.0**-10
"""The gain of smaller results of a narrow dtype is not checked: their roundings are larger than a unit in the last place."""
DEFINED = frozenset(("finite", "nonzero", "visible"))
"""What a pattern may assume of its operands so that none of its results is NaN."""
MOST_NAMED = 4
"""The most values that are named where a replacement does not run on them."""


@dataclass(frozen=True, slots=True)
class Held:
    """The worst result of a rewrite. result: its name before the rewrite. against: what it was compared with.

    accuracy: None where unknown; `unknown` gives the reason. runs: whether the replacement runs where the replaced nodes run.
    """

    result: str = ""
    accuracy: Accuracy | None = None
    against: Literal["float64", "unfused"] = "float64"
    unknown: str = ""
    runs: bool = True

    @property
    def gravity(self) -> tuple[int, float]:
        """A sort key, larger is worse (`Accuracy.gravity`); unknown is the smallest."""
        return (0, 0.0) if self.accuracy is None else self.accuracy.gravity

    @property
    def shows(self) -> bool:
        """Whether an error would have been seen: the accuracy is known, and some elements are finite and not zero."""
        return self.accuracy is not None and self.accuracy.compared > 0


class Holding:
    """A rewrite on one provider, to be checked on any number of values. Sessions are opened when they are needed."""

    def __init__(self, cutting: Cutting, provider: str, *, fix_overflows: bool = False) -> None:
        """fix_overflows: a result that is NaN may become a number."""
        self._results = cutting.results
        self._before, self._after = Side(cutting.before, provider), Side(cutting.after, provider)
        self._names = dict(cutting.results)
        self._rounded_before = _rounded_before(cutting)
        self._undefined_stays = not fix_overflows and cutting.rewrite.assumes.isdisjoint(DEFINED)

    def on(self, values: Values) -> Held:
        """Its worst result. values: of everything that it reads."""
        try:
            unfused, fused = self._before.run(values), self._after.run(values)
        except (ValueError, TypeError, NotImplementedError) as why:  # a value that is not a tensor, or a model over 2 GiB
            return Held(unknown=f"it can't be taken out of the model: {why}")
        if isinstance(fused, Failure):
            if isinstance(unfused, Failure):
                return Held(unknown=f"onnxruntime does not run it by itself: {unfused.message}")
            read = ", ".join(f"{name} of shape {list(np.shape(value))}" for name, value in list(values.items())[:MOST_NAMED])
            said = f"does not run on {read}: {fused.message}" if read else f"does not run: {fused.message}"
            return Held(accuracy=Accuracy(float("inf"), 0.0, 0.0, said), runs=False)
        try:
            found = self._against_truth(self._before.exactly(values), unfused, fused, values)
        except UnknownError as why:
            if isinstance(unfused, Failure):
                return Held(unknown=f"it can't be evaluated in float64: {why}")
            found = self._against_unfused(unfused, fused, values)
        return max(found, key=lambda held: held.gravity)

    def _against_truth(self, truth: Values, unfused: Outputs | Failure, fused: Outputs, values: Values) -> list[Held]:
        how = {
            "stored": self._after.stores_floats and not self._before.stores_floats,
            "undefined": self._undefined_stays and not self._before.overflows,
            "reads_infinity": any(map(has_infinity, truth.values())) and self._before.reads_infinity(values),
        }
        held = []
        for was, now in self._results:
            own = None if isinstance(unfused, Failure) else np.asarray(unfused[was])
            held.append(Held(was, accuracy(np.asarray(fused[now]), own, np.asarray(truth[was]), **how)))
        if any(np.asarray(fused[now]).dtype.name in NARROW.values() for _, now in self._results):
            wide = self._after.wider(values)
            for index, (was, now) in enumerate(self._results):
                own = None if isinstance(unfused, Failure) else np.asarray(unfused[was])
                if (mine := np.asarray(fused[now])).dtype.name in NARROW.values():
                    held[index] = self._by_formula(held[index], own, mine, wide, truth, values)
        if all(one.accuracy is None or one.accuracy.holds for one in held):
            return held
        allowed = self._before.moved_by_constants(values, truth)
        return [_with_allowance(one, allowed.get(one.result, 0.0)) for one in held]

    def _by_formula(self, held: Held, was: Array | None, fused: Array, wide: Values, truth: Values, values: Values) -> Held:
        """Check a result of a narrow dtype further: evaluate the fused formula in a wider dtype and compare it with the truth.

        was, fused: the provider's unfused and fused results. wide: the results of the wider formula.
        """
        found, exact, dtype = held.accuracy, np.asarray(truth[held.result]), fused.dtype.name
        mine = np.asarray(wide.get(self._names[held.result], np.nan))
        if found is None or not found.holds or mine.shape != exact.shape or exact.dtype.kind != "f":
            return held
        for part in parts(exact, mine):
            rounding = max(self._after.rounding, EPSILON[dtype] * self._roundings(values))
            size = float(np.abs(exact[part]).max(initial=LEAST))
            off = float(np.abs(mine - exact)[part].max(initial=0.0))
            if off > rounding * size:
                return replace(held, accuracy=replace(found, fused=off, bound=rounding * size))
        return self._by_gain(held, found, was, fused, mine, exact, values)

    def _by_gain(
        self, held: Held, found: Accuracy, was: Array | None, fused: Array, mine: Array, exact: Array, values: Values
    ) -> Held:
        """Check a result of a narrow dtype for a common factor in all elements, caused by the formula or by the kernel.

        mine: the formula's result in a wider dtype.
        """
        dtype, name = fused.dtype.name, self._names[held.result]
        for part in parts(np.where(np.abs(exact) < largest(fused.dtype) / 2, exact, np.nan), mine, fused.astype(np.float64)):
            size, allowed = float(np.sqrt(np.mean(exact[part] ** 2))), self._after.rounding
            allowed += max(
                (EPSILON[dtype] / 2 * chance(np.asarray(values[name]).size) for name in self._rounded_before), default=0.0
            )
            off = abs(gain(mine, exact, part))
            if off > allowed:
                protos = self._before.made(values), self._after.made(values)
                evaluate = partial(self._after.result, values, name)
                allowed += constants_gain(*protos, evaluate, exact, part)
            if off <= allowed and size >= SMALLEST and was is not None and np.isfinite(was.astype(np.float64)[part]).all():
                allowed += kernel_gain(was.astype(np.float64), exact, part, dtype)
                off = abs(gain(fused.astype(np.float64), exact, part))
            if off > allowed:
                return replace(held, accuracy=replace(found, fused=off * size, bound=allowed * size))
        return held

    def _roundings(self, values: Values) -> float:
        """The allowed error of the fused formula for roundings of what it reads, in ulps of the largest value."""
        if has_rounded_constants(self._before.made(values), self._after.made(values)):
            return FOLDED
        return 0.5 if self._rounded_before else 0.0

    def _against_unfused(self, unfused: Outputs, fused: Outputs, values: Values) -> list[Held]:
        noise = self._before.noise(values, unfused)
        held = []
        for was, now in self._results:
            own = np.asarray(unfused[was])
            found = compare(own, np.asarray(fused[now]), bound(own, noise[was]))
            shown = own.size if own.dtype.kind in "OSU" else int((np.isfinite(own) & (own != 0)).sum())
            held.append(Held(was, Accuracy(found.error, 0.0, found.bound, found.problem, shown), "unfused"))
        return held


def _with_allowance(held: Held, allowance: float) -> Held:
    found = held.accuracy
    return held if found is None or found.holds else replace(held, accuracy=replace(found, bound=found.bound + allowance))


def _rounded_before(cutting: Cutting) -> list[str]:
    """The floating inputs of the unfused side that the fused side does not read: they were rounded on the way."""
    read = {value.name for value in cutting.after.graph.inputs}
    others = (value for value in cutting.before.graph.inputs if value.name not in read)
    return [str(value.name) for value in others if value.dtype is None or value.dtype.is_floating_point()]
