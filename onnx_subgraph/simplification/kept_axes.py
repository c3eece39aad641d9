"""Let reductions keep axes that every reader of theirs puts back.

JAX, Flax and torch's second exporter compute a mean and a variance without the axis, and reshape both before they broadcast them.
Patterns have the axis.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_subgraph.model.closure import closed
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import DECLARED, same_dim, same_shape
from onnx_subgraph.operators import is_elementwise
from onnx_subgraph.simplification.axis_orders import named_axes

_MOST = 32
"""The most values between reductions and the nodes that put the axes back."""
_PARTS_OF_SHAPES = 15
"""The first opset in which Shape has a start and an end."""


def keep_axes(constants: Constants, node: ir.Node) -> list[ir.Node]:
    """Let the reductions keep their axes that this Reshape or Unsqueeze puts back, if no reader needs them dropped.

    Only elementwise operators may stand between. A Shape reads the same sizes then, at another place. Returns the nodes that put
    the axes back, which have no effect then; [] if a reader needs the axes dropped.
    """
    source = node.inputs[0]
    if source is None:
        return []
    region = _Region(constants, node, source)
    if not region.is_closed():
        return []
    for reduction in region.reductions:
        reduction.attributes["keepdims"] = ir.AttrInt64("keepdims", 1)
    for reader, part in region.sizes.items():
        for name, number in zip(("start", "end"), part, strict=True):
            reader.attributes[name] = ir.AttrInt64(name, number)
    for value in region.values:
        value.shape = ir.Shape(node.outputs[0].shape or ())  # one for each: shapes can be changed in place
        value.meta.pop(DECLARED, None)
    return list(region.exits)


@dataclass(slots=True)
class _Region:
    """The values without the axes that depend on one another, from the reductions to the nodes that put the axes back.

    sizes: a Shape of one of them → the part of the shape with the axes that has its sizes.
    """

    constants: Constants
    node: ir.Node
    source: ir.Value
    values: dict[ir.Value, None] = field(default_factory=dict)
    reductions: list[ir.Node] = field(default_factory=list)
    exits: dict[ir.Node, None] = field(default_factory=dict)
    sizes: dict[ir.Node, tuple[int, int]] = field(default_factory=dict)

    def is_closed(self) -> bool:
        """Find the region. Returns whether all of it can keep the axes."""
        return closed(self.source, self._beside, self.values, _MOST)

    def _beside(self, value: ir.Value) -> list[ir.Value] | None:
        """The other values that must keep the axes if `value` does; None if it can't."""
        producer = value.producer()
        if producer is None or producer.graph is not self.node.graph or len(producer.outputs) != 1 or value.is_graph_output():
            return None
        found = self._operands(producer)
        if found is None:
            return None
        for reader, index in value.uses():
            if reader.graph is not self.node.graph:
                return None
            if index == 0 and reader.op_type in ("Reshape", "Unsqueeze") and not reader.domain:
                if not same_shape(reader.outputs[0], self.node.outputs[0]):
                    return None
                self.exits[reader] = None
            elif is_elementwise(reader.op_type, reader.domain):
                found += reader.outputs
            elif (part := self._part(reader, value)) is not None:
                self.sizes[reader] = part
            else:
                return None
        return found

    def _part(self, node: ir.Node, value: ir.Value) -> tuple[int, int] | None:
        """The start and end at which a Shape of a value gives the same sizes when it has the axes; None where it can't."""
        if node.op_type != "Shape" or node.domain or value.shape is None or self.constants.opset(node) < _PARTS_OF_SHAPES:
            return None
        given = [node.attributes.get(name) for name in ("start", "end")]
        if any(attribute is not None and attribute.is_ref() for attribute in given):
            return None
        first, last = (None if attribute is None else attribute.as_int() for attribute in given)
        sizes, kept = list(value.shape)[first:last], list(self.node.outputs[0].shape or ())
        starts = range(len(kept) - len(sizes) + 1)
        return next(((at, at + len(sizes)) for at in starts if all(map(same_dim, sizes, kept[at:]))), None)

    def _operands(self, node: ir.Node) -> list[ir.Value] | None:
        """The operands of an elementwise operator without its numbers; [] for a reduction of these axes; None for other nodes.

        An operator on numbers alone has no reduction before it that could keep the axes.
        """
        if node.op_type.startswith("Reduce") and not node.domain:
            kept = _kept(self.constants, node)
            if kept is None or not same_shape(kept, self.node.outputs[0]):
                return None
            self.reductions.append(node)
            return []
        if not is_elementwise(node.op_type, node.domain):
            return None
        operands = [value for value in node.inputs if value is not None and self.constants.scalar(value) is None]
        is_alike = all(same_shape(value, self.source) for value in (*operands, *node.outputs))
        return operands if operands and is_alike else None


def _kept(constants: Constants, reduction: ir.Node) -> ir.Shape | None:
    """The shape of a reduction if it kept its axes; None where it does, or its axes are not known."""
    operand, keeps = reduction.inputs[0], reduction.attributes.get("keepdims")
    if operand is None or operand.shape is None or keeps is None or keeps.is_ref() or keeps.as_int() or not len(operand.shape):
        return None
    gone = named_axes(constants, reduction, len(operand.shape))
    return ir.Shape(1 if axis in gone else dim for axis, dim in enumerate(operand.shape)) if gone else None
