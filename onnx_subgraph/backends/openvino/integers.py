"""Which integers OpenVINO computes as onnxruntime does.

OpenVINO computes 64-bit integers in 32 bits, and reads what an index out of range or a wrong size points to, where onnxruntime
fails. Three things are right: sizes, positions, truth values, constants and what is computed from these, for sizes and their
products are below 2**31 (`docs/targets.md`); other numbers of at most 32 bits that are only moved, compared or converted; and
indices into rows of a known number. Numbers that a caller gives, such as the ids of words, can be anything, so a run is declined
where they are outside of these `limits`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnx_subgraph.backends.subgraph import constant
from onnx_subgraph.model.nested import bodies

Limits = tuple[int, int]
"""The least and the largest number of an input."""

_INT32 = np.iinfo(np.int32)
_SMALL = 2**31
"""Constants below this leave room for what is computed from them, as sizes do."""
_WIDE = frozenset({ir.DataType.INT64, ir.DataType.UINT64, ir.DataType.UINT32})
"""Types of integers that have more than 32 bits, or whose numbers may have."""
_POINTING = {"Gather": 1, "GatherElements": 1, "GatherND": 1, "ScatterElements": 1, "ScatterND": 1}
"""Operators that read or write where an operand points to, and its position."""
_COUNTED = frozenset(
    {("Shape", 0), ("Size", 0), ("NonZero", 0), ("ArgMax", 0), ("ArgMin", 0), ("TopK", 1), ("NonMaxSuppression", 0)}
)
"""Results that are sizes and positions, whatever the operator reads."""

Operands = dict[str, tuple[int, ...] | None]
"""Operator → the positions of some operands; None for all."""
_MOVED: Operands = {
    **dict.fromkeys(("Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile"), (0,)),
    **dict.fromkeys(("Transpose", "Trilu", "Unsqueeze"), (0,)),
    **dict.fromkeys(("Concat", "Max", "Min")),
    **dict.fromkeys(("Pad", "ScatterElements", "ScatterND"), (0, 2)),
    "Where": (1, 2),
}
"""Operators whose numbers are some of those operands'."""
_FROM: Operands = _MOVED | {
    **dict.fromkeys(("Abs", "Cast", "CastLike", "Ceil", "CumSum", "Floor", "GatherElements", "GatherND", "Log", "Neg"), (0,)),
    **dict.fromkeys(("ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Round", "Sign", "Sqrt", "TopK"), (0,)),
    **dict.fromkeys(("Add", "Clip", "Div", "Mod", "Mul", "Range", "Sub", "Sum")),
    "ConstantOfShape": (),
    "OneHot": (2,),
}
"""Operators whose numbers are computed from those operands'."""
_TAKES: Operands = _MOVED | {
    **dict.fromkeys(("Cast", "CastLike", "Shape", "Size"), (0,)),
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")),
    "Gather": (0, 1),
}
"""Operators that are right for any numbers of 32 bits of these operands."""


def computes_as_onnxruntime(node: ir.Node, *, guarded: bool = True) -> bool:
    """Whether OpenVINO gives onnxruntime's results for all integers within `limits` that a node may read.

    guarded: whether these keep other numbers away, as from nodes that are in no body.
    """
    hands_on = node.op_type in _MOVED or (node.op_type in ("Cast", "CastLike") and _is_integer(node.inputs[0]))
    return (
        all(value is None or _fits(node, place, value, guarded) for place, value in enumerate(node.inputs))
        and all((guarded and hands_on) or value.dtype not in _WIDE or _is_known(value) for value in node.outputs)
        and all(computes_as_onnxruntime(inner, guarded=False) for body in bodies(node) for inner in body)
    )


def _fits(node: ir.Node, place: int, value: ir.Value, guarded: bool) -> bool:
    """Whether OpenVINO reads the numbers of an operand as onnxruntime does."""
    points = place == _pointer(node)
    if not (points or value.dtype in _WIDE) or _is_known(value):
        return True
    if constant(value) is not None:  # a large one may be the end of a slice, but nothing to compute with
        return not _takes(node, place)
    return guarded and _takes(node, place) and not (points and _rows(node) is None)


def limits(model: ir.Model) -> dict[str, Limits]:
    """The numbers of each input of a region, of such nodes only, that OpenVINO computes as onnxruntime does."""
    inputs = {value: str(value.name) for value in model.graph.inputs}
    found = {name: (_INT32.min, _INT32.max) for value, name in inputs.items() if value.dtype in _WIDE}
    for node in model.graph:
        place = _pointer(node)
        pointer = None if place is None else node.inputs[place]
        if pointer is None or _is_known(pointer):
            continue
        rows = _rows(node)
        for name in (inputs[value] for value in _traced(pointer, _moved_from) or () if value in inputs):
            low, high = found.get(name, (_INT32.min, _INT32.max))
            found[name] = (low, high) if rows is None else (max(low, -rows), min(high, rows - 1))
    return {name: (int(low), int(high)) for name, (low, high) in found.items()}


def _pointer(node: ir.Node) -> int | None:
    return None if node.domain else _POINTING.get(node.op_type)


def _takes(node: ir.Node, place: int) -> bool:
    places = () if node.domain else _TAKES.get(node.op_type, ())
    return places is None or place in places


def _rows(node: ir.Node) -> int | None:
    """The number of rows that a Gather chooses from; None where it is not known, and for other nodes."""
    shape = node.inputs[0].shape if node.op_type == "Gather" and node.inputs[0] is not None else None
    rows = None if shape is None else shape[node.attributes.get_int("axis", 0)]
    return rows if isinstance(rows, int) else None


def _is_integer(value: ir.Value | None) -> bool:
    return value is not None and value.dtype is not None and value.dtype.is_integer()


def _is_known(value: ir.Value) -> bool:
    """Whether the numbers of a value are small constants, sizes, positions, truth values, or computed from these."""
    return _traced(value, _computed_from) is not None


def _traced(value: ir.Value, sources: Callable[[ir.Value], list[ir.Value] | None]) -> set[ir.Value] | None:
    """A value and all that its numbers come from; None where `sources` gives None for one of these.

    sources: what the numbers of a value come from directly.
    """
    found: set[ir.Value] = set()
    pending = [value]
    while pending:
        one = pending.pop()
        if one not in found:
            found.add(one)
            if (operands := sources(one)) is None:
                return None
            pending += operands
    return found


def _computed_from(value: ir.Value) -> list[ir.Value] | None:
    """What the numbers of a value are computed from; None where they may be any."""
    if value.dtype is ir.DataType.BOOL:
        return []
    if (tensor := constant(value)) is not None:
        return [] if bool(np.all(np.abs(tensor.numpy().astype(np.float64)) < _SMALL)) else None
    node = value.producer()
    if node is not None and not node.domain and (node.op_type, value.index()) in _COUNTED:
        return []
    return _operands(node, _FROM)


def _moved_from(value: ir.Value) -> list[ir.Value]:
    """The operands whose numbers a value has some of."""
    return _operands(value.producer(), _MOVED | {"Cast": (0,), "CastLike": (0,)}) or []


def _operands(node: ir.Node | None, table: Operands) -> list[ir.Value] | None:
    """The operands of a node that a table names; None where it does not have the operator."""
    if node is None or node.domain or node.op_type not in table:
        return None
    places = table[node.op_type]
    chosen = node.inputs if places is None else [node.inputs[place] for place in places if place < len(node.inputs)]
    return [operand for operand in chosen if operand is not None]
