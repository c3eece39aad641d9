"""Operator schemas: the formal inputs, outputs, attributes and defaults of every known operator.

The schemas of the ONNX standard, with their history, come from the installed onnx. The schemas of onnxruntime's operators come
from a table that `benchmarks/operator_table.py` writes, so that reading patterns does not need onnxruntime. onnx is imported when
the first schema is looked up.
"""

from onnx_subgraph.operators.axes import counts_in_result, is_axis, is_ordered
from onnx_subgraph.operators.elementwise import is_elementwise
from onnx_subgraph.operators.schemas import (
    AttributeSpec,
    Formal,
    Schema,
    canonical,
    domains,
    formal_at,
    history,
    is_domain,
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
    "canonical",
    "counts_in_result",
    "domains",
    "formal_at",
    "history",
    "is_axis",
    "is_domain",
    "is_elementwise",
    "is_ordered",
    "is_standard",
    "latest_opset",
    "operator_names",
    "schema",
    "schema_of_anything",
]
