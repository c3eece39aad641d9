"""Operator schemas: the formal inputs, attributes and defaults of every operator we know.

The ONNX standard comes from the installed onnx, with its history; onnxruntime's own operators from a table made by
`benchmarks/operator_table.py`, so that reading patterns needs no onnxruntime. onnx is imported on the first question.
"""

from onnx_subgraph.operators.axes import counts_in_result, is_axis, is_ordered
from onnx_subgraph.operators.elementwise import is_elementwise
from onnx_subgraph.operators.schemas import (
    AttributeSpec,
    Formal,
    Schema,
    domains,
    formal_at,
    history,
    is_standard,
    latest_opset,
    operator_names,
    schema,
    schema_of_anything,
)

__all__ = [
    "AttributeSpec",
    "Formal",
    "Schema",
    "counts_in_result",
    "domains",
    "formal_at",
    "history",
    "is_axis",
    "is_elementwise",
    "is_ordered",
    "is_standard",
    "latest_opset",
    "operator_names",
    "schema",
    "schema_of_anything",
]
