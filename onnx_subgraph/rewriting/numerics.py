"""How far our kernels may round: an attribute on the nodes that they compute.

The definition ignores the attribute: if a runtime inlines it, the model computes in float32.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

import onnx_ir as ir

from onnx_subgraph.operators.names import OWN_DOMAIN
from onnx_subgraph.targets import FLOAT32

ATTRIBUTE = "numerics"
OPERATORS = ("Linear", "Attention")


def products(model: ir.Model) -> Iterator[ir.Node]:
    """The nodes whose kernels may round: products with weights, and attention."""
    nodes = chain(model.graph.all_nodes(), *(function.all_nodes() for function in model.functions.values()))
    return (node for node in nodes if node.domain == OWN_DOMAIN and node.op_type in OPERATORS)


def allow_rounding(model: ir.Model, numerics: str, results: Collection[str] | None) -> None:
    """Set the attribute on products, and remove it from all others. Changes `model`.

    results: the result names of the products that may be rounded; None for all. For float32 no attribute is set.
    """
    for function in model.functions.values():
        if numerics != FLOAT32 and function.domain == OWN_DOMAIN and function.name in OPERATORS:
            function.attributes[ATTRIBUTE] = ir.Attr(ATTRIBUTE, ir.AttributeType.STRING, None)
    for node in products(model):
        node.attributes.pop(ATTRIBUTE, None)
        if numerics != FLOAT32 and (results is None or node.outputs[0].name in results):
            node.attributes[ATTRIBUTE] = ir.AttrString(ATTRIBUTE, numerics)
