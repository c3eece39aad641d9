"""Let elementwise operators, reductions and others between a change of the layout and its inverse work in that of both sides.

Converters from TensorFlow write a Transpose on both sides of an operator: images have their channels last there, and first in
ONNX. torch's transformers may have the length first. Others add axes of size 1 and remove them again. Patterns have neither in a
formula. Values stay what they are, at another place; a kernel may round the last elements of a row, and sums, differently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.closure import closed
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.nested import graph_around
from onnx_subgraph.model.shapes import DECLARED
from onnx_subgraph.model.surgery import remove, replace, sweep
from onnx_subgraph.operators.elementwise import is_elementwise
from onnx_subgraph.simplification.axis_orders import Layout, layout_of, named_axes

_MOST = 256
"""The most operators between the changes of the layout."""
_LARGEST = 1 << 20
"""The most bytes of a constant that is stored in another layout."""
_ALONG = ("Softmax", "LogSoftmax")
"""Operators that work along one axis since opset 13, and are fastest along the last one."""
_NORMALIZING = ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
"""Operators that work along the last axis, with a scale and an addend of this axis alone."""


def move_across(constants: Constants, node: ir.Node) -> int:
    """Move elementwise operators from in front of this node to behind it, if their operands then need no such node either.

    All other readers of theirs must change the layout in the same way. What is known stays: its elements may have been computed.
    Returns how many such nodes were removed.
    """
    layout = layout_of(constants, node)
    source = node.inputs[0]
    if layout is None or source is None or constants.is_constant(source):
        return 0
    region = _Region(constants, node, layout)
    return region.move() if region.is_closed(source) else 0


@dataclass(slots=True)
class _Region:
    """The elementwise operators and others (`_is_inside`) that depend on one another between the changes of the layout.

    values: their results. moved: operator and index of an operand → the value of the other layout in its place.
    exits: the nodes that change the layout after them. early: nodes that change the layout of operands → the operand's producer.
    """

    constants: Constants
    node: ir.Node
    layout: Layout
    values: dict[ir.Value, None] = field(default_factory=dict)
    moved: dict[tuple[ir.Node, int], ir.Value | np.ndarray] = field(default_factory=dict)
    exits: dict[ir.Node, None] = field(default_factory=dict)
    early: dict[ir.Node, ir.Node] = field(default_factory=dict)

    def is_closed(self, source: ir.Value) -> bool:
        """Find the region. Returns whether all of it can have the other layout, and whether nothing else reads it."""
        if not closed(source, self._beside, self.values, _MOST):
            return False
        outputs = Counter(node.inputs[0] for node in self.exits if node.outputs[0].is_graph_output())
        return all(count == 1 for count in outputs.values())

    def move(self) -> int:
        """Compute the region in the other layout. Returns the number of nodes that this removes."""
        unread = []
        makers = [made for value in self.values if (made := value.producer()) is not None]
        axes = {made: self._reduced(made) for made in makers if "axes" in made.attributes}  # by the shapes as they are now
        for node, producer in self.early.items():
            graph = graph_around(node)
            graph.remove(node)
            graph.insert_after(producer, node)
        for (node, index), found in self.moved.items():
            operand = node.inputs[index]
            assert operand is not None
            node.replace_input_with(index, found if isinstance(found, ir.Value) else _stored(node, index, found))
            unread.append(operand)
        for value in self.values:
            made = value.producer()
            assert value.shape is not None and made is not None
            if self._is_along_last(made):
                made.attributes["axis"] = ir.AttrInt64("axis", -1)
            elif (there := axes.get(made)) is not None:
                made.attributes["axes"] = ir.AttrInt64s("axes", there)
            value.shape = ir.Shape(self.layout.of(value.shape.dims, 1))
            value.meta.pop(DECLARED, None)
        for node in self.exits:
            source, result = node.inputs[0], node.outputs[0]
            assert source is not None
            if result.is_graph_output():
                replace(result, source)
            else:
                result.replace_all_uses_with(source)
            remove(node)
        sweep(unread)
        return len(self.exits)

    def _beside(self, value: ir.Value) -> list[ir.Value] | None:
        """The other results that have the other layout if `value` has it; None if it can't."""
        producer, shape = value.producer(), value.shape
        if producer is None or shape is None or value.is_graph_output() or not self._is_inside(producer):
            return None
        if not self.layout.admits(shape.dims):
            return None
        found = self._operands(producer)
        if found is None:
            return None
        for reader, index in value.uses():
            if self._is_inside(reader):
                found += reader.outputs
            elif index == 0 and self._leaves(reader, shape):
                self.exits[reader] = None
            else:
                return None
        return found

    def _is_inside(self, node: ir.Node) -> bool:
        is_pad = node.op_type == "Pad" and not node.domain and len(node.inputs) in (2, 3)  # with pads for all axes, as an input
        works_in_both = is_pad or is_elementwise(node.op_type, node.domain) or self._is_along_last(node) or self._is_of_rows(node)
        can_move = works_in_both or self._reduced(node) is not None
        return node.graph is self.node.graph and can_move and len(node.outputs) == 1

    def _reduced(self, node: ir.Node) -> list[int] | None:
        """The axes of a reduction in the other layout; None for other nodes, and where they are not the last ones there.

        A kernel is fastest along the last axes. LayerNorm reduces the channels, which are last before they move.
        """
        source = next(iter(node.inputs), None)
        if not node.op_type.startswith("Reduce") or node.domain or source is None or source.shape is None:
            return None
        if len(source.shape) != self.layout.rank:
            return None
        order, axes = self.layout.order, named_axes(self.constants, node, self.layout.rank)
        if not axes or not axes <= set(order):
            return None
        there = sorted(order.index(axis) for axis in axes)
        return there if there == list(range(len(order) - len(there), len(order))) else None

    def _is_along_last(self, node: ir.Node) -> bool:
        """Whether a node is an operator of `_ALONG`, or normalizes the last axis, which is the last one of the other layout."""
        axis, is_norm = node.attributes.get("axis"), _is_normalization(node)
        if not (is_norm or node.op_type in _ALONG) or node.domain or (axis is not None and axis.is_ref()):
            return False
        along, last = (-1 if axis is None else axis.as_int()) % self.layout.rank, self.layout.rank - 1
        return self.layout.order[-1:] == (along,) and (along == last if is_norm else self.constants.opset(node) >= 13)

    def _is_of_rows(self, node: ir.Node) -> bool:
        """Whether a node multiplies each row by the same known matrix, and both layouts have the same rows in another order."""
        if node.op_type != "MatMul" or node.domain or len(node.inputs) != 2:
            return False
        matrix, (order, rank) = node.inputs[1], (self.layout.order, self.layout.rank)
        if matrix is None or matrix.shape is None or len(matrix.shape) != 2 or not self.constants.is_constant(matrix):
            return False
        return len(order) == rank > 2 and order[-1] == rank - 1

    def _leaves(self, node: ir.Node, shape: ir.Shape) -> bool:
        """Whether a node changes the layout in the same way."""
        if node is self.node:
            return True
        layout = layout_of(self.constants, node) if node.graph is self.node.graph else None
        if layout is None or layout.rank != self.layout.rank or len(layout.order) != len(self.layout.order):
            return False
        return all(
            mine == other or all(axis is None or shape[axis] == 1 for axis in (mine, other))
            for mine, other in zip(self.layout.order, layout.order, strict=True)
        )

    def _operands(self, node: ir.Node) -> list[ir.Value] | None:
        """The operands of an elementwise operator that others compute; None if one has no other layout, or none has all axes."""
        found: list[ir.Value] = []
        constants: dict[int, np.ndarray] = {}
        whole = False
        for index, operand in enumerate(node.inputs[:1] if node.op_type == "CastLike" else node.inputs):
            if operand is None:
                continue
            if operand.shape is None:
                return None
            if index and (axes := self._reduced(node)) is not None:
                self.moved[node, index] = np.array(axes, np.int64)
                continue
            if self._is_same_everywhere(operand.shape) or (index and (_is_normalization(node) or self._is_of_rows(node))):
                continue
            producer = operand.producer()
            if index == 1 and node.op_type == "Pad":
                if (pads := self._pads(operand)) is None:
                    return None
                self.moved[node, index] = pads
            elif self.constants.is_constant(operand):
                if (array := self._constant(operand)) is None:
                    return None
                constants[index] = array
            elif producer is not None and self._is_inside(producer):
                found.append(operand)
                whole = True
            elif producer is not None and (before := self._before(producer) or self._beside_it(producer, operand)) is not None:
                self.moved[node, index] = before
                whole = True
            else:
                return None
        for index, array in constants.items():
            operand = node.inputs[index]
            shape = None if operand is None else operand.shape
            gives_axes = not whole and shape is not None and len(shape) == self.layout.rank
            self.moved[node, index] = array if gives_axes else _without_leading_ones(array)
            whole |= gives_axes
        return found if whole else None

    def _is_same_everywhere(self, shape: ir.Shape) -> bool:
        """Whether a value has one element, and not more axes than the others in either layout."""
        return len(shape) < min(self.layout.rank + 1, len(self.layout.order) + 1) and all(dim == 1 for dim in shape)

    def _before(self, node: ir.Node) -> ir.Value | None:
        """The operand of a node that changes the layout, if it has the other layout; None for other nodes."""
        source, earlier = next(iter(node.inputs), None), layout_of(self.constants, node)
        return source if source is not None and earlier is not None and self.layout.undoes(earlier) else None

    def _beside_it(self, producer: ir.Node, operand: ir.Value) -> ir.Value | None:
        """An operand in the other layout, where a node beside the region changes its layout in the same way."""
        shape = operand.shape
        if shape is None or not self.layout.admits(shape.dims):
            return None
        for reader, index in operand.uses():
            if index or reader.graph is not producer.graph or not self._leaves(reader, shape):
                continue
            if all(other is None or other.producer() is None for other in reader.inputs[1:]):  # it can stand behind the producer
                self.early[reader] = producer
                return reader.outputs[0]
        return None

    def _pads(self, value: ir.Value) -> np.ndarray | None:
        """The pads of a Pad in the other layout; None where they are not known, or pad an axis that it does not have."""
        array = self.constants.array(value)
        if array is None or array.size != 2 * self.layout.rank or array.reshape(2, -1)[:, self.layout.dropped].any():
            return None
        return np.array([self.layout.of(side, 0) for side in array.reshape(2, -1).tolist()], array.dtype).reshape(-1)

    def _constant(self, value: ir.Value) -> np.ndarray | None:
        """The elements of a constant in the other layout."""
        array = self.constants.array(value)
        if array is None or array.nbytes > _LARGEST or array.ndim > self.layout.rank:
            return None
        whole = array.reshape((1,) * (self.layout.rank - array.ndim) + array.shape)
        if not self.layout.admits(whole.shape):
            return None
        array = whole.squeeze(self.layout.dropped).transpose(_ranks([axis for axis in self.layout.order if axis is not None]))
        return array.reshape(self.layout.of(whole.shape, 1))


