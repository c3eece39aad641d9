"""The traps of the campaign: what makes an instance that fuses into something that must not, or not as if nothing were there.

Three kinds by when they are set: in the instance before it is planted, in the graph around it afterwards, and in the whole model
once it is complete. Each returns None where it can't be set there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from onnx_subgraph.operators import schema
from tests.soundness.growth import Growth, Value, rename_graph, tensor_type
from tests.soundness.planting import Planted, Seed, valid, values
from tests.soundness.shrouds import insensitivity, randomness

BeforePlanting = Callable[[Random, Seed], "Seed | None"]
AfterPlanting = Callable[[Growth, Planted], bool]

AXES = frozenset({"axis", "axes", "perm"})


# In the instance


def _altered(seed: Seed, proto: onnx.ModelProto) -> Seed | None:
    """The seed with another model, if that still computes something."""
    known = values(proto, seed.instance.feeds, {**seed.instance.types, **_types(proto)})
    if known is None:
        return None
    for output in proto.graph.output:
        found = known[output.name]
        output.type.CopyFrom(helper.make_tensor_type_proto(tensor_type(found.dtype.name), [None] * found.ndim))
    if not valid(proto, seed.instance.feeds):
        return None
    return Seed(seed.pattern, replace(seed.instance, proto=proto), known)


def _types(proto: onnx.ModelProto) -> dict[str, int]:
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    return {v.name: v.type.tensor_type.elem_type for v in inferred.value_info if v.type.tensor_type.elem_type}


def _copy(seed: Seed) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    proto.CopyFrom(seed.proto)
    return proto


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The weights, and the tensors of Constant nodes."""
    yield from proto.graph.initializer
    for node in proto.graph.node:
        if node.op_type == "Constant":
            yield from (a.t for a in node.attribute if a.name == "value")


def _with_tensor(random: Random, seed: Seed, change: Callable[[np.ndarray[Any, Any]], Any], *, axes: bool = False) -> Seed | None:
    """The seed with one of its float scalars changed, or one of the tensors that name axes."""
    proto = _copy(seed)
    named = _axes_inputs(proto)
    fitting = [
        (t, a)
        for t in _tensors(proto)
        for a in [numpy_helper.to_array(t)]
        if (t.name in named if axes else a.dtype.kind == "f" and a.size == 1)
    ]
    if not fitting:
        return None
    tensor, array = random.choice(fitting)
    changed = change(array)
    if changed is None:
        return None
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(changed, array.dtype), tensor.name))
    return _altered(seed, proto)


def _axes_inputs(proto: onnx.ModelProto) -> set[str]:
    """The values that are the axes of some operator."""
    opset = next(o.version for o in proto.opset_import if not o.domain)
    found = set()
    for node in proto.graph.node:
        known = schema(node.op_type, node.domain, 1 if node.domain else opset)
        names = [i.name for i in known.inputs] if known is not None else []
        found |= {given for formal, given in zip(names, node.input, strict=False) if formal == "axes"}
    return found


def constant_off(random: Random, seed: Seed) -> Seed | None:
    """A constant of the formula is increased by 1 %."""
    return _with_tensor(random, seed, lambda a: a * 1.01 if a.item() else None)


def rank_raising_constant(random: Random, seed: Seed) -> Seed | None:
    """A scalar constant gets a higher rank than its operands."""
    rank = 1 + max(a.ndim for a in seed.known.values())
    return _with_tensor(random, seed, lambda a: a.reshape([1] * rank))


def wrong_axis(random: Random, seed: Seed) -> Seed | None:
    """An axis or a permutation is changed."""
    proto = _copy(seed)
    places = [a for n in proto.graph.node for a in n.attribute if a.name in AXES]
    if not places or random.random() < 0.3:
        return _with_tensor(random, seed, lambda a: _other_axes(random, a.tolist()), axes=True)
    attribute = random.choice(places)
    given = list(attribute.ints) if attribute.type == AttributeProto.INTS else attribute.i
    other = _other_axes(random, given)
    if other is None:
        return None
    attribute.CopyFrom(helper.make_attribute(attribute.name, other))
    return _altered(seed, proto)


def _other_axes(random: Random, given: Any) -> Any:
    if not isinstance(given, list):
        return given + random.choice([-1, 1])
    if len(given) == 1:
        return [given[0] + random.choice([-1, 1])]
    if not given:
        return None
    a, b = random.sample(range(len(given)), 2)
    turned = list(given)
    turned[a], turned[b] = turned[b], turned[a]
    return turned if turned != given else None


