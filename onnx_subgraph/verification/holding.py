"""Check one rewrite separately: run the replaced nodes and the replacement on the same values, and compare both with float64.

The truth is the replaced nodes, evaluated in float64. If an operator of them has no definition here, the provider's unfused
result takes its place, and the bound is how far noise moves that result (`judge`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnx_subgraph.evaluator.truth import FLOATS, Exact, UnknownError, widened
from onnx_subgraph.matching.view import ROUNDED, TOLERANCE
from onnx_subgraph.rewriting.cutting import Cutting
from onnx_subgraph.verification.accuracy import EPSILON, LEAST, Accuracy, accuracy, has_float_attribute, largest
from onnx_subgraph.verification.bounds import Noise, bound
from onnx_subgraph.verification.judge import compare
from onnx_subgraph.verification.noise import noisy
from onnx_subgraph.verification.sessions import Failure, Outputs, Session, open_session, run
from onnx_subgraph.verification.systematic import (
    NARROW,
    chance,
    constants_gain,
    gain,
    has_rounded_constants,
    is_short,
    kernel_gain,
    parts,
)

Array = np.ndarray
Values = Mapping[str, Any]

DRAWS = 2
"""Runs with added noise, where there is no float64 result."""
FORMULA = 2.0**-18
"""The allowed difference of the fused and the unfused formula, both evaluated in float64, relative to the largest value."""
FORMULA_IN_FLOAT32 = 2.0**-14
"""The same where the provider evaluates the fused formula in float32."""
FOLDED = 2.0
"""Allowed error for folded weights of a narrow dtype, which are rounded once more; in ulps of the largest value."""
SMALLEST = 2.0**-10
"""The gain of smaller results of a narrow dtype is not checked: their roundings are larger than a unit in the last place."""
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

    def __init__(self, cutting: Cutting, provider: str) -> None:
        self._results = cutting.results
        self._before, self._after = Side(cutting.before, provider), Side(cutting.after, provider)
        self._names = dict(cutting.results)
        self._rounded_before = _rounded_before(cutting)

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
        stored = self._after.stores_floats and not self._before.stores_floats
        held = []
        for was, now in self._results:
            own = None if isinstance(unfused, Failure) else np.asarray(unfused[was])
            held.append(Held(was, accuracy(np.asarray(fused[now]), own, np.asarray(truth[was]), stored=stored)))
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


class Side:
    """The replaced nodes, or their replacement, as a small model to run and to evaluate. Built for the first values it gets."""

    def __init__(self, model: ir.Model, provider: str) -> None:
        self._model, self._provider = model, provider
        self._proto: onnx.ModelProto | None = None
        self._session: Session | Failure | None = None
        self._exact: Exact | None = None
        self.rounding = FORMULA

    def run(self, values: Values) -> Outputs | Failure:
        """The provider's results. Raises what `_standing_alone` raises."""
        proto = self.made(values)
        self._session = self._session or open_session(proto.SerializeToString(), self._provider, optimised=False)
        return self._session if isinstance(self._session, Failure) else run(self._session, _read_by(proto, values))

    def exactly(self, values: Values) -> Values:
        """The results in float64. Raises UnknownError."""
        proto = self.made(values)
        self._exact = self._exact or Exact(proto)
        return self._exact(_read_by(proto, values))

    def wider(self, values: Values) -> Values:
        """The results in float64, or else the provider's in float32; `rounding` is then the larger tolerance.

        Empty where neither can be computed.
        """
        return self.widely(values, self.made(values))

    def widely(self, values: Values, proto: onnx.ModelProto) -> Values:
        """The same for another model with the same inputs."""
        read = _read_by(proto, values)
        try:
            return Exact(proto)(read)
        except UnknownError:
            self.rounding = FORMULA_IN_FLOAT32
        session = open_session(widened(proto, onnx.TensorProto.FLOAT).SerializeToString(), self._provider, optimised=False)
        narrow = {name: a.astype(np.float32) if a.dtype.name in NARROW.values() else a for name, a in read.items()}
        outputs = session if isinstance(session, Failure) else run(session, narrow)
        return {} if isinstance(outputs, Failure) else {n: np.asarray(a, np.float64) for n, a in outputs.items()}

    def result(self, values: Values, name: str, proto: onnx.ModelProto) -> Array | None:
        """One of these results; None where it can't be computed."""
        return self.widely(values, proto).get(name)

    def moved_by_constants(self, values: Values, truth: Values) -> dict[str, float]:
        """How far each result moves if its scalar constants change by the tolerance of the matcher; the sum over all constants.

        Exporters round numbers: 1.4142 for the root of two, and 0.0447 in float16 for 0.044715. Numbers such as one or a half are
        exact.
        """
        proto = self.made(values)
        moved = dict.fromkeys(truth, 0.0)
        for index, tensor in enumerate(proto.graph.initializer):
            number = numpy_helper.to_array(tensor)
            if number.size != 1 or tensor.data_type not in (*FLOATS, onnx.TensorProto.DOUBLE) or is_short(number):
                continue
            step = TOLERANCE.get(ir.DataType(tensor.data_type), ROUNDED)
            other = widened(proto)
            wide = np.asarray(number.astype(np.float64) * (1 + step))
            other.graph.initializer[index].CopyFrom(numpy_helper.from_array(wide, tensor.name))
            for name, result in Exact(other)(_read_by(proto, values)).items():
                with np.errstate(all="ignore"):
                    difference = np.abs(np.asarray(result, np.float64) - np.asarray(truth[name], np.float64))
                moved[name] += float(difference[np.isfinite(difference)].max(initial=0.0))
        return moved

    def noise(self, values: Values, results: Outputs) -> dict[str, Noise]:
        """How far added noise moves each result."""
        noises = {name: Noise() for name in results}
        moved = noisy(self._model, seed=1)
        if isinstance(moved, str):
            return noises
        proto = _standing_alone(moved, values)
        session = open_session(proto.SerializeToString(), self._provider, optimised=False)
        for _ in range(0 if isinstance(session, Failure) else DRAWS):
            assert not isinstance(session, Failure)
            outputs = run(session, _read_by(proto, values))
            for name, noise in noises.items() if not isinstance(outputs, Failure) else ():
                noise.add(np.asarray(results[name]), np.asarray(outputs[name]))  # type: ignore[index]
        return noises

    @property
    def stores_floats(self) -> bool:
        """Whether it stores a number as an attribute, which is always float32."""
        return self._proto is not None and has_float_attribute(self._proto)

    def made(self, values: Values) -> onnx.ModelProto:
        """The model as a protobuf that needs no other file."""
        self._proto = self._proto or _standing_alone(self._model, values)
        return self._proto


