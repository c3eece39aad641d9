"""Raise a model to a newer opset of the default domain, so that it can contain newer operators.

onnx's version converter rewrites the operators of a skeleton. Large weights are taken out first and put back by name, so models
over 2 GiB can be raised and no weight is copied. What the converter would refuse or drop (operators without a schema, functions,
metadata, doc strings) is hidden from it and put back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeVar

import onnx
import onnx_ir as ir

from onnx_subgraph.errors import ModelError
from onnx_subgraph.model import shapes

T = TypeVar("T")

_KEPT = "onnx_subgraph.kept"
"""A domain for nodes that the converter must not change."""

_SMALL = 1 << 16
"""Maximum size in bytes of an initializer that the converter may read: axes, scales, sizes."""

_FLATTENING = frozenset({"Softmax", "LogSoftmax", "Hardmax"})
"""Operators that flatten their operand to two dimensions before opset 13. For the last axis both meanings are the same."""


def raise_opset(model: ir.Model, opset: int) -> ir.Model:
    """A new model at `opset` of the default domain. The old model is unchanged; both share their weights.

    Inputs, outputs, names, metadata and unknown domains stay as they are. Functions are raised too, because onnx's checker
    requires one version of an operator in the whole model. Inferred shapes are kept for values that still exist. New constants
    have those of their tensors.
    Raises ModelError with the converter's reason where it fails.
    """
    current = model.opset_imports.get("")
    if current is None or current > opset:
        raise ModelError(f"a model at opset {current} cannot be brought to opset {opset}", hint="only raising is possible")
    _check_meanings(model, current, opset)
    skeleton = _skeleton(model)
    if current < opset:
        converted = _converted(skeleton, current, opset)
    else:
        converted = skeleton
    for node in _nodes(converted.graph):
        if node.domain == _KEPT:
            node.domain = ""
        if current < _WITH_MODES <= opset and node.op_type == "Resize" and not node.domain:
            _as_before_modes(node)
    del converted.functions[:]
    converted.functions.extend(_raised_function(ir.to_proto(f), opset) for f in model.functions.values())
    raised = ir.from_proto(converted)
    _put_back(model, raised, opset)
    shapes.shape_constants(raised)
    _check(model, raised)
    return raised


def _converted(proto: onnx.ModelProto, current: int, opset: int) -> onnx.ModelProto:
    """The result of onnx's converter. Raises ModelError with its reason."""
    try:
        return onnx.version_converter.convert_version(proto, opset)
    except Exception as error:  # the converter raises what its adapters raise
        reason = (str(error).splitlines() or [""])[0].split("failed: ")[-1]
        raise ModelError(
            f"the model cannot be raised from opset {current} to {opset}: {reason}", hint="keep its opset (--opset keep)"
        ) from error


def _skeleton(model: ir.Model) -> onnx.ModelProto:
    """The model as a protobuf without large weights and functions. Nodes that cannot be converted are in the domain `_KEPT`."""
    weights = [(value, value.const_value) for graph in model.graphs() for value in graph.initializers.values()]
    unique = _by_name((value.name, value) for owner, inside in shapes.scopes(model) if owner is None for value in inside)
    flattening = [node for node in model.graph.all_nodes() if node.op_type in _FLATTENING and not node.domain]
    agreeing = {node.outputs[0].name for node in flattening if _agrees(node)}
    agreeing -= {node.outputs[0].name for node in flattening if not _agrees(node)}  # bodies may use a name again
    try:
        for value, tensor in weights:
            if tensor is not None and tensor.nbytes > _SMALL and value.name in unique:
                empty = onnx.TensorProto(name=value.name, dims=list(tensor.shape.numpy()), data_type=int(tensor.dtype))
                value.const_value = ir.serde.deserialize_tensor(empty)
        proto = ir.to_proto(model)
    finally:
        for value, tensor in weights:
            value.const_value = tensor
    del proto.functions[:]
    before_13 = model.opset_imports.get("", 1) < 13
    for node in _nodes(proto.graph):
        if node.domain:
            continue
        if before_13 and node.op_type in _FLATTENING and node.output[0] in agreeing:
            del node.attribute[:]
            node.attribute.append(onnx.helper.make_attribute("axis", -1))
            node.domain = _KEPT
        elif not onnx.defs.has(node.op_type):
            node.domain = _KEPT
    proto.opset_import.append(onnx.OperatorSetIdProto(domain=_KEPT, version=1))
    return proto


