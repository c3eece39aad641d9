"""Mutants of an instance: models that look like the pattern and are not, or whose insides are needed elsewhere.

Each is left alone by a sound pattern, or, where it does fuse, still computes what it computed: an epsilon may be any number.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnx_subgraph.proving.instance import Instance

_ORDERED = frozenset({"Sub", "Div", "Pow", "MatMul", "PRelu", "Less", "Greater"})


@dataclass(frozen=True, slots=True)
class Mutant:
    """What was changed, in words, and the model and feeds after it."""

    change: str
    proto: onnx.ModelProto
    feeds: dict[str, np.ndarray]


def mutants(instance: Instance) -> Iterator[Mutant]:
    """The mutants of an instance, each with one change."""
    yield from _other_constants(instance)
    yield from _overridable(instance)
    yield from _higher_rank(instance)
    yield from _other_axes(instance)
    yield from _swapped(instance)
    yield from _read_elsewhere(instance)


def _scalars(proto: onnx.ModelProto) -> Iterator[tuple[int, onnx.TensorProto, np.ndarray]]:
    for index, tensor in enumerate(proto.graph.initializer):
        array = numpy_helper.to_array(tensor)
        if array.size == 1 and array.dtype.kind == "f":
            yield index, tensor, array


def _other_constants(instance: Instance) -> Iterator[Mutant]:
    for index, tensor, array in _scalars(instance.proto):
        for factor in (1.01, -1.0, 3.0):
            changed = copy.deepcopy(instance.proto)
            other = np.asarray(array * factor if array.item() else array + 0.01 * factor, array.dtype)
            changed.graph.initializer[index].CopyFrom(numpy_helper.from_array(other, tensor.name))
            yield Mutant(f"the constant {array.item():.6g} is {other.item():.6g}", changed, instance.feeds)


def _overridable(instance: Instance) -> Iterator[Mutant]:
    for index, tensor in enumerate(instance.proto.graph.initializer):
        array = numpy_helper.to_array(instance.proto.graph.initializer[index])
        if array.dtype.kind != "f" or not array.size:
            continue
        changed = copy.deepcopy(instance.proto)
        changed.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, array.shape))
        other = np.asarray(array * 1.25 + 0.125, array.dtype)
        yield Mutant(f"{tensor.name} can be overridden", changed, {**instance.feeds, tensor.name: other})


def _higher_rank(instance: Instance) -> Iterator[Mutant]:
    rank = max((a.ndim for a in instance.feeds.values()), default=0) + 2
    for index, tensor, array in _scalars(instance.proto):
        changed = copy.deepcopy(instance.proto)
        changed.graph.initializer[index].CopyFrom(numpy_helper.from_array(array.reshape([1] * rank), tensor.name))
        yield Mutant(f"the constant {array.item():.6g} has rank {rank}", changed, instance.feeds)


def _other_axes(instance: Instance) -> Iterator[Mutant]:
    for index, node in enumerate(instance.proto.graph.node):
        for position, attribute in enumerate(node.attribute):
            if attribute.name in ("axis", "axes"):
                changed = copy.deepcopy(instance.proto)
                there = changed.graph.node[index].attribute[position]
                if attribute.name == "axis":
                    there.i = 0 if attribute.i else 1
                else:
                    there.ints[0] = 0 if attribute.ints[0] else 1
                yield Mutant(f"{node.op_type} has another {attribute.name}", changed, instance.feeds)
    for index, tensor in enumerate(instance.proto.graph.initializer):
        if tensor.name.startswith("axes"):
            array = numpy_helper.to_array(tensor).copy()
            array[..., 0] = 0 if array.reshape(-1)[0] else 1
            changed = copy.deepcopy(instance.proto)
            changed.graph.initializer[index].CopyFrom(numpy_helper.from_array(array, tensor.name))
            yield Mutant(f"{tensor.name} are {array.tolist()}", changed, instance.feeds)


def _swapped(instance: Instance) -> Iterator[Mutant]:
    for index, node in enumerate(instance.proto.graph.node):
        if node.op_type in _ORDERED and len(node.input) == 2:
            changed = copy.deepcopy(instance.proto)
            changed.graph.node[index].input[:] = reversed(node.input)
            yield Mutant(f"the inputs of {node.name} are swapped", changed, instance.feeds)


def _read_elsewhere(instance: Instance) -> Iterator[Mutant]:
    types = _types(instance.proto)
    constants = {o for n in instance.proto.graph.node if n.op_type == "Constant" for o in n.output}
    for value in instance.inner:
        if value in constants or value not in types:
            continue
        declared = helper.make_tensor_value_info(value, types[value], None)
        as_output = copy.deepcopy(instance.proto)
        as_output.graph.output.append(declared)
        yield Mutant(f"{value} is a graph output", as_output, instance.feeds)
        if types[value] == onnx.TensorProto.BOOL:
            continue
        consumed = copy.deepcopy(instance.proto)
        consumed.graph.node.append(helper.make_node("Neg", [value], ["read_elsewhere"], name="second_reader"))
        consumed.graph.output.append(helper.make_tensor_value_info("read_elsewhere", types[value], None))
        yield Mutant(f"{value} has a second consumer", consumed, instance.feeds)


def _types(proto: onnx.ModelProto) -> dict[str, int]:
    """Value → element type, as far as onnx infers it; a type that it leaves open is the outputs' type."""
    usual = proto.graph.output[0].type.tensor_type.elem_type
    inferred = onnx.shape_inference.infer_shapes(proto)
    types = {o: usual for n in proto.graph.node for o in n.output if o}
    types.update({v.name: v.type.tensor_type.elem_type for v in inferred.graph.value_info if v.type.tensor_type.elem_type})
    return types
