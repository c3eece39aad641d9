"""Run sessions with element types that onnxruntime can't convert to numpy: pass them as raw bits."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

TYPES: Mapping[str, tuple[int, str]] = {
    "tensor(bfloat16)": (16, "bfloat16"),
    "tensor(float8e4m3fn)": (17, "float8_e4m3fn"),
    "tensor(float8e4m3fnuz)": (18, "float8_e4m3fnuz"),
    "tensor(float8e5m2)": (19, "float8_e5m2"),
    "tensor(float8e5m2fnuz)": (20, "float8_e5m2fnuz"),
}
"""onnxruntime's type → (ONNX's number of the type, its name in ml_dtypes)."""


def takes(session: Any) -> bool:
    """Whether a session of onnxruntime has an input or output of such a type."""
    return any(argument.type in TYPES for argument in (*session.get_inputs(), *session.get_outputs()))


def run(session: Any, value: Any, feeds: Mapping[str, Any], options: Any) -> list[Any]:
    """The outputs of an onnxruntime session, in its order; None for an absent optional. value: onnxruntime's `OrtValue` class."""
    types = {argument.name: argument.type for argument in session.get_inputs()}
    given = {}
    for name, array in feeds.items():
        raw = np.ascontiguousarray(array)
        if types.get(name) in TYPES:
            bits = raw.view(np.uint8 if raw.itemsize == 1 else np.uint16)
            given[name] = value.ortvalue_from_numpy_with_onnx_type(bits, TYPES[types[name]][0])
        else:
            given[name] = value.ortvalue_from_numpy(raw)
    names = [argument.name for argument in session.get_outputs()]
    return list(map(_array_of, session.run_with_ort_values(names, given, options)))


def _array_of(value: Any) -> Any:
    if value is None or not value.has_value():
        return None
    if value.data_type() not in TYPES:
        return value.numpy()
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, TYPES[value.data_type()][1]))
    shape = tuple(value.shape())
    raw = ctypes.string_at(value.data_ptr(), int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
    return np.frombuffer(raw, dtype).reshape(shape)
