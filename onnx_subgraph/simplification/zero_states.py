"""Leave out initial states of recurrent networks that are zero: an absent state is zero, too.

Exporters write zeros of the batch's size: the size is read, joined with constants, and expanded.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import Constants
from onnx_subgraph.model.nested import within
from onnx_subgraph.model.surgery import sweep
from onnx_subgraph.model.uniform import element

_STATES = {("", "RNN"): (5,), ("", "GRU"): (5,), ("", "LSTM"): (5, 6), ("com.microsoft", "DynamicQuantizeLSTM"): (5, 6)}
"""Domain and operator → the positions of the operands that are initial states."""


def has_states(model: ir.Model) -> bool:
    """Whether an operator has an initial state."""
    return any(_states(node) for graph in within(model.graph) for node in graph)


def leave_out_zero_states(model: ir.Model, constants: Constants) -> int:
    """Remove these operands, and the nodes that only they need. Changes `model`. Returns how many operands were removed."""
    removed = 0
    for graph in within(model.graph):
        for node in [node for node in graph if _states(node)]:
            zero = [index for index in _states(node) if _is_zero(constants, node.inputs[index])]
            for index in zero:
                _leave_out(node, index)
            removed += len(zero)
    return removed


def _leave_out(node: ir.Node, index: int) -> None:
    state = node.inputs[index]
    assert state is not None
    node.replace_input_with(index, None)
    while node.inputs[-1] is None:  # absent operands at the end are not written
        node.resize_inputs(len(node.inputs) - 1)
    sweep([state])


def _states(node: ir.Node) -> list[int]:
    """The positions of the operands of a node that are initial states."""
    positions = _STATES.get((node.domain, node.op_type), ())
    return [index for index in positions if index < len(node.inputs) and node.inputs[index] is not None]


def _is_zero(constants: Constants, value: ir.Value | None) -> bool:
    number = element(constants, value)
    return number is not None and number == 0 and not np.signbit(number)