def _with_allowance(held: Held, allowance: float) -> Held:
    found = held.accuracy
    return held if found is None or found.holds else replace(held, accuracy=replace(found, bound=found.bound + allowance))


def _rounded_before(cutting: Cutting) -> list[str]:
    """The floating inputs of the unfused side that the fused side does not read: they were rounded on the way."""
    read = {value.name for value in cutting.after.graph.inputs}
    others = (value for value in cutting.before.graph.inputs if value.name not in read)
    return [str(value.name) for value in others if value.dtype is None or value.dtype.is_floating_point()]


def _read_by(proto: onnx.ModelProto, values: Values) -> dict[str, Any]:
    return {value.name: values[value.name] for value in proto.graph.input}


def _standing_alone(model: ir.Model, values: Values) -> onnx.ModelProto:
    """The model with all weights embedded.

    Its inputs are declared with the dtypes and ranks of `values`; nothing else is declared.

    A dimension that the model declares and the value confirms is kept, because some operators refuse weights of undeclared size.
    """
    proto: onnx.ModelProto = ir.to_proto(model)
    for tensor in proto.graph.initializer:
        held = model.graph.initializers[tensor.name].const_value
        if tensor.data_location == onnx.TensorProto.EXTERNAL and held is not None:
            tensor.CopyFrom(ir.to_proto(ir.Tensor(held.numpy(), dtype=held.dtype, name=tensor.name)))
    for value, declared in zip(proto.graph.input, model.graph.inputs, strict=True):
        array = np.asarray(values[value.name])
        known = [None] * array.ndim if declared.shape is None or declared.shape.rank() != array.ndim else declared.shape
        dims = [size if size == dim else None for size, dim in zip(array.shape, known, strict=True)]
        value.CopyFrom(helper.make_tensor_value_info(value.name, _element_type(array), dims))
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.ClearField("type")
    return proto


def _element_type(array: np.ndarray) -> int:
    return int(ir.DataType.from_numpy(array.dtype))
