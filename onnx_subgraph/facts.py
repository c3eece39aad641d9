"""The facts of a name that a `where` sentence may use: dtype, shape, rank, whether it is constant, and its value.

Facts are thin views of a binding, computed on demand. An unknown fact is None, and a sentence that needs it fails with that
reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from onnx_subgraph.language.axis import numbered
from onnx_subgraph.model.binary import binary
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.element_types import numpy_name
from onnx_subgraph.model.intervals import interval
from onnx_subgraph.model.repetition import doubled, paired
from onnx_subgraph.model.triangle import causal


class TypeFacts:
    """The facts of a value that its type gives, under the names that the language gives them."""

    def __init__(self, value: ir.Value) -> None:
        self._value = value

    @cached_property
    def dtype(self) -> str | None:
        """The element type by numpy's name: `float32`."""
        return element_type(self._value)

    @cached_property
    def shape(self) -> tuple[Any, ...] | None:
        """The dimensions: an int, a symbolic dimension, or None for an unknown one."""
        shape = self._value.shape
        if shape is None:
            return None
        return tuple(d if isinstance(d, int) else (d if d.value is not None else None) for d in shape)

    @property
    def rank(self) -> int | None:
        """The number of dimensions."""
        return None if self._value.shape is None else self._value.shape.rank()


class Facts(TypeFacts):
    """All facts of one value of the graph."""

    def __init__(self, constants: Constants, value: ir.Value) -> None:
        super().__init__(value)
        self._constants = constants

    @property
    def is_constant(self) -> bool:
        """Whether the value is known before the model runs."""
        return self._constants.is_constant(self._value)

    @property
    def is_scalar(self) -> bool | None:
        """Whether the value has one element."""
        shape = self._value.shape
        if shape is None:
            return None
        return all(d == 1 for d in shape)

    @property
    def is_output(self) -> bool:
        """Whether the value is a graph output."""
        return self._value.is_graph_output()

    @property
    def is_doubled(self) -> bool | None:
        """Whether the two halves along the last axis are equal, as in a rotary embedding with repeated cosines."""
        return doubled(self._constants, self._value)

    @property
    def is_paired(self) -> bool | None:
        """Whether neighbours 2i and 2i+1 along the last axis are equal, as in an interleaved rotary embedding."""
        return paired(self._constants, self._value)

    @property
    def is_binary(self) -> bool | None:
        """Whether every element is 0 or 1, proved from constants and from how the value is computed; None where unknown."""
        return binary(self._constants, self._value)

    @property
    def is_causal(self) -> bool | None:
        """Whether a mask lets each row of scores see the columns up to its own; None where unknown."""
        return causal(self._constants, self._value)

    @property
    def is_dequantized(self) -> bool:
        """Whether DequantizeLinear computes the value: onnxruntime may run its consumers on integers."""
        producer = self._value.producer()
        return producer is not None and producer.op_type == "DequantizeLinear"

    @property
    def lower_bound(self) -> float | None:
        """A finite number that no element is below, unless it is NaN; proved as for `is_binary`, None where unknown."""
        found = interval(self._constants, self._value, unless_nan=True)
        return None if found is None else float(found.least)

    @property
    def magnitude(self) -> float | None:
        """The largest absolute value of a constant's elements; 0 if it has none, None for other values."""
        array = self._constants.array(self._value)
        if array is None or array.dtype.kind in "OSU":
            return None
        return float(np.max(np.abs(array.astype(np.float64)), initial=0.0))

    @property
    def value(self) -> Any:
        """The number of a one-element constant, nested tuples for a larger one."""
        array = self._constants.array(self._value)
        return None if array is None else static(array)


class AxisFacts(Facts):
    """The facts of a value that an operator reads as the number of an axis, or a list of them, out of `count` axes."""

    def __init__(self, constants: Constants, value: ir.Value, count: int | None) -> None:
        super().__init__(constants, value)
        self._count = count

    @property
    def value(self) -> Any:
        """The number of an axis, or a list of them; they compare as axes."""
        return numbered(super().value, self._count, ordered=True)


@dataclass(frozen=True, slots=True)
class Number:
    """The facts of a number that remains from the constants of a product or sum, and that no value of the graph holds.

    shape: the largest shape of those constants.
    """

    value: float
    dtype: str | None
    shape: tuple[int, ...]
    is_constant: ClassVar[bool] = True
    is_scalar: ClassVar[bool] = True
    is_output: ClassVar[bool] = False
    is_doubled: ClassVar[bool] = False
    is_paired: ClassVar[bool] = False
    is_binary: ClassVar[bool] = False
    is_causal: ClassVar[bool] = False
    is_dequantized: ClassVar[bool] = False

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def lower_bound(self) -> float:
        """The number itself."""
        return self.value

    @property
    def magnitude(self) -> float:
        """The absolute value of the number."""
        return abs(self.value)


def element_type(value: ir.Value) -> str | None:
    """The element type by numpy's name, `float32`; onnx's text form writes `float`. None if unknown."""
    dtype = value.dtype
    return None if dtype is None else numpy_name(dtype)


def static(array: np.ndarray) -> Any:
    """An array as a number or nested tuples."""
    return array.item() if array.size == 1 else _tuples(array.tolist())


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