def _check_meanings(model: ir.Model, current: int, opset: int) -> None:
    """Raise ModelError for operators whose meaning changed and that the converter leaves as they are."""
    inside = [
        (node, function.opset_imports.get("", current)) for function in model.functions.values() for node in function.all_nodes()
    ]
    for node, before in (*((node, current) for node in model.graph.all_nodes()), *inside):
        flattens = before < 13 <= opset and node.op_type == "Hardmax" and not _agrees(node)
        samples = before < _WITH_MODES <= opset and node.op_type in ("Resize", "Upsample") and node.graph is not model.graph
        masks = before < 12 <= opset and node.op_type == "Dropout" and len(node.outputs) > 1 and bool(node.outputs[1].name)
        if not node.domain and (flattens or samples or masks):
            raise ModelError(
                f"the model cannot be raised from opset {current} to {opset}: {node.op_type} has another meaning there",
                hint="keep its opset (--opset keep)",
            )


_WITH_MODES = 11
"""The opset since which Resize says which positions it samples.

Before, Resize and Upsample had one way. `_as_before_modes` writes it, but for the nearest element at scales below 1, where it is
another one; so only in the main graph, where verification sees it.
"""


def _as_before_modes(node: onnx.NodeProto) -> None:
    """Let a Resize sample where it did before opset 11. onnx's converter leaves the default, which is another way."""
    kept = [a for a in node.attribute if a.name not in ("coordinate_transformation_mode", "nearest_mode")]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.append(onnx.helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
    node.attribute.append(onnx.helper.make_attribute("nearest_mode", "floor"))


def _agrees(node: ir.Node) -> bool:
    axis = node.attributes.get("axis")
    value = node.inputs[0]
    if value is None or value.shape is None or (axis is not None and axis.is_ref()):
        return False
    number = axis.as_int() if axis is not None else 1
    return number in (-1, len(value.shape) - 1)


def _raised_function(function: onnx.FunctionProto, opset: int) -> onnx.FunctionProto:
    """The function with its body at `opset`. Raises ModelError where an operator cannot be converted."""
    own = next((o for o in function.opset_import if not o.domain), None)
    if own is None or own.version >= opset:
        return function
    body = onnx.helper.make_graph(
        function.node,
        function.name,
        [onnx.helper.make_empty_tensor_value_info(name) for name in function.input],
        [onnx.helper.make_empty_tensor_value_info(name) for name in function.output],
    )
    for node in _nodes(body):
        if not node.domain and (_is_same(node.op_type, own.version, opset) or any(a.ref_attr_name for a in node.attribute)):
            _check_meaning(node, own.version, opset, function.name)
            node.domain = _KEPT
    imports = [*(o for o in function.opset_import), onnx.helper.make_opsetid(_KEPT, 1)]
    converted = _converted(onnx.helper.make_model(body, opset_imports=imports), own.version, opset).graph
    given = {n.output[0]: n for n in _nodes(function) if any(a.ref_attr_name for a in n.attribute)}
    names = Counter(n.output[0] for n in _nodes(function) if n.output)
    if again := next((name for name in given if names[name] > 1), None):
        message = f"two nodes of the function {function.name} give '{again}', and one takes an attribute of its caller"
        raise ModelError(f"the model cannot be raised to {opset}: {message}", hint="keep its opset (--opset keep)")
    for node in _nodes(converted):
        if node.domain == _KEPT:
            node.domain = ""
        if node.output and node.output[0] in given:  # the converter does not support attribute references
            del node.attribute[:]
            node.attribute.extend(given[node.output[0]].attribute)
    constants = [onnx.helper.make_node("Constant", [], [t.name], value=t) for t in converted.initializer]
    raised = onnx.FunctionProto()
    raised.CopyFrom(function)
    del raised.node[:]
    raised.node.extend([*constants, *converted.node])
    next(o for o in raised.opset_import if not o.domain).version = opset
    return raised


def _is_same(operator: str, before: int, after: int) -> bool:
    """Whether both opsets have the same version of the operator, or the operator is not in the default domain."""
    if not onnx.defs.has(operator):
        return True
    try:
        old, new = (onnx.defs.get_schema(operator, version) for version in (before, after))
    except onnx.defs.SchemaError:
        return False
    return bool(old.since_version == new.since_version)


def _check_meaning(node: onnx.NodeProto, before: int, after: int, function: str) -> None:
    """Raise ModelError where an operator with an attribute reference changed between the opsets: it cannot be converted."""
    if not _is_same(node.op_type, before, after):
        raise ModelError(
            f"the model cannot be raised from opset {before} to {after}: "
            f"{node.op_type} in function {function} takes an attribute of its caller, and changed",
            hint="keep its opset (--opset keep)",
        )


def _nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)
            for body in attribute.graphs:
                yield from _nodes(body)


