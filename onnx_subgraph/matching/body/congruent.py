"""Check that a graph computes an operator: compare the function body of one call with the graph by value numbers.

The body is made for the actual operands: their types, shapes and small constants. Its shapes are inferred, its constants folded,
and its values numbered like those of the graph. Results with equal numbers are the same computation of the same values. Layers of
a model make the same calls, so bodies are cached by the description of their operands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_shape_inference import SYM_DATA_KEY

from onnx_subgraph.matching.numbering import Numbering, content
from onnx_subgraph.matching.view import View
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import SHAPE_DATA, infer_shapes
from onnx_subgraph.operators.bodies import body

_ANONYMOUS = re.compile(r"\b_d(?=\d)")
"""Inference's names of unknown dimensions. In a body they are renamed, because its own unknown dimensions have the same names."""
_FEW = 16
"""Maximum number of elements of a constant in an operand's description; larger constants do not affect shapes."""

Dim = int | str | None


@dataclass(frozen=True, slots=True)
class _Operand:
    """The description of an operand: type, shape, the elements of a small constant, and elements known as sizes."""

    dtype: ir.DataType
    shape: tuple[Dim, ...] | None
    held: tuple[str, tuple[int, ...], bytes] | None
    sizes: tuple[Dim, ...] | None
    array: np.ndarray | None = field(compare=False)


def result_numbers(
    view: View, name: str, version: int, attributes: Mapping[str, object], operands: Sequence[ir.Value | None], results: int
) -> list[int] | None:
    """The number of each result of a call, among the values of `view`; None where the body cannot be made."""
    if any(v is not None and not isinstance(v.type, ir.TensorType) for v in operands):
        return None
    opset = max(view.opsets.get("", 1), version)
    described = tuple(None if v is None else _described(v, view) for v in operands)
    made = _made(name, version, tuple(sorted(attributes.items())), described, results, opset)
    if made is None:
        return None
    formals, inner = made
    numbering = Numbering(inner.constants, inner.schema, lambda value: inner.through(value)[0], beside=view.numbering)
    for formal, value in zip(formals, operands, strict=False):
        if value is not None:
            numbering.assume(formal, view.numbering.of(value))
    for node in inner.nodes:
        numbering.add(node)
    return [numbering.of(value) for value in inner.graph.outputs[:results]]


def _described(value: ir.Value, view: View) -> _Operand:
    assert value.dtype is not None
    shape = None if value.shape is None else tuple(map(_dimension, value.shape))
    held = content(value, view.constants, _FEW)
    if held is not None:
        return _Operand(value.dtype, shape, held, None, view.constants.array(value))
    sizes = tuple(map(_dimension, value.meta[SHAPE_DATA])) if SHAPE_DATA in value.meta else None
    return _Operand(value.dtype, shape, None, sizes, None)


def _dimension(dim: int | ir.SymbolicDim) -> Dim:
    if isinstance(dim, int):
        return dim
    return None if dim.value is None else _ANONYMOUS.sub("_known_", dim.value)


@lru_cache(maxsize=256)
def _made(
    name: str,
    version: int,
    attributes: tuple[tuple[str, Any], ...],
    operands: tuple[_Operand | None, ...],
    results: int,
    opset: int,
) -> tuple[tuple[ir.Value, ...], View] | None:
    """The formal inputs of the body of a call, and the body; None where there is none."""
    types = [None if o is None else (int(o.dtype), None if o.shape is None else len(o.shape)) for o in operands]
    try:
        proto = body(name, version, dict(attributes), types, results, opset)
    except Exception:  # onnx refuses an invalid call
        return None
    if proto is None:
        return None
    graph = ir.serde.deserialize_function(proto).graph
    formals = tuple(graph.inputs)
    for formal, operand in zip(formals, operands, strict=False):
        if operand is not None:
            _stand_for(formal, operand)
    graph.inputs[:] = [f for f in formals if f.const_value is None]
    for formal in formals:
        if formal.const_value is not None:
            graph.register_initializer(formal)
    model = ir.Model(graph, ir_version=10)
    infer_shapes(model)
    return formals, View(graph, Constants(model), dict(graph.opset_imports), graph)


def _stand_for(formal: ir.Value, operand: _Operand) -> None:
    """Give an input of a body the type, shape and elements of an operand."""
    formal.type = ir.TensorType(operand.dtype)
    formal.shape = None if operand.shape is None else ir.Shape(operand.shape)
    if operand.array is not None:
        formal.const_value = ir.Tensor(operand.array, name=formal.name)
    elif operand.sizes is not None:
        formal.metadata_props[SYM_DATA_KEY] = json.dumps(operand.sizes)
