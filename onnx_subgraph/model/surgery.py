"""Remove nodes from a graph together with the nodes that only they need, and replace values, which keep their names."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.nested import bodies, graph_around, operands, within
from onnx_subgraph.model.shapes import DECLARED

INITIALIZERS_ALONE = 4
"""The first IR version in which an initializer need not be a graph input."""
FEW = 1024
"""The size in bytes up to which equal constants are stored once."""
TO_THE_END = np.iinfo(np.int32).max
"""The end of a Slice, as exporters write it, that means the end of the axis; so does any larger number."""
_AXES_AS_INPUT = 13
"""The first opset in which Unsqueeze has its axes as an input."""


def remove(node: ir.Node) -> None:
    """Remove a node that nothing reads, and the nodes that only it needs. A node that is read stays."""
    if not is_read(node):
        remove_all([node])


def remove_all(nodes: Iterable[ir.Node]) -> None:
    """Remove nodes that only these nodes read, and the nodes that only they need."""
    sweep([value for node in nodes for value in detached(node)])


def sweep(unread: Iterable[ir.Value]) -> None:
    """Remove the producers of these values, and initializers, if they are no longer read. Graph inputs stay."""
    waiting = list(unread)
    while waiting:
        value = waiting.pop()
        producer = value.producer()
        if producer is not None and producer.graph is not None and not is_read(producer):
            waiting += detached(producer)
        elif value.is_initializer() and not (value.uses() or value.is_graph_input() or value.is_graph_output()):
            assert value.graph is not None and value.name is not None
            del value.graph.initializers[value.name]


def replace(old: ir.Value, new: ir.Value) -> None:
    """Replace a value. The new value gets the old one's name and declared type and shape."""
    name, declared = old.name, old.meta.pop(DECLARED, None)
    new.type, new.shape = new.type or old.type, new.shape or old.shape
    new.meta.pop(DECLARED, None)
    new.meta.update({key: value for key, value in old.meta.items() if key not in new.meta})
    if declared is not None:
        new.meta[DECLARED] = declared
    old.name = None
    new.name = name
    old.replace_all_uses_with(new, replace_graph_outputs=True)


def store(value: ir.Value, array: np.ndarray) -> ir.Node:
    """Replace a result of a node by a Constant with these elements, in front of the node. Returns the Constant."""
    node = value.producer()
    assert node is not None
    tensor = ir.tensor(array, dtype=value.dtype, name=value.name)
    made = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], name=f"{node.name or value.name}_folded")
    made.outputs[0].type, made.outputs[0].shape = ir.TensorType(tensor.dtype), ir.Shape(array.shape)
    graph_around(node).insert_before(node, made)
    replace(value, made.outputs[0])
    return made


def constant(array: np.ndarray, name: str) -> ir.Node:
    """A Constant with these elements, whose result has a name. It is in no graph yet."""
    made = ir.Node("", "Constant", [], [ir.AttrTensor("value", ir.tensor(array))], name=name)
    result = made.outputs[0]
    result.name, result.shape = name, ir.Shape(array.shape)
    result.type = ir.TensorType(ir.DataType.from_numpy(array.dtype))
    return made


def as_initializers(model: ir.Model, old: Collection[ir.Node]) -> None:
    """Turn new Constants into initializers of their graphs, equal ones into one. old: the nodes that stay.

    Does nothing before IR version 4, where an initializer must be a graph input too. Constants of functions stay, and outputs.
    """
    if model.ir_version < INITIALIZERS_ALONE:
        return
    for graph in within(model.graph):
        known: dict[object, ir.Value] = {}
        for node in tuple(graph):
            result = node.outputs[0]
            if node.op_type != "Constant" or node in old or result.is_graph_output():
                continue
            tensor = node.attributes["value"].as_tensor()
            value = known.setdefault(few_bytes(tensor) or node, ir.Value(const_value=tensor))
            if value.graph is None:
                replace(result, value)
                tensor.name = value.name
                graph.register_initializer(value)
            else:
                result.replace_all_uses_with(value)
            graph.remove(node)


def few_bytes(tensor: ir.TensorProtocol) -> tuple[int, tuple[int, ...], bytes] | None:
    """Type, shape and bytes of a tensor, which equal tensors share; None for a large one, for text, and before it is computed."""
    if tensor.dtype == ir.DataType.STRING or isinstance(tensor, ir.LazyTensor) or tensor.nbytes > FEW:
        return None
    return int(tensor.dtype), tuple(tensor.shape.numpy()), tensor.tobytes()


def unsqueeze(value: ir.Value, axes: list[int], opset: int, name: str) -> list[ir.Node]:
    """The Unsqueeze that gives a value these axes, behind the Constant that it reads them from. They are in no graph yet."""
    if opset < _AXES_AS_INPUT:
        return [ir.Node("", "Unsqueeze", [value], [ir.AttrInt64s("axes", axes)], name=f"{name}_unsqueezed")]
    numbers = constant(np.array(axes, np.int64), f"{name}__axes")
    return [numbers, ir.Node("", "Unsqueeze", [value, numbers.outputs[0]], name=f"{name}_unsqueezed")]


def squeeze(value: ir.Value, axes: list[int], opset: int, name: str) -> list[ir.Node]:
    """The Squeeze that removes these axes of size 1 from a value, as `unsqueeze`."""
    if opset < _AXES_AS_INPUT:
        return [ir.Node("", "Squeeze", [value], [ir.AttrInt64s("axes", axes)], name=f"{name}_squeezed")]
    numbers = constant(np.array(axes, np.int64), f"{name}__axes")
    return [numbers, ir.Node("", "Squeeze", [value, numbers.outputs[0]], name=f"{name}_squeezed")]


def sliced(value: ir.Value, start: int, end: int, axis: int, name: str) -> list[ir.Node]:
    """The Slice that cuts a value along an axis, behind its Constants, as `unsqueeze`. Since opset 10."""
    numbers = [
        constant(np.array([number], np.int64), f"{name}_{word}")
        for word, number in (("start", start), ("end", end), ("axis", axis))
    ]
    made = ir.Node("", "Slice", [value, *(number.outputs[0] for number in numbers)], name=name)
    made.outputs[0].name = name
    return [*numbers, made]


def is_read(node: ir.Node) -> bool:
    """Whether anything reads a result of the node."""
    return any(output.uses() or output.is_graph_output() for output in node.outputs)


def detached(node: ir.Node) -> list[ir.Value]:
    """Remove a node from its graph, and disconnect it and its bodies from what they read. Returns the values that they read."""
    read = list(operands(node))
    inside = [graph for body in bodies(node) for graph in within(body)]
    for graph in inside:
        graph.outputs.clear()
    for one in (node, *(inner for graph in inside for inner in graph)):
        one.resize_inputs(0)
    graph_around(node).remove(node)
    return read
