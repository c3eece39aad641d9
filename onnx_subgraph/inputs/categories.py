"""The values that encoders of categories know: OneHotEncoder, LabelEncoder and CategoryMapper of ai.onnx.ml.

OneHotEncoder raises an error for another value, and the others give every other value the same code. So an input that reaches one
is drawn from its categories. Each column of a table of features may reach an encoder of its own; columns are followed through the
operators by which converters select and join them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_subgraph.inputs.ranges import constant

Category = int | float | str
Columns = tuple[int, ...]
"""For each column of a value the column of the input that it is, or `OTHER`."""

ALL, OTHER = -1, -2
"""Every column of the input; a column that is not of this input."""
DOMAIN = "ai.onnx.ml"
_KEYS = {
    "OneHotEncoder": ("cats_strings", "cats_int64s"),
    "LabelEncoder": ("keys_strings", "keys_int64s", "keys_floats"),
    "CategoryMapper": ("cats_strings", "cats_int64s"),
}
_LISTS = (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS)
_KEPT = frozenset(("Identity", "Cast", "Imputer"))
_RESHAPED = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze"))
_MOST = 1000
"""Values that are followed; no table of features has so many."""
_WIDEST = 4096
"""Columns that are followed one by one."""


def categories(model: ir.Model, value: ir.Value) -> Mapping[int, tuple[Category, ...]]:
    """Column of an input → the values that all encoders of the column know; `ALL` → those of the whole input."""
    found: dict[int, tuple[Category, ...]] = {}
    if not any(node.domain == DOMAIN and node.op_type in _KEYS for node in model.graph):
        return found
    pending: list[tuple[ir.Value, Columns | None]] = [(value, tuple(range(_width(value))) or None)]
    for _ in range(_MOST):
        if not pending:
            break
        current, columns = pending.pop()
        for node, index in current.uses():
            known = _known(node)
            for column in dict.fromkeys((ALL,) if columns is None else columns) if known else ():
                if column != OTHER:
                    found[column] = tuple(key for key in found.get(column, known) if key in known) or known
            pending += _onward(node, index, columns)
    return found


def drawn(array: npt.NDArray[Any], known: Mapping[int, tuple[Category, ...]], rng: np.random.Generator) -> npt.NDArray[Any]:
    """The array with each column that has categories drawn from them."""
    for column, keys in known.items():
        place: Any = ... if column == ALL else (..., column)
        with contextlib.suppress(ValueError, OverflowError):  # names of categories, where a Cast makes them of numbers
            array[place] = np.asarray(keys, array.dtype)[rng.integers(0, len(keys), array[place].shape)]
    return array


def _known(node: ir.Node) -> tuple[Category, ...]:
    """The categories that a node encodes."""
    names = _KEYS.get(node.op_type, ()) if node.domain == DOMAIN else ()
    given = (node.attributes.get(name) for name in names)
    return next((tuple(one.value) for one in given if one is not None and one.type in _LISTS and len(one.value)), ())


def _onward(node: ir.Node, index: int, columns: Columns | None) -> Iterator[tuple[ir.Value, Columns | None]]:
    """The values that hold columns of input `index`."""
    result = node.outputs[0]
    match node.op_type:
        case name if name in _KEPT:
            yield result, columns
        case name if name in _RESHAPED and index == 0:
            yield result, columns if columns is not None and len(columns) == 1 else None
        case "ArrayFeatureExtractor" | "Gather" if index == 0 and len(node.inputs) > 1:
            yield result, _chosen(columns, constant(node.inputs[1])) if node.op_type != "Gather" or _of_columns(node) else columns
        case "Concat":
            yield result, _joined(node.inputs, index, columns) if _of_columns(node) else columns
        case "Split" if index == 0:
            for part in node.outputs:
                width = _width(part) if _of_columns(node) else 0
                yield part, None if columns is None else columns[:width] or None
                columns = None if columns is None else columns[width:]


def _chosen(columns: Columns | None, chosen: npt.NDArray[Any] | None) -> Columns | None:
    """The columns at constant positions."""
    is_known = columns is not None and chosen is not None and all(-len(columns) <= i < len(columns) for i in chosen.reshape(-1))
    return tuple(columns[i] for i in chosen.reshape(-1)) if is_known else None  # type: ignore[index, union-attr]


def _joined(inputs: Sequence[ir.Value | None], index: int, columns: Columns | None) -> Columns | None:
    """The columns of one input of a Concat, among those of the others."""
    widths = [_width(value) for value in inputs]
    if columns is None or 0 in widths:
        return None
    return (*(OTHER,) * sum(widths[:index]), *columns, *(OTHER,) * sum(widths[index + 1 :]))


def _of_columns(node: ir.Node) -> bool:
    """Whether the axis of a node is the last one of its first input."""
    axis, data = node.attributes.get_int("axis", 0), node.inputs[0]
    return axis == -1 or (data is not None and data.shape is not None and axis == len(data.shape) - 1)


def _width(value: ir.Value | None) -> int:
    """The number of columns; 0 where it is not known, or large."""
    width = value.shape[-1] if value is not None and value.shape is not None and len(value.shape) else 0
    return width if isinstance(width, int) and width <= _WIDEST else 0
