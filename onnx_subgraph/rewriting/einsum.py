"""Write each Einsum that is a matrix product as a MatMul while patterns are matched, and put back those that stay.

A pattern says `query @ key`. Exporters of einsum write the same product as an Einsum, with the axes in any order. As a MatMul
between Transposes and Reshapes it is matched like any other. An Einsum of which nothing was replaced returns as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnx_subgraph.matching.equalities import REARRANGING
from onnx_subgraph.matching.origin import RAISED, keep_origin
from onnx_subgraph.model.element_types import FLOATS
from onnx_subgraph.model.nested import graph_around, within
from onnx_subgraph.model.surgery import remove, replace
from onnx_subgraph.rewriting.equation import Dim, Step, UnknownShapeError, dims_of, product_of, steps_of

_STEP = "onnx_subgraph.einsum_step"
"""Key in `Node.meta` of a Transpose or Reshape beside the MatMul: its `Step`."""
_WHOLE = "onnx_subgraph.einsum"
"""Key in `Node.meta` of the MatMul: its `_Written`."""

AXES_AS_INPUT = 13
"""The opset since which Unsqueeze has its axes as an input. Einsum is older by one opset."""


@dataclass(frozen=True, slots=True)
class _Written:
    """An Einsum, and the steps before and after the MatMul that stands for it."""

    einsum: ir.Node
    swapped: bool
    left: tuple[Step, ...]
    right: tuple[Step, ...]
    result: tuple[Step, ...]


def write_as_products(model: ir.Model) -> bool:
    """Write every Einsum that is a matrix product as a MatMul. Changes `model`. Returns whether there was one."""
    found = [(n, opset) for graph, opset in _graphs(model) for n in graph if n.op_type == "Einsum" and not n.domain]
    written = [_write(node, axes_as_input=opset >= AXES_AS_INPUT) for node, opset in found]
    return any(written)


def put_back(model: ir.Model) -> None:
    """Restore every Einsum whose MatMul and steps are still there. Changes `model`."""
    nodes = [node for graph, _ in _graphs(model) for node in graph]
    for node in nodes:
        written = node.meta.get(_WHOLE)
        if node.op_type == "MatMul" and isinstance(written, _Written):  # what replaced a MatMul may have its keys
            _put_back(node, written)
    for node in nodes:
        if node.graph is not None and RAISED in node.meta:
            keep_origin(node)


def _graphs(model: ir.Model) -> Iterator[tuple[ir.Graph, int]]:
    """Every graph with its opset."""
    for owner in (model.graph, *(function.graph for function in model.functions.values())):
        opset = owner.opset_imports.get("", model.opset_imports.get("", 0))
        yield from ((graph, opset) for graph in within(owner))


def _write(node: ir.Node, *, axes_as_input: bool) -> bool:
    """Replace an Einsum by a MatMul, if it is a matrix product with known ranks. Returns whether it did."""
    values, equation = list(node.inputs), node.attributes.get("equation")
    if len(values) != 2 or equation is None or any(v is None or v.shape is None or v.dtype not in FLOATS for v in values):
        return False
    first, second = (value for value in values if value is not None and value.shape is not None)
    assert first.shape is not None and second.shape is not None
    product = product_of(equation.as_string(), len(first.shape), len(second.shape))
    if product is None:
        return False
    dims = dims_of(product, first.shape, second.shape, node.outputs[0].shape)
    if dims is None:
        return False
    left, right = (second, first) if product.swapped else (first, second)
    if not _is_moved(left.producer()) and all(_is_moved(reader) for reader, _ in node.outputs[0].uses()):
        product = product.in_order_of_left()
    try:
        before, between, after = steps_of(product, dims)
    except UnknownShapeError:
        return False
    writing = _Writing(node, axes_as_input)
    factors = [
        writing.steps(value, steps, name) for value, steps, name in zip((left, right), before, ("left", "right"), strict=True)
    ]
    made = ir.Node("", "MatMul", factors, name=node.name)
    made.meta[_WHOLE] = _Written(_copy(node), product.swapped, *before, after)
    value = writing.insert(made, "product", between)
    replace(node.outputs[0], writing.steps(value, after, "result"))
    remove(node)
    return True


def _is_moved(neighbour: ir.Node | None) -> bool:
    """Whether a Transpose beside this node is part of a rearrangement that is there anyway."""
    return neighbour is not None and not neighbour.domain and neighbour.op_type in (*REARRANGING, "Einsum")


@dataclass(frozen=True, slots=True)
class _Writing:
    """Inserts nodes in front of an Einsum, named after it."""

    einsum: ir.Node
    axes_as_input: bool

    def steps(self, value: ir.Value, steps: Sequence[Step], part: str) -> ir.Value:
        """The value after these steps."""
        for number, step in enumerate(steps):
            name = part if len(steps) == 1 else f"{part}_{number}"
            shape = list(value.shape) if value.shape is not None else []
            if step.operator == "Transpose":
                made = ir.node("Transpose", [value], {"perm": step.numbers})
                shape = [shape[axis] for axis in step.numbers]
            elif step.operator == "Unsqueeze":
                axes = [self._numbers(step, f"{name}_axes")] if self.axes_as_input else []
                made = ir.node("Unsqueeze", [value, *axes], {} if axes else {"axes": step.numbers})
                shape[step.numbers[0] : step.numbers[0]] = [1] * len(step.numbers)
            else:
                made = ir.node("Reshape", [value, self._numbers(step, f"{name}_shape")])
                shape = [n if n > 0 else shape[i] if n == 0 else ir.SymbolicDim(None) for i, n in enumerate(step.numbers)]
            made.meta[_STEP] = step
            value = self.insert(made, name, shape)
        return value

    def _numbers(self, step: Step, part: str) -> ir.Value:
        """A constant with the numbers of a step."""
        constant = ir.node("Constant", [], {"value": ir.tensor(step.numbers, ir.DataType.INT64)})
        return self.insert(constant, part, [len(step.numbers)])

    def insert(self, node: ir.Node, part: str, shape: Sequence[Dim]) -> ir.Value:
        """Insert a node, and return its result, which has this shape."""
        result = self.einsum.outputs[0]
        named = f"{self.einsum.name or result.name}__{part}"
        node.name = node.name or named
        node.meta[RAISED] = self.einsum.name or result.name
        value = node.outputs[0]
        value.name, value.shape = f"{result.name}__{part}", ir.Shape(shape)
        value.type = ir.TensorType(ir.DataType.INT64) if node.op_type == "Constant" else result.type or self.einsum.inputs[0].type  # type: ignore[union-attr]
        graph_around(self.einsum).insert_before(self.einsum, node)
        return value


def _copy(node: ir.Node) -> ir.Node:
    """A node like this one that reads nothing."""
    attributes = [ir.Attr(a.name, a.type, a.value, doc_string=a.doc_string) for a in node.attributes.values()]
    copied = ir.Node("", node.op_type, [None] * len(node.inputs), attributes, name=node.name, doc_string=node.doc_string)
    copied.metadata_props.update(node.metadata_props)
    copied.meta.update(node.meta)
    return copied


def _put_back(product: ir.Node, written: _Written) -> None:
    """Replace a MatMul and its steps by the Einsum that it stands for, unless one of them was changed."""
    factors = [_source(value, steps) for value, steps in zip(product.inputs, (written.left, written.right), strict=True)]
    last = _last(product, written.result)
    if last is None or any(factor is None for factor in factors):
        return
    einsum, graph = written.einsum, graph_around(product)
    for index, factor in enumerate(reversed(factors) if written.swapped else factors):
        einsum.replace_input_with(index, factor)
    graph.insert_before(product, einsum)
    replace(last.outputs[0], einsum.outputs[0])
    remove(last)


def _source(value: ir.Value | None, steps: Sequence[Step]) -> ir.Value | None:
    """The value before these steps; None where they are no longer there."""
    for step in reversed(steps):
        node = None if value is None else value.producer()
        if node is None or not _takes(node, step):
            return None
        value = node.inputs[0]
    return value


def _last(node: ir.Node, steps: Sequence[Step]) -> ir.Node | None:
    """The last of the steps after a node; None where they are no longer there, or an earlier one has another reader."""
    for step in steps:
        uses = tuple(node.outputs[0].uses())
        if node.outputs[0].is_graph_output() or len(uses) != 1 or not _takes(uses[0].node, step):
            return None
        node = uses[0].node
    return node


def _takes(node: ir.Node, step: Step) -> bool:
    """Whether a node takes this step, and was not replaced by another one, which has its keys."""
    order = node.attributes.get_ints("perm", ()) if step.operator == "Transpose" else ()
    is_same = node.op_type == step.operator and (step.operator != "Transpose" or tuple(order) == tuple(step.numbers))
    return is_same and node.meta.get(_STEP) == step
