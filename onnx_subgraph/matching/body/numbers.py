"""Find the numbers in a graph that correspond to placeholders in a body.

They are in attributes, and in values that depend only on constants and shapes. For such values the body is followed as long as
the graph has the same operators. Where the graph has a folded constant instead, simple operators of the body are inverted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx_ir as ir

from onnx_subgraph.matching.body.function import SLIGHT, stored
from onnx_subgraph.matching.numbering import plain_operator
from onnx_subgraph.matching.view import View
from onnx_subgraph.model.attributes import plain_value

Number = float | int | tuple[float | int, ...]
Found = Iterator[tuple[str, Number]]

_INVERSE: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "Sqrt": np.square,
    "Reciprocal": np.reciprocal,
    "Neg": np.negative,
}
_LONGEST = 16
"""Maximum number of elements of a constant that are searched for placeholders."""


def holds_placeholder(array: np.ndarray, placeholders: Mapping[float, str]) -> bool:
    """Whether a constant of a body contains a placeholder."""
    return array.dtype.kind in "iuf" and any(float(x) in placeholders for x in array.ravel()[:_LONGEST])


def from_attributes(node: ir.Node, other: ir.Node, placeholders: Mapping[float, str]) -> Found:
    """The numbers for placeholders in the attributes of `other`, a node of the graph aligned with `node` of the body."""
    for name, attribute in node.attributes.items():
        theirs = other.attributes.get(name)
        if theirs is not None and theirs.type == attribute.type and (number := plain_value(theirs)) is not None:
            yield from _paired(np.array(attribute.value), np.array(number), placeholders)


def from_statics(view: View, ours: ir.Value, theirs: ir.Value | np.ndarray, placeholders: Mapping[float, str]) -> Found:
    """The numbers for placeholders in `theirs`, a value of the graph or a constant aligned with `ours` of the body."""
    node = ours.producer()
    if node is None:
        return
    array = theirs if isinstance(theirs, np.ndarray) else view.constants.array(theirs)
    other = None if isinstance(theirs, np.ndarray) else view.producer(view.through(theirs)[0])
    first = node.inputs[0] if node.inputs else None
    if node.op_type == "Constant":
        constant = stored(ours)
        if constant is not None and array is not None:
            yield from _paired(constant, array, placeholders)
    elif node.op_type in SLIGHT and first is not None:
        behind = other.inputs[0] if other is not None and other.op_type in SLIGHT else None
        yield from from_statics(view, first, theirs if behind is None else behind, placeholders)
    elif other is not None and plain_operator(node) == plain_operator(other):
        for a, b in zip(node.inputs, other.inputs, strict=False):
            if a is not None and b is not None:
                yield from from_statics(view, a, b, placeholders)
    elif array is not None and node.op_type in _INVERSE and first is not None and array.dtype.kind == "f":
        with np.errstate(all="ignore"):
            yield from from_statics(view, first, np.asarray(_INVERSE[node.op_type](array)), placeholders)
    elif array is not None and node.op_type == "Concat" and array.size == len(node.inputs):
        for part, element in zip(node.inputs, array.reshape(-1, 1), strict=True):
            if part is not None:
                yield from from_statics(view, part, element, placeholders)


def _paired(mine: np.ndarray, theirs: np.ndarray, placeholders: Mapping[float, str]) -> Found:
    if mine.dtype.kind not in "iuf" or theirs.dtype.kind not in "iuf":
        return
    ours, others = mine.ravel().tolist(), theirs.ravel().tolist()
    if mine.ndim == len(ours) == 1 and len(others) != 1 and float(ours[0]) in placeholders:
        yield placeholders[float(ours[0])], tuple(others)  # a list of any length
    elif len(ours) == len(others):
        yield from ((placeholders[float(a)], b) for a, b in zip(ours, others, strict=True) if float(a) in placeholders)
