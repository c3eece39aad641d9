"""Values that are one of two numbers, by a condition, and operators on them, which are such values again.

A mask is 0 where a key counts and -inf or the lowest number elsewhere. What bounds it, or asks whether it is infinite, depends on
the condition alone. T5 has a bias of positions in place of 0, which is far from the bound.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import Constants
from onnx_subgraph.model.folding import fold
from onnx_subgraph.model.follow import Follow
from onnx_subgraph.model.intervals import interval
from onnx_subgraph.model.shapes import same_shape
from onnx_subgraph.model.surgery import constant
from onnx_subgraph.model.uniform import element

_EXACT = frozenset(("Cast", "Clip", "IsInf", "IsNaN", "Max", "Min", "Not", "Where"))
"""Elementwise operators that do not round."""
_CHOSEN = frozenset((ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64))
"""Types for which runtimes have a Where."""

_WITH_WHERE = 9
"""The first opset with Where."""


class Choice(NamedTuple):
    """A value that is `yes` where the condition is true, and `no` elsewhere. The numbers have no axes."""

    condition: ir.Value
    yes: np.ndarray
    no: np.ndarray


def as_where(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """The nodes that give the result of an operator on such values from the condition; [] for other nodes.

    Two constants and a Where, or for a condition the condition itself or its opposite.
    """
    if node.domain or node.op_type not in _EXACT or len(node.outputs) != 1:
        return []
    if node.op_type == "Clip":
        if node.inputs[0] is None or is_within(constants, node.inputs[0], node):
            return []
        if bounded := _bounded(constants, node):
            return bounded
    found, result = choice(constants, node.outputs[0]), node.outputs[0]
    if found is None or found.condition is result or not same_shape(found.condition, result):
        return []
    if _is_plain(constants, node, found.condition):
        return []
    if result.dtype == ir.DataType.BOOL:
        operator = "Identity" if found.yes else "Not"
        return [] if found.yes == found.no else [ir.Node("", operator, [found.condition], name=_name(node))]
    if result.dtype not in _CHOSEN or any(number.dtype != result.dtype.numpy() for number in (found.yes, found.no)):
        return []
    yes, no = constant(found.yes, f"{result.name}__yes"), constant(found.no, f"{result.name}__no")
    return [yes, no, _where(node, found.condition, yes.outputs[0], no.outputs[0])]


def as_chosen(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """The Where that gives `a * c + b * (1 - c)`, for integers and a cast condition c; [] for other nodes.

    tf2onnx writes a choice of integers so. For floats it is another number where one is infinite or NaN.
    """
    if node.op_type != "Add" or node.domain or node.outputs[0].dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        return []
    if constants.opset(node) < _WITH_WHERE:
        return []
    parts = [_kept(constants, value) for value in node.inputs]
    known = [part for part in parts if part is not None]
    if len(known) < 2 or known[0][0].condition is not known[1][0].condition:
        return []
    sides = {bool(one.yes): value for one, value in known}
    return [_where(node, known[0][0].condition, sides[True], sides[False])] if len(sides) == 2 else []


def _kept(constants: Constants, product: ir.Value | None) -> tuple[Choice, ir.Value] | None:
    """The choice between 1 and 0 that is a factor of a product, and the other factor."""
    node = None if product is None else product.producer()
    if node is None or node.domain or node.op_type != "Mul":
        return None
    for factor, other in (node.inputs, reversed(node.inputs)):
        found = None if factor is None else choice(constants, factor)
        if found is None or other is None or not same_shape(found.condition, factor):
            continue
        if sorted((found.yes, found.no)) == [0, 1]:
            return found, other
    return None


def _bounded(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """The Where that gives a Clip of a Where between a number and a value within the bounds."""
    inner = None if node.inputs[0] is None else node.inputs[0].producer()
    if inner is None or inner.domain or inner.op_type != "Where" or inner.inputs[0] is None:
        return []
    for side, other in ((1, 2), (2, 1)):
        value, number = inner.inputs[side], element(constants, inner.inputs[other])
        if value is None or number is None or not is_within(constants, value, node):
            continue
        bounds = [None if v is None else element(constants, v) for v in node.inputs[1:]]
        clipped = _folded(constants, node, [number, *bounds])
        if clipped is not None and clipped.dtype == number.dtype:
            made = constant(clipped, f"{node.outputs[0].name}__bound")
            operands = [value, made.outputs[0]] if side == 1 else [made.outputs[0], value]
            return [made, _where(node, inner.inputs[0], *operands)]
    return []


def is_within(constants: Constants, value: ir.Value, clip: ir.Node) -> bool:
    """Whether every element of a value lies within the bounds of a Clip, so that this changes nothing. NaN stays NaN."""
    found = interval(constants, value, unless_nan=True)
    if found is None or len(clip.inputs) < 2:  # before opset 11 the bounds are attributes
        return False
    least, most = ([*clip.inputs[1:], None])[:2]
    low, high = (None if bound is None else element(constants, bound) for bound in (least, most))
    if (low is None) != (least is None) or (high is None) != (most is None):
        return False
    return bool((low is None or low <= found.least) and (high is None or found.most <= high))


def _where(node: ir.Node, condition: ir.Value, yes: ir.Value, no: ir.Value) -> ir.Node:
    return ir.Node("", "Where", [condition, yes, no], name=_name(node))


def _name(node: ir.Node) -> str:
    return f"{node.name or node.outputs[0].name}_chosen"


def _is_plain(constants: Constants, node: ir.Node, condition: ir.Value) -> bool:
    """Whether a node has no operands but numbers and the condition, maybe negated or cast."""
    return all(v is None or _is_cast(v, condition) or element(constants, v) is not None for v in node.inputs)


def _is_cast(value: ir.Value, condition: ir.Value) -> bool:
    """Whether a value is the condition, its opposite, or a cast of one of them."""
    while value is not condition:
        node = value.producer()
        if node is None or node.op_type not in ("Cast", "Not") or node.inputs[0] is None:
            return False
        value = node.inputs[0]
    return True


def choice(constants: Constants, value: ir.Value | None) -> Choice | None:
    """The condition and the two numbers of a value; None where it is something else, or one number everywhere.

    A condition that is nothing else is a choice by itself.
    """
    return Follow(partial(_found, constants))(value)


def _found(constants: Constants, value: ir.Value, follow: Follow[Choice]) -> Choice | None:
    node = value.producer()
    known = node is not None and not node.domain and node.op_type in _EXACT and len(node.outputs) == 1
    found = _computed(constants, node, follow) if node is not None and known else None
    if found is None and value.dtype == ir.DataType.BOOL and element(constants, value) is None:
        return Choice(value, np.array(True), np.array(False))
    return found


def _computed(constants: Constants, node: ir.Node, follow: Follow[Choice]) -> Choice | None:
    """What an operator gives on choices by one condition, and numbers."""
    operands: list[Choice | np.ndarray | None] = []
    for value in node.inputs:
        number = element(constants, value)
        operands.append(follow(value) if number is None else number)
        if value is not None and operands[-1] is None:
            return None
    choices = [one for one in operands if isinstance(one, Choice)]
    if not choices or any(one.condition is not choices[0].condition for one in choices):
        return None
    yes = _folded(constants, node, [one.yes if isinstance(one, Choice) else one for one in operands])
    no = _folded(constants, node, [one.no if isinstance(one, Choice) else one for one in operands])
    return None if yes is None or no is None else Choice(choices[0].condition, yes, no)


def _folded(constants: Constants, node: ir.Node, operands: list[np.ndarray | None]) -> np.ndarray | None:
    results = fold(node, operands, constants.opset(node))
    return np.asarray(results[0]).reshape(()) if results and isinstance(results[0], np.ndarray | np.generic) else None
