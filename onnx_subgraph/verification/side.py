"""One side of a rewrite as a small model: the replaced nodes, or the replacement. It is run, and evaluated in wider types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnx_subgraph.evaluator.truth import FLOATS, Exact, UnknownError, widened
from onnx_subgraph.files.protobuf import tensors
from onnx_subgraph.matching.view import ROUNDED, TOLERANCE
from onnx_subgraph.verification.accuracy import has_float_attribute
from onnx_subgraph.verification.bounds import Noise, is_float
from onnx_subgraph.verification.noise import noisy
from onnx_subgraph.verification.sessions import Failure, Outputs, Session, open_session, run
from onnx_subgraph.verification.systematic import NARROW, is_short

Array = np.ndarray
Values = Mapping[str, Any]

DRAWS = 2
"""Runs with added noise, where there is no float64 result."""
FORMULA = 2.0**-18
"""The allowed difference of the fused and the unfused formula, both evaluated in float64, relative to the largest value."""
FORMULA_IN_FLOAT32 = 2.0**-14
"""The same where the provider evaluates the fused formula in float32."""


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
    def overflows(self) -> bool:
        """Whether its evaluation in float64 had a number that is too large for float64."""
        return self._exact is not None and self._exact.overflowed

    @property
    def stores_floats(self) -> bool:
        """Whether it stores a number as an attribute, which is always float32."""
        return self._proto is not None and has_float_attribute(self._proto)

    def reads_infinity(self, values: Values) -> bool:
        """Whether a value that it reads, or a constant of it, has an infinite element."""
        proto = self.made(values)
        floats = (t for t in tensors(proto) if t.data_type in (*FLOATS, onnx.TensorProto.DOUBLE))
        return any(map(has_infinity, (*_read_by(proto, values).values(), *map(numpy_helper.to_array, floats))))

    def made(self, values: Values) -> onnx.ModelProto:
        """The model as a protobuf that needs no other file."""
        self._proto = self._proto or _standing_alone(self._model, values)
        return self._proto


def has_infinity(value: Any) -> bool:
    """Whether a value is a tensor of floats with an infinite element."""
    array = np.asarray(value)
    return is_float(array) and bool(np.isinf(array).any())


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
