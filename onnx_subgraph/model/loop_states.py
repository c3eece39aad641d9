"""What a Loop carries from step to step, and the sizes that it keeps.

A body's declaration of what is carried is a hint. It begins as an operand of the Loop, and each step may give it another size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from onnx_subgraph.model.dimension_names import Dim
from onnx_subgraph.model.nested import within


@dataclass(frozen=True, slots=True)
class LoopState:
    """A value that a Loop carries. before, after: the value in the body at the start and the end of a step."""

    before: ir.Value
    after: ir.Value

    def changed(self, same: Callable[[Dim, Dim], bool]) -> Iterator[int]:
        """The axes whose size a step may change. same: whether two dimensions are provably equal."""
        before, after = self.before.shape or (), self.after.shape or ()
        return (i for i, dim in enumerate(before) if len(before) != len(after) or not same(dim, after[i]))


def loop_states(model: ir.Model) -> Iterator[LoopState]:
    """What the Loops of a model carry."""
    owners = (model.graph, *(function.graph for function in model.functions.values()))
    for node in (node for owner in owners for graph in within(owner) for node in graph):
        if node.op_type == "Loop" and not node.domain:
            body = node.attributes["body"].as_graph()
            yield from map(LoopState, body.inputs[2:], body.outputs[1:])
