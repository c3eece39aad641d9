"""Models that compute something else, by one change, and models that compute the same in other nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.soundness import judge

ALIKE = (
    *(("Add", "Sub"), ("Mul", "Add"), ("Div", "Mul"), ("Max", "Min"), ("Relu", "Abs"), ("Exp", "Sin"), ("Sigmoid", "Tanh")),
    *(("Less", "Greater"), ("And", "Or"), ("ReduceMean", "ReduceMax"), ("ReduceSum", "ReduceMean"), ("Softmax", "LogSoftmax")),
)
TWISTS = {other: one for one, other in ALIKE} | dict(ALIKE)
"""Operator → another one that takes its operands and attributes."""
ORDERED = frozenset({"Sub", "Div", "MatMul", "Pow", "Less", "Greater"})
"""Operators whose first two operands may not change places."""


def altered(model: onnx.ModelProto, random: Random) -> onnx.ModelProto | None:
    """The model with one operator, attribute, weight or order of operands changed, also in a body; None where it has none.

    A model that divides integers is not changed: a divisor of 0 would end the process.
    """
    other = onnx.shape_inference.infer_shapes(model)
    graphs = list(_graphs(other.graph))
    integers = {v.name for g in graphs for v in (*g.value_info, *g.output) if v.type.tensor_type.elem_type not in judge.EPSILON}
    if any(node.op_type in ("Div", "Mod") and node.output[0] in integers for graph in graphs for node in graph.node):
        return None
    changes = [change for graph in graphs for change in _changes(graph)]
    if not changes:
        return None
    random.choice(changes)()
    for graph in graphs:
        del graph.value_info[:]
    return other


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _changes(graph: onnx.GraphProto) -> Iterator[Callable[[], None]]:
    """What can be changed in a graph, each change to be called."""
    for node in graph.node:
        if node.domain:
            continue
        if node.op_type in TWISTS:
            yield partial(setattr, node, "op_type", TWISTS[node.op_type])
        if node.op_type in ORDERED:
            yield partial(_swap, node)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.FLOAT:
                yield partial(setattr, attribute, "f", 1.5 * attribute.f + 0.01)
    for tensor in graph.initializer:
        if tensor.data_type in judge.EPSILON:
            yield partial(_enlarge, tensor)


def _swap(node: onnx.NodeProto) -> None:
    first, second, *rest = node.input
    del node.input[:]
    node.input.extend([second, first, *rest])


def _enlarge(tensor: onnx.TensorProto) -> None:
    array = numpy_helper.to_array(tensor)
    with np.errstate(over="ignore"):
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(array * array.dtype.type(1.0625)), tensor.name))


COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "And", "Or", "Equal"})


def respelled(model: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """A model that computes the same: operands of sums change places, and values pass through Identity, also in bodies."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    for number, graph in enumerate(_graphs(other.graph)):
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            if node.op_type in COMMUTATIVE and not node.domain and random.random() < 0.5:
                operands = list(node.input)
                del node.input[:]
                node.input.extend(reversed(operands))
            if node.input and node.input[0] and random.random() < 0.3:
                name = f"same_{number}_{len(nodes)}"
                nodes.append(helper.make_node("Identity", [node.input[0]], [name], name=name))
                node.input[0] = name
            nodes.append(node)
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)
    return other
