"""Read an attribute as numbers or texts, and write it as protobuf."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

SINGLE = frozenset({ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING})
_LISTS = frozenset({ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS})


def plain_value(attribute: ir.Attr) -> Any:
    """The number or text that an attribute holds, or a tuple of them; None for a tensor, a graph and a reference."""
    if attribute.is_ref():
        return None
    if attribute.type in SINGLE:
        return attribute.value
    return tuple(attribute.value) if attribute.type in _LISTS else None


def attribute_proto(attribute: ir.Attr) -> onnx.AttributeProto:
    """The attribute as protobuf: its value, or its reference to an attribute of the enclosing function.

    `ir.to_proto` would first check seven protocols in turn.
    """
    write = ir.serde.serialize_reference_attribute if attribute.is_ref() else ir.serde.serialize_attribute
    return write(attribute)
