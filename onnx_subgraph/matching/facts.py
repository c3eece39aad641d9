"""What a `where` sentence may ask of a name: dtype, shape, rank, whether it is constant, and its value.

Thin views over a binding; nothing is computed before it is asked for. A fact that is not known is None, and a sentence that
needs it fails with that reason.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_subgraph.matching.view import View


class Facts:
    """The facts of one value of the graph, under the names that the language gives them."""

    def __init__(self, view: View, value: ir.Value) -> None:
        self._view = view
        self._value = value

    @cached_property
    def dtype(self) -> str | None:
        """The element type as onnx writes it in text, `float`, `float16`, …, in numpy's words: `float32`."""
        dtype = self._value.dtype
        return None if dtype is None else {"FLOAT": "float32", "DOUBLE": "float64"}.get(dtype.name, dtype.name.lower())

    @cached_property
    def shape(self) -> tuple[Any, ...] | None:
        """The dimensions: an int, a symbolic dimension, or None for one that is not known."""
        shape = self._value.shape
        if shape is None:
            return None
        return tuple(d if isinstance(d, int) else (d if d.value is not None else None) for d in shape)

    @property
    def rank(self) -> int | None:
        """The number of dimensions."""
        return None if self._value.shape is None else self._value.shape.rank()

    @property
    def is_constant(self) -> bool:
        """Whether the value is known before the model runs."""
        return self._view.constants.is_constant(self._value)

    @property
    def is_scalar(self) -> bool | None:
        """Whether the value has one element."""
        shape = self._value.shape
        if shape is None:
            return None
        return all(d == 1 for d in shape)

    @property
    def is_output(self) -> bool:
        """Whether the graph gives the value out."""
        return self._value.is_graph_output()

    @property
    def is_doubled(self) -> bool | None:
        """Whether a constant has the same twice along its last axis, as cosines of angles that are repeated."""
        array = self._view.constants.array(self._value)
        if array is None or array.ndim == 0 or array.shape[-1] % 2:
            return None if array is None else False
        first, second = np.split(array, 2, axis=-1)
        return bool(np.array_equal(first, second))

    @property
    def value(self) -> Any:
        """The number of a one-element constant, nested tuples of a larger one."""
        array = self._view.constants.array(self._value)
        return None if array is None else static(array)


class Number:
    """The facts of a constant that is no value of the graph: a number found as the rest of a product or sum."""

    __slots__ = ("value",)
    dtype: str | None = None
    shape: tuple[int, ...] = ()
    rank = 0
    is_constant = True
    is_scalar = True
    is_output = False
    is_doubled = False

    def __init__(self, value: Any) -> None:
        self.value = value


def static(array: np.ndarray) -> Any:
    """An array as a number or nested tuples."""
    return array.item() if array.size == 1 else _tuples(array.tolist())


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