def _put_back(model: ir.Model, raised: ir.Model, opset: int) -> None:
    """Put back by name what the converter does not support."""
    raised.opset_imports.clear()
    raised.opset_imports.update(model.opset_imports)
    raised.opset_imports[""] = opset
    old_ir, raised.ir_version = model.ir_version, max(model.ir_version, _ir_version(opset))
    raised.producer_name, raised.producer_version = model.producer_name, model.producer_version
    raised.domain, raised.model_version, raised.doc_string = model.domain, model.model_version, model.doc_string
    raised.metadata_props.update(model.metadata_props)
    raised.meta.update(model.meta)
    raised.graph.name, raised.graph.doc_string = model.graph.name, model.graph.doc_string
    raised.graph.metadata_props.update(model.graph.metadata_props)
    _put_back_values(model, raised)
    _put_back_nodes(model, raised)
    if old_ir < 4:
        # Before IR version 4 an initializer had to be an input, but was constant. As an input of a newer model it could be
        # overridden.
        for value in [value for value in raised.graph.inputs if value.is_initializer()]:
            raised.graph.inputs.remove(value)


def _ir_version(opset: int) -> int:
    try:
        return onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])
    except ValueError:  # a future opset
        return int(onnx.IR_VERSION)


def _put_back_values(model: ir.Model, raised: ir.Model) -> None:
    old = {owner: _by_name((value.name, value) for value in inside) for owner, inside in shapes.scopes(model)}
    for owner, inside in shapes.scopes(raised):
        for value in inside:
            _put_back_value(old[owner].get(value.name), value)


def _put_back_value(before: ir.Value | None, value: ir.Value) -> None:
    if before is None:
        value.type = value.shape = None
        value.meta[shapes.DECLARED] = (None, None)
        return
    value.type, value.shape, value.doc_string = before.type, before.shape, before.doc_string
    value.metadata_props.update(before.metadata_props)
    value.meta.update(before.meta)
    if value.is_initializer() and before.is_initializer():
        value.const_value = before.const_value


def _put_back_nodes(model: ir.Model, raised: ir.Model) -> None:
    nodes = list(model.graph.all_nodes())
    by_name = _by_name((node.name, node) for node in nodes)
    by_result = _by_name((node.outputs[0].name, node) for node in nodes if node.outputs)
    taken = {node.name for node in nodes}
    for node in raised.graph.all_nodes():
        before = by_name.get(node.name) or by_result.get(node.outputs[0].name if node.outputs else None)
        if before is not None and before.op_type == node.op_type:
            node.name, node.doc_string = before.name, before.doc_string
            node.metadata_props.update(before.metadata_props)
            node.meta.update(before.meta)
        elif not node.name and node.outputs and f"{node.op_type}_{node.outputs[0].name}" not in taken:
            node.name = f"{node.op_type}_{node.outputs[0].name}"


def _by_name(named: Iterable[tuple[str | None, T]]) -> dict[str | None, T]:
    """Name → item, without names that several items share."""
    found: dict[str | None, T] = {}
    several: set[str | None] = {None, ""}
    for name, thing in named:
        several.update({name} if name in found else ())
        found[name] = thing
    return {name: thing for name, thing in found.items() if name not in several}


def _check(model: ir.Model, raised: ir.Model) -> None:
    """Raise ModelError where the converter changed the inputs or outputs, or lost a weight that is an input."""
    real = [value for value in model.graph.inputs if model.ir_version >= 4 or not value.is_initializer()]
    for what, before, after in (("inputs", real, raised.graph.inputs), ("outputs", model.graph.outputs, raised.graph.outputs)):
        if model.ir_version < 4 and raised.ir_version < 4 and what == "inputs":
            before = list(model.graph.inputs)
        if [(value.name, value.dtype) for value in before] != [(value.name, value.dtype) for value in after]:
            raise ModelError(f"raising the opset would change the {what} of the model", hint="keep its opset (--opset keep)")
    lost = sorted(set(model.graph.initializers) - set(raised.graph.initializers))
    used = [name for name in lost if model.graph.initializers[name].is_graph_input()]
    if used:
        raise ModelError(f"raising the opset would lose the weight '{used[0]}'", hint="keep its opset (--opset keep)")
