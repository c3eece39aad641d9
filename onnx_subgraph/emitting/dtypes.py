"""Element types of values in a replacement: from the schema, or the default for a constant without a type."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from onnx_subgraph.emitting.refused import Refused
from onnx_subgraph.model.element_types import tensor_type
from onnx_subgraph.operators import formal_at, schema


def declared(
    node: ir.Node, output: ir.Value, opset_imports: Mapping[str, int], dtype_of: Callable[[ir.Value], ir.DataType | None]
) -> ir.DataType | None:
    """The dtype that the schema gives a result, or None where it does not determine one.

    It is the only allowed one, that of an input with the same type variable, or the target of a Cast.
    """
    if node.op_type == "Cast" and not node.domain:
        return ir.DataType(node.attributes["to"].as_int())
    known = schema(node.op_type, node.domain, opset_imports.get(node.domain, 1))
    if known is None:
        return None
    formal = formal_at(known.outputs, node.outputs.index(output))
    if len(formal.types) == 1:
        return _DTYPES.get(next(iter(formal.types)))  # for example Shape, IsNaN or a comparison
    variable = formal.variable
    alike = (v for i, v in enumerate(node.inputs) if v is not None and formal_at(known.inputs, i).variable == variable)
    source = next(alike, None) if variable else None
    return None if source is None else dtype_of(source)


def is_narrower(dtype: ir.DataType | None, than: ir.DataType) -> bool:
    """Whether both are floating, and `dtype` has fewer bits."""
    return dtype is not None and dtype.is_floating_point() and than.is_floating_point() and dtype.itemsize < than.itemsize


_DTYPES = {tensor_type(dtype): dtype for dtype in ir.DataType if dtype is not ir.DataType.UNDEFINED}
"""The name of a tensor's type in schemas → the dtype."""


def plainest(array: np.ndarray) -> ir.DataType:
    """The default dtype of a constant whose numbers alone are given. Raises Refused where no tensor type holds them."""
    if array.dtype.kind == "b":
        return ir.DataType.BOOL
    if array.dtype.kind in "iu":
        return ir.DataType.INT64
    if array.dtype.kind == "f":
        return ir.DataType.FLOAT if array.dtype == np.float64 else ir.DataType.from_numpy(array.dtype)
    try:
        return ir.DataType.from_numpy(array.dtype)
    except TypeError as error:
        raise Refused(f"{array!r} can't be a constant of the model") from error
