"""Convert an attribute to protobuf with the function for its kind. `ir.to_proto` would first check seven protocols in turn."""

from __future__ import annotations

import onnx
import onnx_ir as ir


def attribute_proto(attribute: ir.Attr) -> onnx.AttributeProto:
    """The attribute as protobuf: its value, or its reference to an attribute of the enclosing function."""
    write = ir.serde.serialize_reference_attribute if attribute.is_ref() else ir.serde.serialize_attribute
    return write(attribute)