def _is_normalization(node: ir.Node) -> bool:
    """Whether a node is an operator of `_NORMALIZING` whose other operands have one axis."""
    others = [value for value in node.inputs[1:] if value is not None]
    is_flat = all(value.shape is not None and len(value.shape) == 1 for value in others)
    return node.op_type in _NORMALIZING and not node.domain and is_flat


def _without_leading_ones(array: np.ndarray) -> np.ndarray:
    """The same elements without the leading axes of size 1, but with one axis or more."""
    first = next((axis for axis, size in enumerate(array.shape) if size != 1), array.ndim - 1)
    return array.reshape(array.shape[first:])


def _ranks(axes: Iterable[int]) -> list[int]:
    """For each axis, how many of the others come before it."""
    order = sorted(given := list(axes))
    return [order.index(axis) for axis in given]


def _stored(node: ir.Node, index: int, array: np.ndarray) -> ir.Value:
    """A Constant in front of a node, for an operand of its."""
    operand = node.inputs[index]
    assert operand is not None
    tensor = ir.tensor(np.asarray(array, order="C"), dtype=operand.dtype)  # `ascontiguousarray` adds an axis to none
    made = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)])
    value = made.outputs[0]
    value.name = f"{node.outputs[0].name}__operand_{index}"
    value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(array.shape)
    graph_around(node).insert_before(node, made)
    return value