def wrong_dtype(random: Random, seed: Seed) -> Seed | None:
    """An inner value goes through integers or a narrower float and back, or comes from them."""
    proto = _copy(seed)
    floats = [v for v in seed.instance.inner if seed.known[v].dtype.kind == "f" and _is_node(proto, v)]
    if not floats:
        return None
    value = random.choice(floats)
    own = seed.known[value].dtype.name
    way = random.choice([t for t in ("int32", "int64", "float16", "float32", "float64") if t != own])
    at = next(i for i, n in enumerate(proto.graph.node) if value in n.output)
    for node in proto.graph.node:
        node.input[:] = [f"{value}_back" if i == value else i for i in node.input]
    for offset, (source, result, to) in enumerate(((value, f"{value}_there", way), (f"{value}_there", f"{value}_back", own)), 1):
        proto.graph.node.insert(at + offset, helper.make_node("Cast", [source], [result], name=result, to=tensor_type(to)))
    types = {f"{value}_there": tensor_type(way), f"{value}_back": tensor_type(own)}
    return _altered(replace(seed, instance=replace(seed.instance, types={**seed.instance.types, **types})), proto)


def _is_node(proto: onnx.ModelProto, value: str) -> bool:
    return any(value in n.output and n.op_type != "Constant" for n in proto.graph.node)


def duplicate(random: Random, seed: Seed) -> Seed | None:
    """What several read is computed once more for one of them, its axes counted from the other end; or it is on another axis."""
    proto = _copy(seed)
    found = [n for n in proto.graph.node if n.op_type != "Constant" and len(n.output) == 1 and len(_readers(proto, n)) > 1]
    if not found:
        return None
    with_axes = [n for n in found if _axes_of(proto, n)]
    node = random.choice(with_axes or found)
    again = onnx.NodeProto()
    again.CopyFrom(node)
    again.name = again.output[0] = f"{node.output[0]}_again"
    stored = {tensor.name: len(tensor.dims) for tensor in proto.graph.initializer}
    rank = stored[first] if (first := node.input[0]) in stored else {**seed.instance.feeds, **seed.known}[first].ndim
    twin = random.random() < 0.6
    for name in _axes_of(proto, node):
        if not _turn(proto, again, name, lambda given: _counted(given, rank) if twin else _other_axes(random, given)):
            return None
    reader, index = random.choice(_readers(proto, node))
    reader.input[index] = again.output[0]
    proto.graph.node.insert(list(proto.graph.node).index(node) + 1, again)
    types = {**seed.instance.types, again.output[0]: seed.instance.types[node.output[0]]}
    return _altered(replace(seed, instance=replace(seed.instance, types=types)), proto)


def _readers(proto: onnx.ModelProto, node: onnx.NodeProto) -> list[tuple[onnx.NodeProto, int]]:
    """Where the result of a node is read."""
    return [(n, i) for n in proto.graph.node for i, read in enumerate(n.input) if read == node.output[0]]


def _axes_of(proto: onnx.ModelProto, node: onnx.NodeProto) -> list[str]:
    """The attribute that says the axes of a node, or the weight that does."""
    named, stored = _axes_inputs(proto), {t.name for t in proto.graph.initializer}
    return [a.name for a in node.attribute if a.name in ("axis", "axes")] + [i for i in node.input if i in named & stored]


def _turn(proto: onnx.ModelProto, node: onnx.NodeProto, name: str, turn: Callable[[Any], Any]) -> bool:
    """Give the node other axes where they are said, if there are any."""
    for attribute in node.attribute:
        if attribute.name == name:
            turned = turn(helper.get_attribute_value(attribute))
            if turned is not None:
                attribute.CopyFrom(helper.make_attribute(name, turned))
            return turned is not None
    tensor = next(t for t in proto.graph.initializer if t.name == name)
    turned = turn(numpy_helper.to_array(tensor).tolist())
    if turned is None:
        return False
    made = numpy_helper.from_array(np.asarray(turned, np.int64), f"{name}_again")
    proto.graph.initializer.append(made)
    node.input[:] = [made.name if i == name else i for i in node.input]
    return True


def _counted(given: Any, rank: int) -> Any:
    """The same axes, counted from the other end."""
    if isinstance(given, list):
        return [_counted(a, rank) for a in given]
    return given + rank if given < 0 else given - rank


# In the graph around it


def _inner(growth: Growth, planted: Planted) -> Value | None:
    """An inner value of the instance, where it lies in the graph itself."""
    seed = planted.seed
    found = [v for v in seed.instance.inner if v in seed.known and _is_node(seed.proto, v)]
    if not found:
        return None
    value = growth.random.choice(found)
    return Value(planted.names[value], seed.known[value].dtype.name, seed.known[value].shape)


def _reader(value: Value) -> str:
    return "Not" if value.dtype == "bool" else "Abs" if value.dtype.startswith("uint") else "Neg"


