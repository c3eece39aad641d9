"""Find equal rewrites, which replace the same nodes by the same nodes, so that only one of them is checked separately.

Two rewrites are equal if both of their graphs have the same nodes with the same attributes, read values of the same dtypes and
shapes (up to the names of symbolic dimensions), and hold the same constants. Large constants that the replacement reads
unchanged, such as weights of a layer, need only the same dtype and shape. Those that it computed or dropped must have equal
elements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping

import numpy as np
import onnx_ir as ir

from onnx_subgraph.rewriting.cutting import Cutting

SMALL = 64
"""Constants of up to this many elements are compared by their elements: shapes, axes, epsilons, factors."""


def likeness(cutting: Cutting) -> Hashable:
    """A key that is the same for equal rewrites."""
    before, after = (_tensors(model.graph) for model in (cutting.before, cutting.after))
    handed_on = {key: place for place, key in enumerate(before) if key in after}
    reads: dict[str, Hashable] = {name: position for position, name in enumerate(cutting.reads)}
    graphs = tuple(tuple(_described(model.graph, reads, handed_on)) for model in (cutting.before, cutting.after))
    sizes: dict[str, int] = {}
    inputs = tuple(_read(value, sizes) for model in (cutting.before, cutting.after) for value in model.graph.inputs)
    return cutting.rewrite.pattern, graphs, inputs


def _tensors(graph: ir.Graph) -> dict[int, ir.TensorProtocol]:
    """The constants of a graph by their identity, in order."""
    return {id(v.const_value): v.const_value for v in graph.initializers.values() if v.const_value is not None}


def _described(graph: ir.Graph, numbers: Mapping[str, Hashable], handed_on: Mapping[int, int]) -> Iterator[Hashable]:
    """The constants, nodes and outputs of a graph, without names. numbers: name → what replaces it here."""
    known = dict(numbers)
    for name, value in graph.initializers.items():
        described = (name,) if value.const_value is None else _constant(value.const_value, handed_on)
        known[name] = (len(known), *described)
        yield known[name]
    for index, node in enumerate(graph):
        read = tuple(None if v is None else known.get(str(v.name), str(v.name)) for v in node.inputs)
        attributes = tuple(sorted((a.name, repr(_attribute(a, known, handed_on))) for a in node.attributes.values()))
        yield node.domain, node.op_type, node.overload, read, attributes, len(node.outputs)
        known.update((str(v.name), (index, place)) for place, v in enumerate(node.outputs))
    yield tuple(known.get(str(v.name), str(v.name)) for v in graph.outputs)


def _constant(tensor: ir.TensorProtocol, handed_on: Mapping[int, int]) -> tuple[Hashable, ...]:
    kind = (str(tensor.dtype), tuple(tensor.shape.numpy()))
    if tensor.size > SMALL and id(tensor) in handed_on:
        return (*kind, handed_on[id(tensor)])
    array = tensor.numpy()
    content = repr(array.tolist()).encode() if array.dtype == object else np.ascontiguousarray(array).tobytes()
    return (*kind, hashlib.sha256(content).hexdigest())


def _attribute(attribute: ir.Attr, known: Mapping[str, Hashable], handed_on: Mapping[int, int]) -> Hashable:
    if attribute.is_ref():
        return "ref", attribute.ref_attr_name
    match attribute.type:
        case ir.AttributeType.TENSOR:
            return _constant(attribute.as_tensor(), handed_on)
        case ir.AttributeType.GRAPH:
            return tuple(_described(attribute.as_graph(), known, handed_on))
        case ir.AttributeType.GRAPHS:
            return tuple(tuple(_described(graph, known, handed_on)) for graph in attribute.as_graphs())
        case _:
            return repr(attribute.value)


def _read(value: ir.Value, sizes: dict[str, int]) -> Hashable:
    """Dtype and shape of a value that is read; if unknown, its name, which equals no other."""
    if value.shape is None or value.dtype is None:
        return value.name
    dims = (d if isinstance(d, int) else d.value or f"{value.name}[{i}]" for i, d in enumerate(value.shape))
    return str(value.dtype), tuple(d if isinstance(d, int) else f"d{sizes.setdefault(d, len(sizes))}" for d in dims)
