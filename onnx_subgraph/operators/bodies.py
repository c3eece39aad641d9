"""The function bodies of standard operators, from the installed onnx.

A body is a graph of simpler operators. Some bodies are fixed. Others depend on the call: on its attributes, the types of its
operands, and which optional operands are present.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnx_subgraph.operators.schemas import versions_of

if TYPE_CHECKING:
    import onnx

Operand = tuple[int, int | None]
"""The element type of a tensor (onnx's number) and its rank; the rank is None where it does not matter."""


def body_version(name: str, opset: int) -> int | None:
    """The version of an operator that is in force at `opset`; None where this version has no function body.

    For an operator introduced after `opset` it is the first version.
    """
    import onnx

    versions = versions_of(name, "")
    here = max((v for v in versions if v <= opset), default=min(versions, default=None))
    if here is None:
        return None
    source: Any = onnx.defs.get_schema(name, here, "")  # onnx's type stubs lack some members of a schema
    return here if source.has_function or source.has_context_dependent_function else None


def depends_on_call(name: str, version: int) -> bool:
    """Whether calls of an operator have bodies of different nodes; else the bodies differ in the values of attributes alone."""
    import onnx

    source: Any = onnx.defs.get_schema(name, version, "")
    return bool(source.has_context_dependent_function)


def body(
    name: str,
    version: int,
    attributes: Mapping[str, Any],
    operands: Sequence[Operand | None],
    results: int,
    opset: int | None = None,
) -> onnx.FunctionProto | None:
    """The function body of one call; None where this call has none.

    version: of the operator. operands: one for each input, None where it is omitted. results: how many outputs are requested.
    opset: the opset that the body should use, where onnx offers a choice. Attribute references are replaced by the call's values;
    the inputs and outputs of the body are the operator's, in the same order.
    """
    import onnx

    source: Any = onnx.defs.get_schema(name, version, "")
    if source.has_context_dependent_function:
        made = source.context_dependent_function_opset_versions
        call = _call(name, attributes, operands, results).SerializeToString()
        types = [_type(operand).SerializeToString() for operand in operands]
        data = source.get_context_dependent_function_with_opset_version(_nearest(made, opset), call, types)
    else:
        data = source.get_function_with_opset_version(_nearest(source.function_opset_versions, opset))
    if not data:
        return None
    function = onnx.FunctionProto()
    function.ParseFromString(data)
    made_here = {*function.input, *(name for node in function.node for name in node.output)}
    del function.output[results:]
    while function.output and function.output[-1] not in made_here:  # an optional output that this body does not compute
        del function.output[-1]
    if not function.node or not all(name in made_here for name in function.output) or not function.output:
        return None
    _put_in(function, {**_defaults(source), **{a.name: a for a in _call(name, attributes, (), 1).attribute}})
    return function


def _nearest(versions: Sequence[int], opset: int | None) -> int:
    """The latest version that is at most `opset`; the first version where all are later."""
    return max((v for v in versions if opset is None or v <= opset), default=min(versions))


def _call(name: str, attributes: Mapping[str, Any], operands: Sequence[Operand | None], results: int) -> onnx.NodeProto:
    import onnx

    inputs = [f"i{index}" if operand is not None else "" for index, operand in enumerate(operands)]
    while inputs and not inputs[-1]:
        inputs.pop()
    return onnx.helper.make_node(name, inputs, [f"o{index}" for index in range(results)], **attributes)


def _type(operand: Operand | None) -> onnx.TypeProto:
    import onnx

    if operand is None:
        return onnx.TypeProto()
    dtype, rank = operand
    return onnx.helper.make_tensor_type_proto(dtype, None if rank is None else [None] * rank)


def _defaults(source: onnx.defs.OpSchema) -> dict[str, onnx.AttributeProto]:
    return {name: a.default_value for name, a in source.attributes.items() if a.default_value.name}


def _put_in(function: onnx.FunctionProto, attributes: Mapping[str, onnx.AttributeProto]) -> None:
    """Replace every reference to an attribute by the attribute's value in the call, or remove it where the call has none."""
    for node in function.node:
        for index in reversed(range(len(node.attribute))):
            attribute = node.attribute[index]
            if not attribute.ref_attr_name:
                continue
            given = attributes.get(attribute.ref_attr_name)
            if given is None:
                del node.attribute[index]
                continue
            name = attribute.name
            attribute.CopyFrom(given)
            attribute.name = name
