"""One rewrite held by itself: what it put there, what was there before, and the truth, on the same values.

The truth is what was replaced, evaluated in float64. Where that can't be had, because an operator of it has no definition here,
the unfused result of the provider takes its place, and the bound is what noise inside it does to it (`judge`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnx_subgraph.matching.view import ROUNDED, TOLERANCE
from onnx_subgraph.rewriting.cutting import Cutting
from onnx_subgraph.verification.accuracy import EPSILON, LEAST, Accuracy, accuracy, has_float_attribute
from onnx_subgraph.verification.judge import Noise, bound, compare
from onnx_subgraph.verification.noise import add_noise
from onnx_subgraph.verification.sessions import Failure, Outputs, Session, open_session, run
from onnx_subgraph.verification.truth import FLOATS, Exact, UnknownError, widened

Values = Mapping[str, Any]

DRAWS = 2
"""Runs with noise inside, where there is no truth."""
FORMULA = 2.0**-18
"""How far, of its largest value, the fused formula may be from the unfused one where both are evaluated in float64."""
FORMULA_IN_FLOAT32 = 2.0**-14
"""The same where the fused side is evaluated in float32, by the provider."""
SHORT = 2.0**4
"""A number whose binary digits are four at most is not a rounded one."""
FOLDED = 2.0
"""Units in the last place of a narrow dtype, of the largest value, where weights were folded: each is rounded once more."""
NARROW = ("float16", "bfloat16")
"""Dtypes so coarse that a wrong formula hides in their rounding: there both formulas are evaluated in wider ones, too."""


@dataclass(frozen=True, slots=True)
class Held:
    """How the worst result of a rewrite stands. result: its name before the rewrite. against: what it was held against.

    accuracy: None where it can't be told; `unknown` says why.
    """

    result: str = ""
    accuracy: Accuracy | None = None
    against: Literal["float64", "unfused"] = "float64"
    unknown: str = ""

    @property
    def gravity(self) -> tuple[int, float]:
        """The larger, the worse (`Accuracy.gravity`); not knowing is better than any."""
        return (0, 0.0) if self.accuracy is None else self.accuracy.gravity

    @property
    def shows(self) -> bool:
        """Whether an error would have been seen: it is known, and some elements are finite and not zero."""
        return self.accuracy is not None and self.accuracy.compared > 0


class Holding:
    """A rewrite on one provider, ready to be held on any number of values. Sessions are made when they are wanted."""

    def __init__(self, cutting: Cutting, provider: str) -> None:
        self._results = cutting.results
        self._before, self._after = _Side(cutting.before, provider), _Side(cutting.after, provider)
        self._roundings = FOLDED if _computes_constants(cutting) else 0.5 if _reads_other_values(cutting) else 0.0

    def on(self, values: Values) -> Held:
        """Its worst result on these values of everything that it reads."""
        try:
            unfused, fused = self._before.run(values), self._after.run(values)
        except (ValueError, TypeError, NotImplementedError) as why:  # a value that is no tensor, a model over 2 GiB
            return Held(unknown=f"it can't be taken out of the model: {why}")
        if isinstance(fused, Failure):
            if isinstance(unfused, Failure):
                return Held(unknown=f"onnxruntime does not run it by itself: {unfused.message}")
            return Held(accuracy=Accuracy(float("inf"), 0.0, 0.0, f"does not run: {fused.message}"))
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
        for index, (_, now) in enumerate(self._results):
            if (dtype := np.asarray(fused[now]).dtype.name) in NARROW:
                held[index] = self._by_formula(held[index], now, truth, values, dtype)
        if all(one.accuracy is None or one.accuracy.holds for one in held):
            return held
        allowed = self._before.moved_by_constants(values, truth)
        return [_with_allowance(one, allowed.get(one.result, 0.0)) for one in held]

    def _by_formula(self, held: Held, now: str, truth: Values, values: Values, dtype: str) -> Held:
        """The finding on a result of a narrow dtype, with the fused formula, in a wider one, held against the truth."""
        found, exact = held.accuracy, np.asarray(truth[held.result])
        wide, rounding = self._after.wider(values)
        mine = np.asarray(wide.get(now, np.nan))
        if found is None or not found.holds or mine.shape != exact.shape or exact.dtype.kind != "f":
            return held
        with np.errstate(all="ignore"):
            shown = np.isfinite(exact) & np.isfinite(mine)
            off = float(np.abs(mine - exact)[shown].max(initial=0.0))
        rounding = max(rounding, EPSILON[dtype] * self._roundings)
        bound = rounding * float(np.abs(exact)[shown].max(initial=LEAST))
        return held if off <= bound else replace(held, accuracy=replace(found, fused=off, bound=bound))

    def _against_unfused(self, unfused: Outputs, fused: Outputs, values: Values) -> list[Held]:
        noise = self._before.noise(values, unfused)
        held = []
        for was, now in self._results:
            own = np.asarray(unfused[was])
            found = compare(own, np.asarray(fused[now]), bound(own, noise[was]))
            shown = own.size if own.dtype.kind in "OSU" else int((np.isfinite(own) & (own != 0)).sum())
            held.append(Held(was, Accuracy(found.error, 0.0, found.bound, found.problem, shown), "unfused"))
        return held


class _Side:
    """What was replaced, or what replaces it: a small model that is run and evaluated, made for the first values it gets."""

    def __init__(self, model: ir.Model, provider: str) -> None:
        self._model, self._provider = model, provider
        self._proto: onnx.ModelProto | None = None
        self._session: Session | Failure | None = None
        self._exact: Exact | None = None

    def run(self, values: Values) -> Outputs | Failure:
        """What the provider makes of it. Raises what `_standing_alone` raises."""
        proto = self._made(values)
        self._session = self._session or open_session(proto.SerializeToString(), self._provider, optimised=False)
        return self._session if isinstance(self._session, Failure) else run(self._session, _read_by(proto, values))

    def exactly(self, values: Values) -> Values:
        """Its results in float64. Raises UnknownError."""
        proto = self._made(values)
        self._exact = self._exact or Exact(proto)
        return self._exact(_read_by(proto, values))

    def wider(self, values: Values) -> tuple[Values, float]:
        """Its results in float64, or by the provider in float32 where they can't be had, and how far these may be from the truth.

        Nothing where neither can be had.
        """
        try:
            return self.exactly(values), FORMULA
        except UnknownError:
            proto = widened(self._made(values), onnx.TensorProto.FLOAT)
        session = open_session(proto.SerializeToString(), self._provider, optimised=False)
        read = {name: a.astype(np.float32) if a.dtype.name in NARROW else a for name, a in _read_by(proto, values).items()}
        outputs = session if isinstance(session, Failure) else run(session, read)
        return ({}, 0.0) if isinstance(outputs, Failure) else (outputs, FORMULA_IN_FLOAT32)

    def moved_by_constants(self, values: Values, truth: Values) -> dict[str, float]:
        """How far each result moves when a number of it is another one that a pattern takes for the same, all numbers together.

        Exporters round numbers: 1.4142 is the root of two, and 0.0447 in float16 is 0.044715. One or a half is not rounded.
        """
        proto = self._made(values)
        moved = dict.fromkeys(truth, 0.0)
        for index, tensor in enumerate(proto.graph.initializer):
            number = numpy_helper.to_array(tensor)
            if number.size != 1 or tensor.data_type not in (*FLOATS, onnx.TensorProto.DOUBLE) or _is_short(number):
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
        """What noise inside does to each result."""
        noises = {name: Noise() for name in results}
        noisy = self._model.clone()
        if not add_noise(noisy, seed=1):
            return noises
        proto = _standing_alone(noisy, values)
        session = open_session(proto.SerializeToString(), self._provider, optimised=False)
        for _ in range(0 if isinstance(session, Failure) else DRAWS):
            assert not isinstance(session, Failure)
            outputs = run(session, _read_by(proto, values))
            for name, noise in noises.items() if not isinstance(outputs, Failure) else ():
                noise.add(np.asarray(results[name]), np.asarray(outputs[name]))  # type: ignore[index]
        return noises

    @property
    def stores_floats(self) -> bool:
        """Whether a number of it is an attribute, which is float32 whatever it is computed with."""
        return self._proto is not None and has_float_attribute(self._proto)

    def _made(self, values: Values) -> onnx.ModelProto:
        self._proto = self._proto or _standing_alone(self._model, values)
        return self._proto


def _with_allowance(held: Held, allowance: float) -> Held:
    found = held.accuracy
    return held if found is None or found.holds else replace(held, accuracy=replace(found, bound=found.bound + allowance))


def _computes_constants(cutting: Cutting) -> bool:
    """Whether the fused side holds constants of floats that the unfused one does not have."""
    held = {id(value.const_value) for value in cutting.before.graph.initializers.values()}
    tensors = (value.const_value for value in cutting.after.graph.initializers.values())
    return any(t is not None and id(t) not in held and t.dtype.is_floating_point() for t in tensors)


def _reads_other_values(cutting: Cutting) -> bool:
    """Whether the unfused side reads values that the fused one computes otherwise: they were rounded on the way."""
    read = {value.name for value in cutting.after.graph.inputs}
    return any(value.name not in read for value in cutting.before.graph.inputs)


def _is_short(number: np.ndarray) -> bool:
    """Whether a number has so few digits that none was rounded away: 0.5, 1, 3, 6."""
    mantissa, _ = np.frexp(number.astype(np.float64))
    return bool((mantissa * SHORT == np.rint(mantissa * SHORT)).all())


def _read_by(proto: onnx.ModelProto, values: Values) -> dict[str, Any]:
    return {value.name: values[value.name] for value in proto.graph.input}


def _standing_alone(model: ir.Model, values: Values) -> onnx.ModelProto:
    """The model with all weights inside, its inputs declared as what is fed to them, and nothing else declared."""
    proto: onnx.ModelProto = ir.to_proto(model)
    for tensor in proto.graph.initializer:
        held = model.graph.initializers[tensor.name].const_value
        if tensor.data_location == onnx.TensorProto.EXTERNAL and held is not None:
            tensor.CopyFrom(ir.to_proto(ir.Tensor(held.numpy(), dtype=held.dtype, name=tensor.name)))
    for value in proto.graph.input:
        array = np.asarray(values[value.name])
        value.CopyFrom(helper.make_tensor_value_info(value.name, _element_type(array), [None] * array.ndim))
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.ClearField("type")
    return proto


def _element_type(array: np.ndarray) -> int:
    return int(ir.DataType.from_numpy(array.dtype))
