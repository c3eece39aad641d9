"""Nodes that pass an input on unchanged: Identity, inference Dropout, a Reshape to the same shape, a product with one.

So do nodes that join a mask that hides nothing, and a Concat with operands without elements.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import Constants
from onnx_subgraph.model.shapes import same_shape
from onnx_subgraph.model.uniform import element, is_never_minus_zero
from onnx_subgraph.operators.elementwise import REARRANGING

_STEPS = 4
"""Nodes between a mask that is added and Softmax: a second mask, and Reshapes that join heads with the batch."""
_KEEPING_SIGN = REARRANGING | {"Add"}
"""Operators whose results differ for -0 and 0 only in the sign of zeros."""


def passed_on(constants: Constants, value: ir.Value) -> ir.Value | None:
    """The input that the node of `value` passes on unchanged, or None."""
    node = value.producer()
    if node is None or node.domain or not node.inputs:
        return None
    if node.op_type in _NEUTRAL and len(node.inputs) == 2:
        return _without_neutral(constants, node, value)
    if node.op_type in _OF_MASKS and len(node.inputs) == 2:
        return _without_mask(constants, node, value)
    if node.op_type == "Concat":
        return _without_empty(node, value)
    rule, source = TRANSPARENT.get(node.op_type), node.inputs[0]
    if rule is None or source is None or value is not node.outputs[0] or value is source:
        return None
    return source if rule(constants, node, source, value) else None


def _without_neutral(constants: Constants, node: ir.Node, value: ir.Value) -> ir.Value | None:
    """The operand that an operator of `_NEUTRAL` gives, bit by bit, because the other one is its number."""
    first, second = node.inputs
    for source, other in ((first, second), (second, first)) if node.op_type in _COMMUTATIVE else ((first, second),):
        if source is None or other is None or source.dtype != value.dtype or not _is_stored_scalar(other):
            continue
        if constants.scalar(other) == _NEUTRAL[node.op_type] and (_adds_no_axis(other, source) or same_shape(source, value)):
            return source
    return None


def _without_mask(constants: Constants, node: ir.Node, value: ir.Value) -> ir.Value | None:
    """The other operand of an operator of `_OF_MASKS`, if one hides nothing and gives the result no axis that is needed."""
    first, second = node.inputs
    is_signless = _is_read_without_sign(value)
    for source, other in ((first, second), (second, first)):
        if source is None or source is other or source.dtype != value.dtype:
            continue
        if same_shape(source, value) or (node.op_type != "Add" and _only_chooses(value)):
            if node.op_type == "Add" and not is_signless and not is_never_minus_zero(constants, source):
                continue
            number = element(constants, other)
            if number is not None and number == _OF_MASKS[node.op_type]:
                return source
    return None


def _is_read_without_sign(value: ir.Value, steps: int = _STEPS) -> bool:
    """Whether it makes no difference to any output whether a zero in a value is -0, through layouts and masks that are added."""
    if value.is_graph_output() or not steps:
        return False
    for use in value.uses():
        node = use.node
        is_moved = (
            node.op_type in _KEEPING_SIGN
            and not node.domain
            and use.idx < 2
            and _is_read_without_sign(node.outputs[0], steps - 1)
        )
        if node.op_type not in _SIGNLESS and not is_moved:
            return False
    return True


def _without_empty(node: ir.Node, value: ir.Value) -> ir.Value | None:
    """The one operand of a Concat that may have elements, if the size of each other one along the axis is 0."""
    axis = node.attributes.get("axis")
    if len(node.inputs) == 1 or axis is None or axis.is_ref():
        return node.inputs[0] if len(node.inputs) == 1 else None
    full = [one for one in node.inputs if one is not None and not _is_empty(one, axis.as_int())]
    return full[0] if len(full) == 1 else None


def _is_empty(value: ir.Value, axis: int) -> bool:
    return value.shape is not None and -len(value.shape) <= axis < len(value.shape) and value.shape[axis] == 0


def _only_chooses(value: ir.Value) -> bool:
    """Whether a value is only the condition of Wheres whose results have the shape of one of their other operands."""
    if value.is_graph_output():
        return False
    for use in value.uses():
        if use.node.op_type != "Where" or use.idx or not any(same_shape(one, use.node.outputs[0]) for one in use.node.inputs[1:]):
            return False
    return True


def _adds_no_axis(one: ir.Value, source: ir.Value) -> bool:
    """Whether a value of one element leaves the shape of `source` as it is, whatever the sizes are."""
    rank = 0 if one.shape is None else len(one.shape)
    return not rank or (source.shape is not None and rank <= len(source.shape))


def _is_stored_scalar(value: ir.Value) -> bool:
    """Whether a value is an initializer, or a Constant, of one element."""
    node = value.producer()
    stored = value.is_initializer() if node is None else node.op_type == "Constant" and not node.domain
    return stored and value.shape is not None and all(dim == 1 for dim in value.shape)


def _always(constants: Constants, node: ir.Node, source: ir.Value, value: ir.Value) -> bool:
    return True


def _is_inference_dropout(constants: Constants, node: ir.Node, source: ir.Value, value: ir.Value) -> bool:
    opset = constants.opset(node)
    if opset < 7:
        is_test = node.attributes.get("is_test")
        return is_test is not None and not is_test.is_ref() and is_test.as_int() != 0
    if opset < 12 or len(node.inputs) < 3 or node.inputs[2] is None:
        return True
    return constants.scalar(node.inputs[2]) == False  # noqa: E712 - None, an unknown mode, is not False.


def _is_same_type(constants: Constants, node: ir.Node, source: ir.Value, value: ir.Value) -> bool:
    return source.dtype is not None and source.dtype == value.dtype


def _is_same_order(constants: Constants, node: ir.Node, source: ir.Value, value: ir.Value) -> bool:
    permutation = node.attributes.get("perm")
    if permutation is None:
        return source.shape is not None and len(source.shape) <= 1
    if permutation.is_ref():
        return False
    axes = list(permutation.as_ints())
    return axes == list(range(len(axes)))


def _is_same_shape(constants: Constants, node: ir.Node, source: ir.Value, value: ir.Value) -> bool:
    return same_shape(source, value)


def _is_whole_slice(constants: Constants, node: ir.Node, source: ir.Value, value: ir.Value) -> bool:
    if not same_shape(source, value):
        return False
    if len(node.inputs) < 5 or node.inputs[4] is None:
        return True
    steps = constants.array(node.inputs[4])
    return steps is not None and bool((steps == 1).all())


def _pads_nothing(constants: Constants, node: ir.Node, source: ir.Value, value: ir.Value) -> bool:
    if len(node.inputs) < 2 or node.inputs[1] is None:
        given = node.attributes.get("pads")
        return given is not None and not given.is_ref() and not any(given.as_ints())
    pads = constants.array(node.inputs[1])
    return pads is not None and not pads.any()


def _resizes_nothing(constants: Constants, node: ir.Node, source: ir.Value, value: ir.Value) -> bool:
    if not same_shape(source, value) or node.attributes.get_string("coordinate_transformation_mode", "") == "tf_crop_and_resize":
        return False
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        return True
    factors = None if len(node.inputs) < 3 or node.inputs[2] is None else constants.array(node.inputs[2])
    return factors is not None and bool((factors == 1).all())


def _is_only_input(constants: Constants, node: ir.Node, source: ir.Value, value: ir.Value) -> bool:
    return len(node.inputs) == 1


def _is_one_part(constants: Constants, node: ir.Node, source: ir.Value, value: ir.Value) -> bool:
    has_sizes = "split" in node.attributes or (len(node.inputs) > 1 and node.inputs[1] is not None)
    return len(node.outputs) == 1 and (not has_sizes or same_shape(source, value))


_Rule = Callable[[Constants, ir.Node, ir.Value, ir.Value], bool]

TRANSPARENT: dict[str, _Rule] = {
    "Identity": _always,
    "Dropout": _is_inference_dropout,
    "Cast": _is_same_type,
    "CastLike": _is_same_type,
    "Transpose": _is_same_order,
    "Slice": _is_whole_slice,
    "Pad": _pads_nothing,
    "Resize": _resizes_nothing,
    "Split": _is_one_part,
    **dict.fromkeys(("Reshape", "Expand", "Squeeze", "Unsqueeze", "Flatten", "Tile"), _is_same_shape),
    **dict.fromkeys(("Sum", "Mean", "Max", "Min"), _is_only_input),
}
"""Operator → whether its node passes the first input on."""
_NEUTRAL = {"Mul": 1, "Div": 1, "Sub": 0, "Max": -np.inf, "Min": np.inf}
"""Operators that pass an operand on, bit by bit, if the other one is this number. A sum with zero is not: it turns -0 into 0."""
_COMMUTATIVE = frozenset(("Mul", "Max", "Min"))
_OF_MASKS = {"And": True, "Or": False, "Equal": True, "Add": 0}
"""Operators that join masks, or a mask and scores, and what an operand is everywhere that hides nothing."""
_SIGNLESS = frozenset(("Softmax", "LogSoftmax", "Exp", "Sigmoid", "IsNaN"))
"""Operators that give the same, bit by bit, for -0 and 0. A sum with zero is left out before them, or if nothing is -0."""
PASSING = frozenset((*TRANSPARENT, *_NEUTRAL, *_OF_MASKS, "Concat"))
"""The operators whose nodes may pass an input on."""
