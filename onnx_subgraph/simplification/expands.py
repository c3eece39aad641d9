"""Leave out an Expand whose readers broadcast, and compute what is between on fewer elements.

So is a Tile that repeats axes of size 1, and a ConstantOfShape, which repeats a number.

Exporters expand a rate of each head to each element of the state of the head, and compute the exponential of each. A value is
*narrow* before it is expanded. Elementwise operators, Unsqueeze, and reductions along other axes give a narrow result for narrow
operands. Where an operand is wide, the result is wide. Where something else reads a narrow result, it is expanded there. The
elements are the same; a kernel may round one of a short row differently.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.attributes import plain_value
from onnx_subgraph.model.broadcasting import Dim
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.nested import within
from onnx_subgraph.model.shapes import same_dim
from onnx_subgraph.model.surgery import constant, remove, replace, unsqueeze
from onnx_subgraph.operators.elementwise import is_elementwise
from onnx_subgraph.simplification.axis_orders import named_axes

_ONE_WAY = frozenset({"PRelu", "CastLike", "Clip"})
"""Elementwise operators whose result has the shape of the first operand, whatever the others are."""

_REPEATING = frozenset(("Expand", "Tile", "ConstantOfShape"))
"""Operators that repeat elements along axes."""

_Sizes = tuple[Dim, ...]


@dataclass(slots=True, eq=False)
class _Region:
    """Nodes that read narrow values of each other.

    values: these values. roots: the Expands in front of the nodes. ends: the nodes that need one behind.
    """

    values: set[ir.Value] = field(default_factory=set)
    roots: set[ir.Node] = field(default_factory=set)
    nodes: set[ir.Node] = field(default_factory=set)
    ends: set[ir.Node] = field(default_factory=set)

    def take(self, other: _Region) -> None:
        """Become both regions."""
        self.values |= other.values
        self.roots |= other.roots
        self.nodes |= other.nodes
        self.ends |= other.ends


def leave_out_expands(model: ir.Model, constants: Constants) -> int:
    """Remove the Expands that nothing needs. Changes `model`. Returns how many nodes were replaced.

    Shapes must follow from the inputs (`proved_only`).
    """
    replaced = 0
    for graph in within(model.graph):
        if any(node.op_type in _REPEATING for node in graph):
            finder = _Finder(constants, graph)
            for region in finder.regions():
                finder.rewrite(region)
                replaced += len(region.nodes)
    return replaced


class _Finder:
    """The narrow values of a graph."""

    def __init__(self, constants: Constants, graph: ir.Graph) -> None:
        self._constants = constants
        self._graph = graph
        self._narrow: dict[ir.Value, _Sizes] = {}
        self._regions: dict[ir.Value, _Region] = {}

    def regions(self) -> list[_Region]:
        """The regions that have fewer Expands if they are computed on narrow values."""
        for node in self._graph:
            if any(value in self._narrow for value in node.inputs if value is not None):
                self._join(node)
            elif node.op_type in _REPEATING and not node.domain:
                self._begin(node)
        found = dict.fromkeys(self._regions.values())
        return [region for region in found if len(region.ends) < len(region.roots) and all(map(_can_expand, region.ends))]

    def _begin(self, node: ir.Node) -> None:
        source, result, is_number = node.inputs[0], node.outputs[0], node.op_type == "ConstantOfShape"
        if source is None or source.shape is None or result.shape is None:
            return
        if any(attribute.is_ref() for attribute in node.attributes.values()):
            return
        sizes = () if is_number else tuple(source.shape)
        if not (is_number or _broadcasts_to(source, result.shape)):
            return
        if not _is_wide(sizes, result) and self._readers_take_narrow(result, sizes):
            self._narrow[result] = sizes
            self._regions[result] = _Region({result}, {node})

    def _join(self, node: ir.Node) -> None:
        """Join a node with narrow operands to the region of the nodes that give them."""
        regions = {self._regions[value] for value in node.inputs if value in self._narrow}
        whole = max(regions, key=lambda region: len(region.values))
        for other in regions - {whole}:
            whole.take(other)
            self._regions.update(dict.fromkeys(other.values, whole))
        whole.nodes.add(node)
        result = node.outputs[0]
        sizes = self._sizes(node)
        if not _is_wide(sizes, result):
            if self._readers_take_narrow(result, sizes):
                self._narrow[result] = sizes
                self._regions[result] = whole
                whole.values.add(result)
            else:
                whole.ends.add(node)

    def _readers_take_narrow(self, value: ir.Value, sizes: _Sizes) -> bool:
        """Whether every reader of a value can read a narrow one of these sizes."""
        return not value.is_graph_output() and all(self._takes_narrow(use.node, use.idx, sizes) for use in value.uses())

    def _takes_narrow(self, node: ir.Node, operand: int, sizes: _Sizes) -> bool:
        result = node.outputs[0]
        if node.graph is not self._graph or len(node.outputs) > 1 or result.shape is None or result.dtype is None:
            return False
        if any(plain_value(attribute) is None for attribute in node.attributes.values()):
            return False
        if node.op_type == "Unsqueeze" and not node.domain:
            return not operand and named_axes(self._constants, node, len(result.shape)) is not None
        if _is_reduction(node):
            return not operand and self._reduced(node, sizes) is not None
        if not is_elementwise(node.op_type, node.domain):
            return False
        if node.op_type in _ONE_WAY and not operand and not all(value is None or _is_number(value) for value in node.inputs[1:]):
            return False
        return all(value is None or _broadcasts_to(value, result.shape) for value in node.inputs)

    def _sizes(self, node: ir.Node) -> _Sizes:
        """The sizes of the result that narrow operands give."""
        wide = node.outputs[0].shape
        assert wide is not None
        if node.op_type == "Unsqueeze":
            return self._unsqueezed(node)[0]
        if _is_reduction(node):
            assert node.inputs[0] is not None
            return self._reduced(node, self._narrow[node.inputs[0]]) or ()
        operands = [self._operand(value) for value in node.inputs if value is not None]
        rank = max(map(len, operands))
        sizes: list[Dim] = [1] * rank
        for operand in operands:
            for axis, size in enumerate(operand, rank - len(operand)):
                if size != 1:
                    sizes[axis] = wide[axis - rank]
        return tuple(sizes)

    def _operand(self, value: ir.Value) -> _Sizes:
        """The sizes of an operand: narrow, if it is. A constant is narrow along axes along which its elements are the same."""
        if value in self._narrow:
            return self._narrow[value]
        assert value.shape is not None
        array = self._constants.array(value) if self._constants.is_constant(value) else None
        if array is None:
            return tuple(value.shape)
        return tuple(1 if _is_same_along(array, axis) else size for axis, size in enumerate(array.shape))

    def _reduced(self, node: ir.Node, sizes: _Sizes) -> _Sizes | None:
        """The sizes that a reduction gives an operand of these; None where it reduces axes along which the operand is narrow."""
        source = node.inputs[0]
        assert source is not None
        rank, keeps = len(sizes), node.attributes.get_int("keepdims", 1)
        axes = named_axes(self._constants, node, rank) if source.shape is not None and len(source.shape) == rank else None
        if not axes or source.shape is None or not all(same_dim(sizes[axis], source.shape[axis]) for axis in axes):
            return None
        return tuple(1 if axis in axes else size for axis, size in enumerate(sizes) if keeps or axis not in axes)

    def _unsqueezed(self, node: ir.Node) -> tuple[_Sizes, list[int]]:
        """The sizes that an Unsqueeze gives a narrow value, and the axes that it adds. The value may lack its first axes."""
        source, result = node.inputs[0], node.outputs[0]
        assert source is not None and source.shape is not None and result.shape is not None
        rank = len(result.shape)
        added = named_axes(self._constants, node, rank) or set()
        narrow = self._narrow[source]
        places = [axis for axis in range(rank) if axis not in added]
        missing = len(source.shape) - len(narrow)
        first = places[missing - 1] + 1 if missing else 0
        sizes = iter(narrow)
        axes = sorted(axis - first for axis in added if axis >= first)
        return tuple(1 if axis - first in axes else next(sizes) for axis in range(first, rank)), axes

    # Rewriting

    def rewrite(self, region: _Region) -> None:
        """Compute a region on narrow values."""
        made: dict[ir.Value, ir.Value] = {}
        for root in region.roots:
            assert root.inputs[0] is not None
            made[root.outputs[0]] = self._number(root) if root.op_type == "ConstantOfShape" else root.inputs[0]
        nodes_in_order = [node for node in self._graph if node in region.nodes]
        for node in nodes_in_order:
            result = node.outputs[0]
            nodes = self._unsqueeze(node, made) if node.op_type == "Unsqueeze" else self._elementwise(node, made)
            if not nodes:
                made[result] = made[node.inputs[0]]  # type: ignore[index]
                continue
            new = nodes[-1].outputs[0]
            new.name, new.shape, new.type = f"{result.name}__narrow", ir.Shape(self._sizes(node)), result.type
            if node in region.ends:
                nodes += _expand(new, result, str(node.name or result.name))
            self._graph.insert_before(node, nodes)
            for one in nodes:
                one.metadata_props.update(node.metadata_props)
                one.meta.update(node.meta)
            if result in self._narrow:
                made[result] = new
            else:
                replace(result, nodes[-1].outputs[0])
        for node in nodes_in_order:
            if node.graph is not None:  # it was not removed with a reader
                remove(node)

    def _number(self, node: ir.Node) -> ir.Value:
        """The number that a ConstantOfShape repeats, as a Constant in front of it."""
        given = node.attributes.get("value")
        array = np.zeros((), np.float32) if given is None else given.as_tensor().numpy().reshape(())
        made = constant(array, f"{node.outputs[0].name}__number")
        self._graph.insert_before(node, made)
        return made.outputs[0]

    def _elementwise(self, node: ir.Node, made: dict[ir.Value, ir.Value]) -> list[ir.Node]:
        nodes, inputs = list[ir.Node](), list[ir.Value | None]()
        for value in node.inputs:
            narrow = None if value is None else self._operand(value)
            if value is None or value in made:
                inputs.append(None if value is None else made[value])
            elif value.shape is not None and narrow is not None and narrow != tuple(value.shape):
                array = self._constants.array(value)
                assert array is not None
                first = tuple(slice(None) if size != 1 else slice(0, 1) for size in narrow)
                nodes.append(constant(array[first], f"{value.name}__narrow"))
                inputs.append(nodes[-1].outputs[0])
            else:
                inputs.append(value)
        name = f"{node.name or node.outputs[0].name}_narrow"
        return [*nodes, ir.Node(node.domain, node.op_type, inputs, list(node.attributes.values()), name=name)]

    def _unsqueeze(self, node: ir.Node, made: dict[ir.Value, ir.Value]) -> list[ir.Node]:
        axes, source = self._unsqueezed(node)[1], node.inputs[0]
        assert source is not None
        if not axes:
            return []
        return unsqueeze(made[source], axes, self._constants.opset(node), str(node.name or node.outputs[0].name))


def _expand(narrow: ir.Value, wide: ir.Value, name: str) -> list[ir.Node]:
    assert wide.shape is not None
    numbers = constant(np.array(wide.shape.numpy(), np.int64), f"{wide.name}__shape")
    return [numbers, ir.Node("", "Expand", [narrow, numbers.outputs[0]], name=f"{name}_expanded")]


def _can_expand(node: ir.Node) -> bool:
    shape = node.outputs[0].shape
    return shape is not None and all(isinstance(dim, int) for dim in shape)


def _is_reduction(node: ir.Node) -> bool:
    return node.op_type.startswith("Reduce") and not node.domain


def _is_number(value: ir.Value) -> bool:
    """Whether a value has one element, and broadcasts to any operand."""
    return value.shape is not None and len(value.shape) <= 1 and all(dim == 1 for dim in value.shape)


def _is_wide(sizes: _Sizes, value: ir.Value) -> bool:
    return value.shape is not None and len(sizes) == len(value.shape) and all(map(same_dim, sizes, value.shape))


def _broadcasts_to(value: ir.Value, wide: ir.Shape) -> bool:
    """Whether every axis of a value has size 1, or that of the axis of the result."""
    if value.shape is None or len(value.shape) > len(wide):
        return False
    pairs: Iterable[tuple[Dim, Dim]] = zip(reversed(value.shape), reversed(wide), strict=False)
    return all(dim == 1 or same_dim(dim, other) for dim, other in pairs)


def _is_same_along(array: np.ndarray, axis: int) -> bool:
    """Whether the elements along an axis are the same, bit by bit."""
    if not array.size or array.dtype.hasobject:
        return False
    first = array.take([0], axis)
    if array.shape[axis] == 1 or first.tobytes() != array.take([-1], axis).tobytes():
        return False
    return array.tobytes() == np.broadcast_to(first, array.shape).tobytes()
