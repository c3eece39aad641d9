"""Compute only the row that is read.

A classifier reads the first token of the last layer, and a generator the last one. The rest of the layer is computed for
nothing: its products need only the row of this token, except for keys and values, which all tokens give. The selection moves
to the operands, through operators whose rows do not depend on each other. The elements are the same; a kernel may round those
of one row differently from those of many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.asked import small
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.nested import graph_around
from onnx_subgraph.model.surgery import constant, remove, replace, sliced, squeeze
from onnx_subgraph.simplification.row_operands import Places, row_operands

_PRODUCTS = frozenset({"MatMul", "Gemm", "Attention", "FusedMatMul", "FusedGemm", "MatMulNBits", "MultiHeadAttention"})
"""The operators for which it pays to compute one row."""

_FROM_THE_END = 11
"""The first opset in which Gather counts negative indices from the end."""


def reads_one_row(model: ir.Model, constants: Constants) -> bool:
    """Whether one row is read of some value, and computing only this one would make a product smaller."""
    return any(_Region(constants, value, selections[0]).pays() for value, selections in _selected(model.graph, constants))


def narrow(model: ir.Model, constants: Constants) -> int:
    """Compute one row of the values of which one is read. Changes `model`. Returns how many nodes were replaced.

    Only the main graph. Shapes must follow from the inputs (`proved_only`).
    """
    replaced = 0
    for value, selections in list(_selected(model.graph, constants)):
        if value.producer() is None or any(one.node.graph is None for one in selections):  # replaced with another value
            continue
        region = _Region(constants, value, selections[0])
        if region.pays():
            region.rewrite(selections)
            replaced += len(region.nodes)
    return replaced


@dataclass(frozen=True, slots=True)
class _Selection:
    """A node that takes one row of a value. index: from the end, if negative. drops: whether the axis is gone in the result."""

    node: ir.Node
    axis: int
    index: int
    drops: bool


def _selected(graph: ir.Graph, constants: Constants) -> Iterator[tuple[ir.Value, list[_Selection]]]:
    """The results of nodes of which one row is read, and nothing else, with all nodes that read it."""
    for node in graph:
        first = _selection(constants, node)
        if first is None:
            continue
        value = node.inputs[0]
        assert value is not None
        uses, selections = tuple(value.uses()), list[_Selection]()
        for use in uses if uses[0].node is node else ():
            one = _selection(constants, use.node) if use.idx == 0 else None
            if one is None or (one.axis, one.index) != (first.axis, first.index):
                break  # a sequence may have many readers, each of another row
            selections.append(one)
        if len(selections) == len(uses):
            yield value, selections


def _selection(constants: Constants, node: ir.Node) -> _Selection | None:
    if node.domain or node.op_type not in ("Gather", "Slice") or not node.inputs or node.inputs[0] is None:
        return None
    if constants.opset(node) < _FROM_THE_END:
        return None
    value = node.inputs[0]
    if value.producer() is None or value.shape is None or value.dtype is None or not value.dtype.is_floating_point():
        return None
    found = _gathered(constants, node) if node.op_type == "Gather" else _sliced(constants, node)
    if found is None or found.axis >= len(value.shape) or value.shape[found.axis] == 1:
        return None
    return found


def _gathered(constants: Constants, node: ir.Node) -> _Selection | None:
    value, indices = node.inputs
    assert value is not None and value.shape is not None
    index = None if indices is None else small(constants, indices)
    if index is None or index.ndim > 1 or index.size != 1:
        return None
    return _Selection(node, node.attributes.get_int("axis", 0) % len(value.shape), int(index.reshape(())), not index.ndim)


def _sliced(constants: Constants, node: ir.Node) -> _Selection | None:
    numbers = [None if value is None else small(constants, value) for value in node.inputs[1:]]
    if len(numbers) < 3 or any(number is None or number.size != 1 for number in numbers):
        return None
    value = node.inputs[0]
    assert value is not None and value.shape is not None
    start, end, axis, *steps = (int(number.reshape(())) for number in numbers if number is not None)
    if steps not in ([], [1]) or not ((end - start == 1 and end) or (start == -1 and end >= np.iinfo(np.int32).max)):
        return None
    if not -len(value.shape) <= axis < len(value.shape):
        return None
    axis %= len(value.shape)
    size = value.shape[axis]
    if start not in (0, -1) and not (isinstance(size, int) and -size <= start < size):
        return None  # the row need not be there
    return _Selection(node, axis, start, drops=False)


@dataclass(slots=True)
class _Region:
    """The nodes that need to compute only one row. first: one of the nodes that read it.

    axes: value → the axis along which one row of it is read. claims: value → by how many uses. nodes: node → its operands of
    which it needs one row.
    """

    constants: Constants
    value: ir.Value
    first: _Selection
    axes: dict[ir.Value, int] = field(default_factory=dict)
    claims: Counter[ir.Value] = field(default_factory=Counter)
    nodes: dict[ir.Node, Places] = field(default_factory=dict)

    def pays(self) -> bool:
        """Find the region. Returns whether a product becomes smaller."""
        self.claims[self.value] = len(self.value.uses())
        self.axes[self.value] = self.first.axis
        waiting = [self.value]
        while waiting:
            value = waiting.pop()
            node, axis = value.producer(), self.axes[value]
            if node is None or not self._is_inside(node, axis):
                continue  # something needs other rows, perhaps of another result
            places = row_operands(self.constants, node, axis)
            if places is None:
                continue
            self.nodes[node] = places
            for index, at in places:
                operand = node.inputs[index]
                assert operand is not None
                self.claims[operand] += self.axes.setdefault(operand, at) == at
                if self.claims[operand] == len(operand.uses()):
                    waiting.append(operand)
        return any(node.op_type in _PRODUCTS for node in self.nodes)

    def _is_inside(self, node: ir.Node, axis: int) -> bool:
        """Whether only one row of each result of a node is read, along the same axis."""
        if node.graph is not self.first.node.graph or any(value.is_graph_output() for value in node.outputs):
            return False
        return all(self.claims[v] == len(v.uses()) and (not v.uses() or self.axes[v] == axis) for v in node.outputs)

    def rewrite(self, selections: Sequence[_Selection]) -> None:
        """Compute one row of the values, and let the nodes that read it read the whole result."""
        made: dict[tuple[ir.Value, int], ir.Value] = {}
        graph = graph_around(self.first.node)
        for node in [node for node in graph if node in self.nodes]:
            nodes = self._narrowed(node, made)
            _insert(node, nodes)
            for result, row in zip(node.outputs, nodes[-1].outputs, strict=True):
                axis = self.axes.get(result, 0)
                row.name, row.type = f"{result.name}__row", result.type
                row.shape = None if result.shape is None else ir.Shape([*result.shape[:axis], 1, *result.shape[axis + 1 :]])
                made[result, axis] = row
        row = made[self.value, self.first.axis]
        for one in selections:
            node, name = one.node, str(one.node.name or one.node.outputs[0].name)
            opset = self.constants.opset(node)
            nodes = squeeze(row, [one.axis], opset, name) if one.drops else [ir.Node("", "Identity", [row], name=f"{name}_row")]
            _insert(node, nodes)
            replace(node.outputs[0], nodes[-1].outputs[0])
        for one in selections:
            remove(one.node)

    def _narrowed(self, node: ir.Node, made: dict[tuple[ir.Value, int], ir.Value]) -> list[ir.Node]:
        """The node for one row, behind those that take the row of operands outside. made: the rows so far."""
        inputs, nodes = list(node.inputs), list[ir.Node]()
        for index, axis in self.nodes[node]:
            operand = inputs[index]
            assert operand is not None
            if (operand, axis) not in made:
                nodes += self._row(operand, axis)
                made[operand, axis] = nodes[-1].outputs[0]
            inputs[index] = made[operand, axis]
        if node.op_type == "Reshape":
            nodes += self._target(node)
            inputs[1] = nodes[-1].outputs[0]
        name = f"{node.name or node.outputs[0].name}_row"
        attributes, number = list(node.attributes.values()), len(node.outputs)
        return [*nodes, ir.Node(node.domain, node.op_type, inputs, attributes, num_outputs=number, name=name)]

    def _row(self, value: ir.Value, axis: int) -> list[ir.Node]:
        """The node that takes the row of a value, behind its index. A Gather, whose result has one row in every run."""
        name = f"{value.name}_row_{axis}"
        index = constant(np.array([self.first.index], np.int64), f"{name}_index")
        taken = ir.Node("", "Gather", [value, index.outputs[0]], [ir.AttrInt64("axis", axis)], name=name)
        taken.outputs[0].name = f"{value.name}__row_{axis}"
        return [index, taken]

    def _target(self, node: ir.Node) -> list[ir.Node]:
        """The shape for a Reshape of one row."""
        result, shape = node.outputs[0], node.inputs[1]
        assert shape is not None and result.shape is not None
        axis, rank, name = self.axes[result], len(result.shape), f"{result.name}__row_shape"
        array = small(self.constants, shape)
        if array is not None:
            return [constant(np.array([*array[:axis], 1, *array[axis + 1 :]], np.int64), name)]
        one = constant(np.array([1], np.int64), f"{name}_one")
        before = sliced(shape, 0, axis, 0, f"{name}_before") if axis else []
        behind = sliced(shape, axis + 1, rank, 0, f"{name}_behind") if axis + 1 < rank else []
        parts = [nodes[-1].outputs[0] for nodes in (before, [one], behind) if nodes]
        joined = ir.Node("", "Concat", parts, [ir.AttrInt64("axis", 0)], name=name)
        joined.outputs[0].name = name
        return [*before, one, *behind, joined]


def _insert(node: ir.Node, nodes: list[ir.Node]) -> None:
    """Insert nodes before the one that they stand for."""
    graph_around(node).insert_before(node, nodes)
    for one in nodes:
        one.metadata_props.update(node.metadata_props)
    nodes[-1].meta.update(node.meta)
