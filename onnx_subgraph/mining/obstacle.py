"""Why a node is no part of a formula that is written from a model."""

from __future__ import annotations

from math import isfinite

import onnx_ir as ir

from onnx_subgraph.matching.attributes import is_over_several_axes
from onnx_subgraph.matching.expansion import expansions
from onnx_subgraph.matching.view import View
from onnx_subgraph.model.element_types import FLOATS, numpy_name
from onnx_subgraph.model.nested import has_bodies
from onnx_subgraph.operators.randomness import RANDOM
from onnx_subgraph.operators.schemas import schema

_BY_SHAPE = frozenset({"Expand", "Resize", "ConstantOfShape", "Range", "Shape", "Size"})
"""Operators whose result follows from a shape that is computed beside them."""


def obstacle(view: View, node: ir.Node) -> str:
    """Why a node is no step of its own, or "": it computes floats, and a formula can say what from its inputs and attributes.

    No proof draws strings.
    """
    result = node.outputs[0] if node.outputs else None
    if node.op_type in _BY_SHAPE:
        return "its result follows from a shape"
    if has_bodies(node):
        return "it has a body"
    if result is None or result.dtype not in FLOATS:
        return "it has no result" if result is None else f"it computes {_type(result)}, not floating-point values"
    if result.shape is None:
        return "the shape of its result is not known"
    if node.op_type in RANDOM:
        return "it draws random numbers"
    if view.schema(node) is None:
        return "its operator is not known"
    if schema(node.op_type, node.domain) is None:
        return "its operator was taken out of the standard, and no model of a later opset has it"
    if is_over_several_axes(view, node):
        return "it is over several axes, as before opset 13"
    if any(value is not None and value.dtype == ir.DataType.STRING for value in node.inputs):
        return "it reads text"
    numbers = (view.scalar(value) for value in node.inputs if value is not None)
    if not all(isfinite(scalar.number) for scalar in numbers if scalar is not None):
        return "it reads a number that is not finite"
    if view.constants.is_constant(result):
        return "it computes a constant"
    idle = view.through(result)[0] is not result or any(_is_idle(view, result, is_product=p) for p in (False, True))
    return "it changes nothing" if idle else ""


def _type(value: ir.Value) -> str:
    return "an unknown type" if value.dtype is None else numpy_name(value.dtype)


def _is_idle(view: View, value: ir.Value, *, is_product: bool) -> bool:
    """Whether a value is a sum with 0, or a product with 1."""
    steps = expansions(view, is_product=is_product)
    step = steps.of(value)
    return step is not None and bool(step.scalars) and step.constant == steps.neutral