def second_consumer(growth: Growth, planted: Planted) -> bool:
    value = _inner(growth, planted)
    if value is None:
        return False
    growth.node(_reader(value), [value], (value.dtype, value.shape))
    return True


def graph_output(growth: Growth, planted: Planted) -> bool:
    value = _inner(growth, planted)
    if value is None:
        return False
    growth.here.values.append(value)
    growth.outputs.append(value.name)
    return True


def nested_use(growth: Growth, planted: Planted) -> bool:
    """The body of an If reads an inner value, perhaps in a body inside that."""
    value = _inner(growth, planted)
    if value is None:
        return False

    def read() -> list[Value]:
        return growth.node(_reader(value), [value], (value.dtype, value.shape))

    def nested() -> list[Value]:
        return _if(growth, value, read)

    _if(growth, value, nested if growth.random.random() < 0.3 else read)
    return True


def _if(growth: Growth, value: Value, then: Callable[[], list[Value]]) -> list[Value]:
    condition = growth.input(np.array(True), stem="condition")
    zeros = growth.body(lambda: [growth.weight(np.zeros(value.shape, value.dtype))])
    return growth.node("If", [condition], (value.dtype, value.shape), then_branch=growth.body(then), else_branch=zeros)


def overridable_initializer(growth: Growth, planted: Planted) -> bool:
    """A weight of the instance is a graph input, too: a caller may give another one."""
    tensor = _weight(growth, planted)
    if tensor is None:
        return False
    array = numpy_helper.to_array(tensor)
    growth.inputs.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, array.shape))
    return True


def shared_initializer(growth: Growth, planted: Planted) -> bool:
    """A weight of the instance is read elsewhere, too."""
    tensor = _weight(growth, planted)
    if tensor is None:
        return False
    array = numpy_helper.to_array(tensor)
    value = Value(tensor.name, array.dtype.name, array.shape)
    growth.node(_reader(value), [value], (value.dtype, value.shape))
    return True


def _weight(growth: Growth, planted: Planted) -> onnx.TensorProto | None:
    """A weight of the instance that is an initializer of the graph itself."""
    own = {planted.names[t.name] for t in planted.seed.proto.graph.initializer}
    found = [t for t in growth.scopes[0].weights if t.name in own]
    return growth.random.choice(found) if found else None


# In the whole model


def collide(random: Random, model: onnx.ModelProto, fused: onnx.ModelProto) -> bool:
    """Give a value or node of the model, or one in a body or function, a name that fusing would make. In place."""
    graphs = _graphs(model.graph)
    new = sorted(_names(fused.graph).difference(*map(_names, graphs)))
    fixed = {v.name for v in (*model.graph.input, *model.graph.output)}
    old = sorted({o for g in graphs for n in g.node for o in n.output if o} - fixed)
    if not new or not old:
        return False
    name, taken = random.choice(new), random.choice(old)
    rename_graph(model.graph, {taken: name})
    nodes = [n for g in graphs for n in g.node]
    random.choice(nodes).name = random.choice(new)
    for function in model.functions:
        inner = sorted({o for n in function.node for o in n.output if o} - set(function.output))
        if inner:
            taken = random.choice(inner)
            for node in function.node:
                node.input[:] = [name if i == taken else i for i in node.input]
                node.output[:] = [name if o == taken else o for o in node.output]
    return True


def _graphs(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    """The graph and all bodies in it."""
    return [graph, *(g for n in graph.node for a in n.attribute if a.HasField("g") for g in _graphs(a.g))]


def _names(graph: onnx.GraphProto) -> set[str]:
    """All names of nodes, results and weights of a graph."""
    named = {n.name for n in graph.node} | {o for n in graph.node for o in n.output} | {t.name for t in graph.initializer}
    return named - {""}


BEFORE: dict[str, BeforePlanting] = {
    "constant off by 1 %": constant_off,
    "rank-raising constant": rank_raising_constant,
    "wrong axis": wrong_axis,
    "wrong dtype": wrong_dtype,
    "duplicate": duplicate,
}
AFTER: dict[str, AfterPlanting] = {
    "second consumer": second_consumer,
    "graph output": graph_output,
    "nested use": nested_use,
    "overridable initializer": overridable_initializer,
    "shared initializer": shared_initializer,
    "random operator": randomness,
    "insensitive output": insensitivity,
}
COLLISION = "name collision"
EDGE = "opset edge"
WRONG = "wrong pattern"
TRAPS = (*AFTER, *BEFORE, COLLISION, EDGE, WRONG)
DECEPTIONS = ("random operator", "insensitive output", WRONG)
"""Traps that are set for verification, which they are always held against."""
