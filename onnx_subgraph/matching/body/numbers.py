"""Which numbers stand in a graph where a body has placeholders.

They are looked for in attributes, and in what depends on constants and shapes alone: there the body is followed as far as the
graph goes the same way, and from a constant that was computed beforehand one step back where that is plain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx_ir as ir

from onnx_subgraph.matching.body.function import SLIGHT, stored
from onnx_subgraph.matching.numbering import plain_operator
from onnx_subgraph.matching.view import View

Number = float | int | tuple[float | int, ...]
Found = Iterator[tuple[str, Number]]

PLAIN = frozenset(
    (
        *(ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING),
        *(ir.AttributeType.INTS, ir.AttributeType.FLOATS),
    )
)
"""The kinds of attributes that are compared."""
_INVERSE: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "Sqrt": np.square,
    "Reciprocal": np.reciprocal,
    "Neg": np.negative,
}
_LONGEST = 16
"""Elements of a constant in which a placeholder may stand."""


def holds_placeholder(array: np.ndarray, placeholders: Mapping[float, str]) -> bool:
    """Whether a placeholder stands in a constant of a body."""
    return array.dtype.kind in "iuf" and any(float(x) in placeholders for x in array.ravel()[:_LONGEST])


def from_attributes(node: ir.Node, other: ir.Node, placeholders: Mapping[float, str]) -> Found:
    """The numbers in the attributes of a node of the graph, `other`, that is laid over one of the body."""
    for name, attribute in node.attributes.items():
        theirs = other.attributes.get(name)
        if attribute.type in PLAIN and theirs is not None and not theirs.is_ref() and theirs.type == attribute.type:
            yield from _paired(np.array(attribute.value), np.array(theirs.value), placeholders)


def from_statics(view: View, ours: ir.Value, theirs: ir.Value | np.ndarray, placeholders: Mapping[float, str]) -> Found:
    """The numbers in a value of the graph, or in a constant, that is laid over a value of the body."""
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
