"""Element types, and their names: numpy's, which the language uses (`float32`), and those of schemas (`tensor(float)`)."""

from __future__ import annotations

import onnx_ir as ir

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE})
_LONG = {"float": "float32", "double": "float64"}
_SHORT = {long: short for short, long in _LONG.items()}


def numpy_name(dtype: ir.DataType) -> str:
    """The name of an element type in numpy and in the language: `float32`."""
    return _LONG.get(dtype.name.lower(), dtype.name.lower())


def named(name: str) -> ir.DataType:
    """The element type with this name in the language."""
    return ir.DataType[_SHORT.get(name, name).upper()]


def tensor_type(dtype: ir.DataType) -> str:
    """The name of a tensor's type in schemas: `tensor(float)`."""
    return f"tensor({dtype.name.lower()})"
