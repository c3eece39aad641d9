"""Mutants of an instance: similar models that do not match the pattern, or whose inner values are read elsewhere.

A correct pattern does not fuse a mutant, or the fused mutant still computes the same. For example, an epsilon may be any number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from onnx_subgraph.operators import schema
from onnx_subgraph.proving.instance import Instance

_ORDERED = frozenset({"Sub", "Div", "Pow", "MatMul", "Gemm", "PRelu", "Less", "Greater", "Concat"})
_WORDS = {"approximate": ("none", "tanh"), "mode": ("DCR", "CRD", "constant", "reflect"), "auto_pad": ("NOTSET", "SAME_UPPER")}
_NUMBER = re.compile(r"_\d+\b")
_LARGE = 4096
"""Larger integers mean "to the end" in a Slice, and so does such a number plus one."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """The change in words, and the changed model with its feeds."""

    change: str
    proto: onnx.ModelProto
    feeds: dict[str, np.ndarray]

    @property
    def kind(self) -> str:
        """The change without the number of the node. A kind is not tried again with other alternatives."""
        return _NUMBER.sub("", self.change)


def mutants(instance: Instance) -> Iterator[Mutant]:
    """The mutants of an instance, each with one change."""
    for kind in (
        *(_other_constants, _overridable, _higher_rank, _other_integers),
        *(_other_attributes, _unsaid_attributes, _swapped, _read_elsewhere),
    ):
        yield from kind(instance)


def of_each_kind(instances: Iterable[Instance], most: int | None = None) -> list[Mutant]:
    """The mutants of instances, each kind of the first instance that has it; a sample where there are more than `most`."""
    made: list[Mutant] = []
    for instance in instances:
        tried = {mutant.kind for mutant in made}
        made += [mutant for mutant in mutants(instance) if mutant.kind not in tried]
    return made if most is None or len(made) <= most else Random(len(made)).sample(made, most)


def _changed(instance: Instance, change: str, edit: Callable[[onnx.GraphProto], None]) -> Mutant:
    proto = onnx.ModelProto()
    proto.CopyFrom(instance.proto)
    edit(proto.graph)
    return Mutant(change, proto, instance.feeds)


def _floats(instance: Instance) -> Iterator[tuple[int, onnx.TensorProto, np.ndarray]]:
    for index, tensor in enumerate(instance.proto.graph.initializer):
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind == "f" and array.size:
            yield index, tensor, array


def _with_constant(instance: Instance, change: str, index: int, array: np.ndarray) -> Mutant:
    def edit(graph: onnx.GraphProto) -> None:
        graph.initializer[index].CopyFrom(numpy_helper.from_array(array, graph.initializer[index].name))

    return _changed(instance, change, edit)


def _other_constants(instance: Instance) -> Iterator[Mutant]:
    for index, tensor, array in _floats(instance):
        if array.size != 1:
            continue
        for factor in (1.01, -1.0, 3.0):
            with np.errstate(over="ignore"):  # infinity is also a different constant
                other = np.asarray(array * factor if array.item() else array + 0.01 * factor, array.dtype)
            yield _with_constant(
                instance, f"the constant {tensor.name} is {other.item():.6g}, not {array.item():.6g}", index, other
            )


def _overridable(instance: Instance) -> Iterator[Mutant]:
    for _, tensor, array in _floats(instance):
        info = helper.make_tensor_value_info(tensor.name, tensor.data_type, array.shape)
        mutant = _changed(instance, f"{tensor.name} can be overridden", lambda g, info=info: g.input.append(info))  # type: ignore[misc]
        with np.errstate(over="ignore"):
            other = np.asarray(array * 1.25 + 0.125, array.dtype)
        yield Mutant(mutant.change, mutant.proto, {**instance.feeds, tensor.name: other})


def _higher_rank(instance: Instance) -> Iterator[Mutant]:
    rank = max((a.ndim for a in instance.feeds.values()), default=0) + 2
    for index, tensor, array in _floats(instance):
        wider = array.reshape([1] * (rank - array.ndim) + list(array.shape))
        yield _with_constant(instance, f"the constant {tensor.name} has rank {rank}", index, wider)
    for position, (name, array) in enumerate(instance.feeds.items()):
        wider = array.reshape([1] * (rank - array.ndim) + list(array.shape))

        def edit(graph: onnx.GraphProto, position: int = position, wider: np.ndarray = wider) -> None:
            kind = graph.input[position].type.tensor_type.elem_type
            graph.input[position].CopyFrom(helper.make_tensor_value_info(graph.input[position].name, kind, wider.shape))

        mutant = _changed(instance, f"the input {name} has rank {rank}", edit)
        yield Mutant(mutant.change, mutant.proto, {**instance.feeds, name: wider})


def _other_integers(instance: Instance) -> Iterator[Mutant]:
    """Change axes, bounds and permutations: the integers that operators take as inputs."""
    for index, tensor in enumerate(instance.proto.graph.initializer):
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind != "i" or not array.size or array.ndim > 1:
            continue
        for other in _integers([int(i) for i in array.reshape(-1)]):
            changed = np.asarray(other, array.dtype).reshape(array.shape)
            yield _with_constant(instance, f"{tensor.name} is {changed.tolist()}, not {array.tolist()}", index, changed)


def _integers(given: list[int]) -> Iterator[list[int]]:
    """Variants: the first integer changed, and the first two different ones swapped."""
    if given[0] <= _LARGE:
        yield [0 if given[0] else 1, *given[1:]]
        if given[0] not in (-1, 0):  # the line above yields the same for these
            yield [given[0] + 1, *given[1:]]
    other = next((i for i, n in enumerate(given) if n != given[0]), None)
    if other is not None:
        exchanged = list(given)
        exchanged[0], exchanged[other] = exchanged[other], exchanged[0]
        yield exchanged


def _other_attributes(instance: Instance) -> Iterator[Mutant]:
    for index, node in enumerate(instance.proto.graph.node):
        for position, attribute in enumerate(node.attribute):
            for other in _attributes(attribute):

                def edit(graph: onnx.GraphProto, index: int = index, position: int = position, other: object = other) -> None:
                    there = graph.node[index].attribute[position]
                    there.CopyFrom(helper.make_attribute(there.name, other))

                yield _changed(instance, f"{node.name} has {attribute.name}={other}", edit)


def _attributes(attribute: AttributeProto) -> Iterator[object]:
    match attribute.type:
        case AttributeProto.INT if attribute.name != "to":
            yield 0 if attribute.i else 1
        case AttributeProto.FLOAT:
            yield attribute.f * 1.5 + 0.01
        case AttributeProto.INTS if attribute.ints:
            yield from _integers(list(attribute.ints))
        case AttributeProto.STRING:
            said = attribute.s.decode()
            yield from (w for w in _WORDS.get(attribute.name, ()) if w != said)


def _unsaid_attributes(instance: Instance) -> Iterator[Mutant]:
    """Set an attribute that the formula does not mention to another value than its default."""
    opset = next(o.version for o in instance.proto.opset_import if not o.domain)
    for index, node in enumerate(instance.proto.graph.node):
        known = schema(node.op_type, node.domain, 1 if node.domain else opset)
        said = {a.name for a in node.attribute}
        for name, spec in known.attributes.items() if known is not None else ():
            for other in _not_default(name, spec.default) if name not in said else ():

                def edit(graph: onnx.GraphProto, index: int = index, name: str = name, other: object = other) -> None:
                    graph.node[index].attribute.append(helper.make_attribute(name, other))

                yield _changed(instance, f"{node.name} has {name}={other}", edit)


def _not_default(name: str, default: object) -> Iterator[object]:
    match default:
        case int():
            yield 0 if default else 1
        case float():
            yield default * 2 + 0.5
        case str() | bytes():
            said = default.decode() if isinstance(default, bytes) else default
            yield from (w for w in _WORDS.get(name, ()) if w != said)


def _swapped(instance: Instance) -> Iterator[Mutant]:
    for index, node in enumerate(instance.proto.graph.node):
        if node.op_type in _ORDERED and len(node.input) >= 2:
            swapped = [node.input[1], node.input[0], *node.input[2:]]

            def edit(graph: onnx.GraphProto, index: int = index, swapped: list[str] = swapped) -> None:
                graph.node[index].input[:] = swapped

            yield _changed(instance, f"the inputs of {node.name} are swapped", edit)


def _read_elsewhere(instance: Instance) -> Iterator[Mutant]:
    constants = {o for n in instance.proto.graph.node if n.op_type == "Constant" for o in n.output}
    for value in instance.inner:
        if value in constants:
            continue
        kind = instance.types[value]
        declared = helper.make_tensor_value_info(value, kind, None)
        yield _changed(instance, f"{value} is a graph output", lambda g, declared=declared: g.output.append(declared))  # type: ignore[misc]
        reader = "Not" if kind == onnx.TensorProto.BOOL else "Neg"
        result = helper.make_tensor_value_info("read_elsewhere", kind, None)

        def consume(
            graph: onnx.GraphProto, value: str = value, reader: str = reader, result: onnx.ValueInfoProto = result
        ) -> None:
            graph.node.append(helper.make_node(reader, [value], ["read_elsewhere"], name="second_reader"))
            graph.output.append(result)

        yield _changed(instance, f"{value} has a second consumer", consume)

        def nest(graph: onnx.GraphProto, value: str = value, reader: str = reader, kind: int = kind) -> None:
            inner = helper.make_tensor_value_info("in_body", kind, None)
            body = helper.make_graph([helper.make_node(reader, [value], ["in_body"], name="captor")], "body", [], [inner])
            nodes = [
                helper.make_node("If", ["proof_condition"], ["read_elsewhere"], name="If", then_branch=body, else_branch=body)
            ]
            graph.node.extend(nodes)
            graph.input.append(helper.make_tensor_value_info("proof_condition", onnx.TensorProto.BOOL, []))
            graph.output.append(helper.make_tensor_value_info("read_elsewhere", kind, None))

        nested = _changed(instance, f"{value} is used in the body of an If", nest)
        yield Mutant(nested.change, nested.proto, {**instance.feeds, "proof_condition": np.asarray(True)})
