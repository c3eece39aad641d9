"""Decide whether a Loop makes one step for each row of a sequence.

A Loop ends when its trip count is reached, or after the first step whose condition is false. A condition is a conjunction of
comparisons of a step's number with a limit. The number of steps is the length of the sequence if no limit is below the length
and one is equal to it.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.dimension_names import Dim
from onnx_subgraph.model.shapes import SHAPE_DATA, same_dim
from onnx_subgraph.rewriting.step import COUNTING, Applied, Next, Number, Step, Symbol, Term

_ENDLESS = 2**31 - 1
"""A limit of at least this means no limit."""
_Limit = tuple[Term | None, int]
"""The most steps, as a term and what is added to it."""


def makes_all_steps(loop: ir.Node, step: Step, constants: Constants, length: Dim | None) -> bool:
    """Whether a Loop makes as many steps as the sequence has rows. step: the terms of its body. length: of the sequence."""
    trips, going_on = loop.inputs[:2]
    on = loop.attributes["body"].as_graph().outputs[0]
    before, later = _limits_before(going_on, step, constants), _limits_of(step.term(on))
    if length is None or length == 0 or before is None or later is None:
        return False
    counted: list[_Limit] = [] if trips is None else [(step.term(trips), 0)]
    at_start, at_end = ([_excess(limit, length) for limit in (*counted, *limits)] for limits in (before, later))
    if any(excess is None or excess < 0 for excess in (*at_start, *at_end)):
        return False
    return 0 in at_end and (isinstance(length, int) or 0 in at_start)  # without a row, the Loop must not start


def _limits_of(on: Term | None) -> list[_Limit] | None:
    """The limits that a step's condition sets; None for another form of condition."""
    if isinstance(on, Number):
        return [] if on.array.all() else None
    if not isinstance(on, Applied) or on.operator not in ("And", "Less"):
        return None
    left, right = on.operands
    if on.operator == "And":
        parts = [_limits_of(left), _limits_of(right)]
        return None if None in parts else [limit for part in parts for limit in part or ()]
    if isinstance(left, Next):
        return [(right, 0)]
    return [(right, 1)] if isinstance(left, Symbol) and left.kind == "step" else None


def _limits_before(on: ir.Value | None, step: Step, constants: Constants) -> list[_Limit] | None:
    """The limits that the condition before the first step sets, each compared with 0; None for another form of condition."""
    if on is None or constants.scalar(on) is True:
        return []
    node = on.producer()
    if node is None or node.domain or node.op_type not in ("And", "Less"):
        return None
    left, right = node.inputs
    if node.op_type == "And":
        parts = [_limits_before(part, step, constants) for part in (left, right)]
        return None if None in parts else [limit for part in parts for limit in part or ()]
    if left is None or right is None or constants.scalar(left) != 0:
        return None
    return [(step.term(right), 0)]


def _excess(limit: _Limit, length: Dim) -> float | None:
    """How many steps a limit allows besides those of the sequence; None where this is not known."""
    term, more = limit
    if isinstance(term, Number) and term.array.size == 1:
        number = float(term.array.item())
        if number >= _ENDLESS:
            return number
        return number + more - length if isinstance(length, int) and number.is_integer() else None
    if not isinstance(term, Symbol) or term.kind != "length":
        return None
    counted = _uncast(term.value)
    data = None if counted is None else counted.meta.get(SHAPE_DATA)
    return more if data is not None and len(data) == 1 and same_dim(data[0], length) else None


def _uncast(value: ir.Value | None) -> ir.Value | None:
    """The value behind the Casts of a step count; None if a Cast on the way may change it, such as one to int8."""
    while value is not None and value.dtype in COUNTING:
        producer = value.producer()
        if producer is None or producer.domain or producer.op_type != "Cast":
            return value
        value = producer.inputs[0]
    return None
