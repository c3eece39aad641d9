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
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.operators.elementwise import is_elementwise
from onnx_subgraph.simplification.axis_orders import named_axes

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


class _Loop(NamedTuple):
    """A loop over all parts of a value. steps: the operators of f that the whole value needs, first to last."""

    source: ir.Value
    steps: list[_Step]


def is_unrolled(constants: Constants, node: ir.Node) -> bool:
    """Whether a node is a Concat of what the same operators give for each part of a value."""
    return _loop(constants, node) is not None


def as_whole(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """The operators on the whole value that give the result of a Concat of what they give for each part; [] for other nodes."""
    loop = _loop(constants, node)
    if loop is None:
        return []
    nodes, whole = list[ir.Node](), loop.source
    for step in loop.steps:
        nodes += _on_whole(step, whole)
        whole = nodes[-1].outputs[0]
    return nodes


def _loop(constants: Constants, node: ir.Node) -> _Loop | None:
    """The loop whose results a Concat joins; None where its operators do not work on each part alone."""
    if node.op_type != "Concat" or node.domain or len(node.inputs) < 2:
        return None
    values = [value for value in node.inputs if value is not None]
    steps: list[_Step] = []
    while len(steps) <= _MOST:
        parts = [_part(constants, value) for value in values]
        if parts[0] is not None:
            needed = _needed(constants, node, parts[0], steps[::-1]) if _are_all(parts) else []
            return _Loop(parts[0].source, needed) if needed else None
        makers = [value.producer() for value in values]
        if not all(maker is not None and _is_inner(value, node.graph) for maker, value in zip(makers, values, strict=True)):
            return None
        copies = [maker for maker in makers if maker is not None]
        operand = _differing(constants, copies)
        if operand is None:
            return None
        steps.append(_Step(copies[0], operand))
        values = [value for copy in copies if (value := copy.inputs[operand]) is not None]
    return None


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


def _needed(constants: Constants, joined: ir.Node, part: _Part, steps: list[_Step]) -> list[_Step]:
    """The operators that the whole value needs, first to last; [] where one of them does not work on each part alone."""
    needed: list[_Step] = []
    kept = part.kept
    for step in steps:
        node, value = step.node, step.node.inputs[step.operand]
        if value is None or value.shape is None:
            return []
        rank = len(value.shape)
        if node.op_type in ("Squeeze", "Unsqueeze") and not node.domain:
            adds = node.op_type == "Unsqueeze"
            if step.operand or kept is adds or named_axes(constants, node, rank + adds) != {part.axis}:
                return []
            kept = not kept
        elif _is_alone(step, rank - part.axis - kept):
            needed.append(step)
        else:
            return []
    shape, axis = joined.outputs[0].shape, joined.attributes.get_int("axis", 0)
    return needed if kept and shape is not None and axis % len(shape) == part.axis else []


def _is_alone(step: _Step, behind: int) -> bool:
    """Whether an operator works on each part alone. behind: how many axes of a part are behind the one of the loop."""
    node = step.node
    others = [value for index, value in enumerate(node.inputs) if index != step.operand and value is not None]
    ranks = [None if value.shape is None else len(value.shape) for value in others]
    if is_elementwise(node.op_type, node.domain):
        return all(rank is not None and rank <= behind for rank in ranks)
    if node.domain or step.operand or not behind or ranks[:1] != [2]:
        return False
    return node.op_type == "MatMul" or (
        node.op_type == "Gemm" and _is_product(node) and all(rank in (0, 1) for rank in ranks[1:])
    )


def _is_product(gemm: ir.Node) -> bool:
    """Whether a Gemm neither scales nor transposes its first operand."""
    alpha, beta = (gemm.attributes.get_float(name, 1.0) for name in ("alpha", "beta"))
    return alpha == beta == 1 and not gemm.attributes.get_int("transA", 0)


def _on_whole(step: _Step, whole: ir.Value) -> list[ir.Node]:
    """The nodes that compute an operator of f on the whole value."""
    node = step.node
    name = f"{node.name or node.outputs[0].name}_whole"
    if node.op_type == "Gemm" and not node.domain:
        nodes = _product(node, whole, name)
    else:
        operands = [whole if index == step.operand else value for index, value in enumerate(node.inputs)]
        nodes = [ir.Node(node.domain, node.op_type, operands, list(node.attributes.values()), name=name)]
    for number, made in enumerate(nodes):
        made.outputs[0].name = f"{node.outputs[0].name}__whole_{number}"
    return nodes


def _product(gemm: ir.Node, whole: ir.Value, name: str) -> list[ir.Node]:
    """A Gemm as MatMul and Add, which take more axes."""
    weight, bias, nodes = gemm.inputs[1], gemm.inputs[2] if len(gemm.inputs) > 2 else None, list[ir.Node]()
    if gemm.attributes.get_int("transB", 0):
        nodes.append(ir.Node("", "Transpose", [weight], [ir.AttrInt64s("perm", [1, 0])], name=f"{name}_weight"))
        weight = nodes[0].outputs[0]
    nodes.append(ir.Node("", "MatMul", [whole, weight], name=name))
    if bias is not None:
        nodes.append(ir.Node("", "Add", [nodes[-1].outputs[0], bias], name=f"{name}_bias"))
    return nodes
