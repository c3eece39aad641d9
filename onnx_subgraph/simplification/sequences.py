"""Sequences of tensors whose places are known become tensors: no runtime fuses across a sequence.

TorchScript exports `split`, `chunk` and `unbind` of a value with unknown sizes as SplitToSequence, and what is read of them as
SequenceAt; lists that a loop fills are chains of SequenceInsert. Paddle exports an assignment to a slice with a SequenceMap.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import Constants
from onnx_subgraph.model.nested import within
from onnx_subgraph.model.shapes import dims
from onnx_subgraph.model.surgery import TO_THE_END, constant, sliced, unsqueeze

_MOST = 64
"""The most copies of the body of a SequenceMap."""
_CHANGING = frozenset(("SequenceInsert", "SequenceErase", "Identity"))
"""Operators that give another sequence of the tensors of one."""
_MOST_PARTS = 1024
"""The most tensors of a sequence that are looked at."""


class _Part(NamedTuple):
    """One tensor of a sequence: a value, or a part of one along an axis, from `start` to before `end`.

    end: None for the element at `start` alone, without the axis; the end of the axis where it is `TO_THE_END`.
    """

    value: ir.Value
    axis: int | None = None
    start: int = 0
    end: int | None = None


def as_tensors(constants: Constants, node: ir.Node) -> dict[ir.Value, list[ir.Node]]:
    """The nodes that give the results of an operator on sequences from their tensors, by its results; {} for other nodes."""
    if node.domain or not node.inputs or node.inputs[0] is None:
        return {}
    name, nodes = str(node.name or node.outputs[0].name), list[ir.Node]()
    match node.op_type:
        case "SequenceAt":
            part = _at(constants, node)
            nodes = [] if part is None else _tensor(part, name)
            if part is not None and not nodes:
                nodes = [ir.Node("", "Identity", [part.value], name=name)]
        case "SequenceLength":
            parts = _parts(constants, node.inputs[0])
            nodes = [] if parts is None else [constant(np.array(len(parts), np.int64), name)]
        case "ConcatFromSequence":
            nodes = _joined(constants, node, name)
        case "SequenceMap":
            return _mapped(constants, node, name)
    return {node.outputs[0]: nodes} if nodes else {}


def _at(constants: Constants, node: ir.Node) -> _Part | None:
    """The tensor that a SequenceAt takes. The parts of an axis need not be counted for it."""
    sequence, position = node.inputs
    place = None if position is None else constants.scalar(position)
    if sequence is None or place is None:
        return None
    parts, split = _parts(constants, sequence), sequence.producer()
    if parts is not None:
        return parts[int(place)] if -len(parts) <= place < len(parts) else None
    if split is None or split.op_type != "SplitToSequence" or split.domain or split.inputs[0] is None:
        return None
    size = _size(constants, split)
    return _chunk(split, size, int(place)) if size is not None and (size == 1 or place >= 0) else None


def _parts(constants: Constants, sequence: ir.Value) -> list[_Part] | None:
    """The tensors of a sequence; None where they are not known."""
    changes: list[tuple[ir.Value | None, int | None]] = []
    while (maker := sequence.producer()) is not None and not maker.domain and maker.op_type in _CHANGING:
        if maker.op_type != "Identity":
            operands = [*maker.inputs, None, None]
            inserts = maker.op_type == "SequenceInsert"
            inserted, position = operands[1:3] if inserts else (None, operands[1])
            place = None if position is None else constants.scalar(position)
            if (inserts and inserted is None) or (position is not None and place is None) or len(changes) >= _MOST_PARTS:
                return None
            changes.append((inserted, None if place is None else int(place)))
        if maker.inputs[0] is None:
            return None
        sequence = maker.inputs[0]
    parts = None if maker is None or maker.domain else _first_parts(constants, maker)
    for value, place in reversed(changes):
        if parts is None or not _change(parts, value, place):
            return None
    return parts


def _change(parts: list[_Part], value: ir.Value | None, place: int | None) -> bool:
    """Insert a value at a place, or remove the part that is there. No place is the end. Returns whether there is such a place."""
    if value is None:
        place = len(parts) - 1 if place is None else place
        found = -len(parts) <= place < len(parts)
        if found:
            del parts[place]
        return found
    place = len(parts) if place is None else place
    parts.insert(place, _Part(value))
    return -len(parts) < place < len(parts)


def _first_parts(constants: Constants, maker: ir.Node) -> list[_Part] | None:
    """The tensors of the sequence that a node makes of tensors."""
    if maker.op_type == "SequenceEmpty":
        return []
    if maker.op_type == "SequenceConstruct":
        values = [value for value in maker.inputs if value is not None]
        return [_Part(value) for value in values]
    if maker.op_type != "SplitToSequence" or maker.inputs[0] is None:
        return None
    sizes, extent = maker.inputs[1] if len(maker.inputs) > 1 else None, dims(maker.inputs[0])
    lengths = None if sizes is None else constants.array(sizes)
    axis = maker.attributes.get_int("axis", 0)
    if lengths is not None and lengths.ndim == 1 and (lengths >= 0).all():
        ends = [0, *map(int, np.cumsum(lengths))]
        return [_Part(maker.inputs[0], axis, start, end) for start, end in pairwise(ends)]
    whole = extent[axis] if extent is not None and -len(extent) <= axis < len(extent) else None
    size = _size(constants, maker)
    if size is None or not isinstance(whole, int) or whole > _MOST_PARTS * size:
        return None
    return [_chunk(maker, size, place) for place in range(-(-whole // size))]


def _size(constants: Constants, split: ir.Node) -> int | None:
    """The size of the parts of an axis that is split into parts of one size.

    None for parts of a given size that shall lose the axis: the standard says that they keep it, and onnxruntime removes it.
    """
    sizes = split.inputs[1] if len(split.inputs) > 1 else None
    if sizes is None:
        return 1
    size = constants.scalar(sizes)
    keeps_axis = split.attributes.get_int("keepdims", 1) != 0
    return int(size) if size is not None and size >= 1 and keeps_axis else None


def _chunk(split: ir.Node, size: int, place: int) -> _Part:
    """A part of an axis that is split into parts of one size. Parts of one element may lose the axis."""
    value, axis = split.inputs[0], split.attributes.get_int("axis", 0)
    assert value is not None
    if not split.attributes.get_int("keepdims", 1):
        return _Part(value, axis, place)
    return _Part(value, axis, place * size, (place + 1) * size or TO_THE_END)


def _tensor(part: _Part, name: str) -> list[ir.Node]:
    """The nodes of which the last one gives a part; [] if it is a whole value."""
    if part.axis is None:
        return []
    if part.end is not None:
        return sliced(part.value, part.start, part.end, part.axis, name)
    place = constant(np.array(part.start, np.int64), f"{name}_place")
    return [place, ir.Node("", "Gather", [part.value, place.outputs[0]], [ir.AttrInt64("axis", part.axis)], name=name)]


def _tensors(parts: Sequence[_Part], name: str) -> tuple[list[ir.Node], list[ir.Value]]:
    """The nodes that give parts, and the parts."""
    nodes, values = list[ir.Node](), list[ir.Value]()
    for place, part in enumerate(parts):
        made = _tensor(part, f"{name}_{place}")
        nodes += made
        values.append(made[-1].outputs[0] if made else part.value)
    return nodes, values


def _joined(constants: Constants, node: ir.Node, name: str) -> list[ir.Node]:
    """The nodes of which the last one is the Concat of all tensors of a sequence."""
    parts, axis = _parts(constants, node.inputs[0]) if node.inputs[0] is not None else None, node.attributes.get_int("axis", 0)
    if not parts:
        return []
    nodes, values = _tensors(parts, name)
    if node.attributes.get_int("new_axis", 0):
        for place, value in enumerate(values):
            nodes += unsqueeze(value, [axis], constants.opset(node), f"{name}_{place}")
            values[place] = nodes[-1].outputs[0]
    return [*nodes, ir.Node("", "Concat", values, [ir.AttrInt64("axis", axis)], name=name)]


def _mapped(constants: Constants, node: ir.Node, name: str) -> dict[ir.Value, list[ir.Node]]:
    """A copy of the body of a SequenceMap for each place, and the sequences of what they give."""
    body, operands = node.attributes["body"].as_graph(), [value for value in node.inputs if value is not None]
    if len(within(body)) > 1 or len(operands) != len(body.inputs) or not all(value.type for value in operands):
        return {}
    parts = {value: _parts(constants, value) for value in operands if isinstance(value.type, ir.SequenceType)}
    counts = {None if found is None else len(found) for found in parts.values()}
    (count,) = counts if len(counts) == 1 else (None,)
    if not count or count > _MOST or operands[0] not in parts:
        return {}
    given: dict[ir.Value, list[ir.Value]] = {}
    nodes = [
        constant(value.const_value.numpy(), str(value.name))
        for value in body.initializers.values()
        if value.const_value is not None
    ]
    stored = [made.outputs[0] for made in nodes]
    for value in operands:
        made, given[value] = _tensors(parts.get(value) or count * [_Part(value)], f"{name}_{value.name}")
        nodes += made
    results: list[list[ir.Value]] = []
    for place in range(count):
        inner, outputs = _copy(body, [given[value][place] for value in operands], stored)
        nodes += inner
        results.append(outputs)
    made_of = {
        output: [ir.Node("", "SequenceConstruct", [*values], name=f"{name}_{output.name}")]
        for output, values in zip(node.outputs, zip(*results, strict=True), strict=True)
    }
    first = next(iter(made_of))
    return made_of | {first: [*nodes, *made_of[first]]}


def _copy(body: ir.Graph, operands: Sequence[ir.Value], stored: Sequence[ir.Value]) -> tuple[list[ir.Node], list[ir.Value]]:
    """The nodes of a body for these operands, in no graph, and the results. stored: its weights, outside."""
    copy = body.clone(allow_outer_scope_values=True)
    nodes, outputs = list(copy), list(copy.outputs)
    known = dict(zip((*copy.inputs, *copy.initializers.values()), (*operands, *stored), strict=True))
    for old, new in known.items():
        old.replace_all_uses_with(new, replace_graph_outputs=True)
    copy.outputs.clear()
    copy.remove(nodes)
    return nodes, [known.get(value, value) for value in outputs]
