"""Loops over the parts of a value that were unrolled: the same operators on each part, whose results are joined again.

`stack([f(x[t]) for t in range(T)])` in Python, and TimeDistributed in Keras, become T copies of f. Where its operators work on
each part alone, f(x) is the same in one copy. A kernel may round a product of all rows differently from one of each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import small
from onnx_subgraph.model.attributes import plain_value
from onnx_subgraph.model.axis_orders import named_axes
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.operators.elementwise import is_elementwise

_MOST = 32
"""The most operators of f."""


class _Step(NamedTuple):
    """An operator of f, in the copy for the first part, and which of its operands depends on the part."""

    node: ir.Node
    operand: int


class _Part(NamedTuple):
    """One element along an axis of a value. kept: whether the part has the axis, of size 1."""

    source: ir.Value
    axis: int
    place: int
    kept: bool


def as_whole(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """The operators on the whole value that give the result of a Concat of what they give for each part; [] for other nodes."""
    if node.op_type != "Concat" or node.domain or len(node.inputs) < 2:
        return []
    values = [value for value in node.inputs if value is not None]
    steps: list[_Step] = []
    while len(steps) <= _MOST:
        parts = [_part(constants, value) for value in values]
        if parts[0] is not None:
            return _written(constants, node, parts[0], steps) if _are_all(parts) else []
        makers = [value.producer() for value in values]
        if not all(maker is not None and _is_inner(value, node.graph) for maker, value in zip(makers, values, strict=True)):
            return []
        copies = [maker for maker in makers if maker is not None]
        index = _differing(constants, copies)
        if index is None:
            return []
        steps.append(_Step(copies[0], index))
        values = [value for copy in copies if (value := copy.inputs[index]) is not None]
    return []


def _is_inner(value: ir.Value, graph: ir.Graph | ir.Function | None) -> bool:
    """Whether one node reads a value, which a node of this graph computes alone."""
    maker = value.producer()
    return (
        maker is not None
        and maker.graph is graph
        and len(maker.outputs) == 1
        and len(value.uses()) == 1
        and not value.is_graph_output()
    )


def _differing(constants: Constants, copies: Sequence[ir.Node]) -> int | None:
    """The only operand in which these copies of an operator differ; None if they are not copies."""
    first = copies[0]
    if any(plain_value(attribute) is None for attribute in first.attributes.values()):
        return None
    told = _told(first)
    if any(_told(copy) != told for copy in copies):
        return None
    found = [index for index in range(len(first.inputs)) if not _is_same(constants, [copy.inputs[index] for copy in copies])]
    distinct = len(found) == 1 and len({copy.inputs[found[0]] for copy in copies}) == len(copies)
    return found[0] if distinct and None not in [copy.inputs[found[0]] for copy in copies] else None


def _told(node: ir.Node) -> object:
    attributes = {name: plain_value(attribute) for name, attribute in node.attributes.items()}
    return node.domain, node.op_type, len(node.inputs), attributes


def _is_same(constants: Constants, values: Sequence[ir.Value | None]) -> bool:
    first, others = values[0], values[1:]
    if all(value is first for value in others):
        return True
    arrays = [None if value is None else small(constants, value) for value in values]
    return all(array is not None and arrays[0] is not None and np.array_equal(array, arrays[0]) for array in arrays)


def _part(constants: Constants, value: ir.Value) -> _Part | None:
    """The part of another value that a Slice, a Gather or a Split gives; None if it is not one element along an axis."""
    node = value.producer()
    source = None if node is None or node.domain or not node.inputs else node.inputs[0]
    if node is None or source is None or source.shape is None:
        return None
    rank, named = len(source.shape), node.attributes.get_int("axis", 0)
    if node.op_type == "Gather" and -rank <= named < rank:
        place = None if node.inputs[1] is None else small(constants, node.inputs[1])
        size = source.shape[named]
        if place is None or place.ndim or not isinstance(size, int):
            return None
        return _Part(source, named % rank, int(place) % size if size else 0, kept=False)
    if node.op_type == "Split" and len(node.outputs) == source.shape[named]:
        is_one = all(output.shape is not None and output.shape[named] == 1 for output in node.outputs)
        return _Part(source, named % rank, node.outputs.index(value), kept=True) if is_one else None
    if node.op_type == "Slice" and len(node.inputs) > 3:
        given = [None if number is None else small(constants, number) for number in node.inputs[1:]]
        if all(numbers is not None and numbers.size == 1 for numbers in given):
            start, end, axis, *step = (int(numbers.reshape(-1)[0]) for numbers in given if numbers is not None)
            size = source.shape[axis]
            if step in ([], [1]) and isinstance(size, int) and 0 <= start < size and min(end, size) == start + 1:
                return _Part(source, axis % rank, start, kept=True)
    return None


def _are_all(parts: Sequence[_Part | None]) -> bool:
    """Whether these are all elements of one value along one axis, in order."""
    first = parts[0]
    if first is None or first.source.shape is None or first.source.shape[first.axis] != len(parts):
        return False
    return all(part == first._replace(place=place) for place, part in enumerate(parts))


def _written(constants: Constants, joined: ir.Node, part: _Part, steps: list[_Step]) -> list[ir.Node]:
    """The operators, first to last, on the whole value; [] where one of them does not work on each part alone."""
    nodes: list[ir.Node] = []
    whole, kept = part.source, part.kept
    for node, index in reversed(steps):
        value = node.inputs[index]
        rank = None if value is None or value.shape is None else len(value.shape)
        if rank is None:
            return []
        if node.op_type in ("Squeeze", "Unsqueeze") and not node.domain:
            here = rank if node.op_type == "Squeeze" else rank + 1
            if index or named_axes(constants, node, here) != {part.axis} or kept is (node.op_type == "Unsqueeze"):
                return []
            kept = not kept
            continue
        behind = rank - part.axis - kept
        """How many axes of the part lie behind the one of the loop."""
        made = _on_whole(node, index, whole, behind)
        if not made:
            return []
        nodes += made
        whole = made[-1].outputs[0]
    shape, axis = joined.outputs[0].shape, joined.attributes.get_int("axis", 0)
    ends_there = kept and shape is not None and axis % len(shape) == part.axis
    return nodes if ends_there else []


def _on_whole(node: ir.Node, index: int, whole: ir.Value, behind: int) -> list[ir.Node]:
    """The nodes that compute an operator of f on the whole value; [] where it does not work on each part alone."""
    others = [operand for at, operand in enumerate(node.inputs) if at != index and operand is not None]
    if any(operand.shape is None for operand in others):
        return []
    ranks = [len(operand.shape) for operand in others if operand.shape is not None]
    name = f"{node.name or node.outputs[0].name}_whole"
    if is_elementwise(node.op_type, node.domain):
        if any(rank > behind for rank in ranks):
            return []
        operands = [whole if at == index else operand for at, operand in enumerate(node.inputs)]
        return _named(node, [ir.Node(node.domain, node.op_type, operands, list(node.attributes.values()), name=name)])
    if node.domain or index or not behind or node.op_type not in ("MatMul", "Gemm") or ranks[:1] != [2]:
        return []
    if node.op_type == "MatMul":
        return _named(node, [ir.Node("", "MatMul", [whole, node.inputs[1]], name=name)])
    return _named(node, _product(node, whole, name))


def _product(gemm: ir.Node, whole: ir.Value, name: str) -> list[ir.Node]:
    """A Gemm as MatMul and Add, which take more axes; [] where it scales, or transposes its first operand."""
    is_plain = gemm.attributes.get_float("alpha", 1.0) == 1 and gemm.attributes.get_float("beta", 1.0) == 1
    transposed = gemm.attributes.get_int("transA", 0)
    if transposed or not is_plain:
        return []
    weight, nodes = gemm.inputs[1], list[ir.Node]()
    if gemm.attributes.get_int("transB", 0):
        nodes.append(ir.Node("", "Transpose", [weight], [ir.AttrInt64s("perm", [1, 0])], name=f"{name}_weight"))
        weight = nodes[0].outputs[0]
    nodes.append(ir.Node("", "MatMul", [whole, weight], name=name))
    bias = gemm.inputs[2] if len(gemm.inputs) > 2 else None
    if bias is not None:
        if bias.shape is None or len(bias.shape) > 1:
            return []
        nodes.append(ir.Node("", "Add", [nodes[-1].outputs[0], bias], name=f"{name}_bias"))
    return nodes


def _named(node: ir.Node, nodes: list[ir.Node]) -> list[ir.Node]:
    for number, made in enumerate(nodes):
        made.outputs[0].name = f"{node.outputs[0].name}__whole_{number}"
    return nodes
