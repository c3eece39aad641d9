"""An attribute as ONNX stores it, by the function of its kind: `ir.to_proto` finds the kind by asking seven protocols in turn."""

from __future__ import annotations

import onnx
import onnx_ir as ir


def attribute_proto(attribute: ir.Attr) -> onnx.AttributeProto:
    """The attribute in ONNX's format: its value, or the attribute of a function that it refers to."""
    write = ir.serde.serialize_reference_attribute if attribute.is_ref() else ir.serde.serialize_attribute
    return write(attribute)
