"""Copy a fragment, to use it at another place of the same kind."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from onnx_subgraph.emitting.fragment import Fragment


def replica(fragment: Fragment, values: Mapping[ir.Value, ir.Value]) -> Fragment:
    """A copy that reads other values of the graph. values: the value that the fragment reads → the one that the copy reads.

    A copy shares the definitions of functions, and no values or nodes.
    """
    new: dict[ir.Value, ir.Value] = {}
    copied = Fragment(fragment.opset_imports, fragment.constant_of, fragment.fold_constants, functions=[*fragment.functions])
    for stand_in, value in fragment.read.items():
        new[stand_in] = _alike(stand_in)
        copied.read[new[stand_in]] = values.get(value, value)
    for constant in fragment.constants:
        new[constant] = _alike(constant)
        new[constant].const_value = _tensor(constant.const_value)
        copied.constants.append(new[constant])
    for node in fragment.nodes:
        outputs = [_alike(output) for output in node.outputs]
        new |= zip(node.outputs, outputs, strict=True)
        inputs = [None if value is None else new[value] for value in node.inputs]
        attributes = node.attributes.values()
        copied.nodes.append(ir.Node(node.domain, node.op_type, inputs, attributes, overload=node.overload, outputs=outputs))
    copied.provides.update((name, new[value]) for name, value in fragment.provides.items())
    return copied


def _alike(value: ir.Value) -> ir.Value:
    shape = None if value.shape is None else ir.Shape(value.shape)
    return ir.Value(name=value.name, type=value.type, shape=shape, const_value=value.const_value)


def _tensor(tensor: ir.TensorProtocol | None) -> ir.TensorProtocol | None:
    """A tensor of its own, because it gets the name of its initializer."""
    return None if tensor is None else ir.Tensor(tensor.numpy(), dtype=tensor.dtype)
