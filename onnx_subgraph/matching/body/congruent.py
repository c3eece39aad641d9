"""Whether a graph computes what an operator would: the function body of one call, held against the graph by value numbers.

The body is made for the operands as they are, with their types, shapes and constants; its shapes are inferred, its constants
folded and its values numbered like those of the graph. Results of equal numbers are the same computation of the same values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import onnx_ir as ir
from onnx_shape_inference import SYM_DATA_KEY

from onnx_subgraph.matching.numbering import Numbering
from onnx_subgraph.matching.view import View
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.shapes import SHAPE_DATA, infer_shapes
from onnx_subgraph.operators.bodies import body

_ANONYMOUS = re.compile(r"\b_d(?=\d)")
"""What shape inference calls dimensions of which it knows nothing; in a body others have these names."""


def result_numbers(
    view: View, name: str, version: int, attributes: Mapping[str, object], operands: Sequence[ir.Value | None], results: int
) -> list[int] | None:
    """The number, among the values of `view`, of each result of one call; None where it can't be made."""
    if any(v is not None and v.dtype is None for v in operands):
        return None
    types = [None if v is None else (int(v.dtype or 0), None if v.shape is None else v.shape.rank()) for v in operands]
    opset = view.opsets.get("", 1)
    try:
        proto = body(name, version, attributes, types, results, max(opset, version))
    except Exception:  # onnx refuses a call that can't be
        return None
    if proto is None:
        return None
    function = ir.serde.deserialize_function(proto)
    graph = function.graph
    formals = tuple(graph.inputs)
    for formal, value in zip(formals, operands, strict=False):
        if value is not None:
            _stand_for(formal, value, view)
    graph.inputs[:] = [f for f in formals if f.const_value is None]
    for formal in formals:
        if formal.const_value is not None:
            graph.register_initializer(formal)
    model = ir.Model(graph, ir_version=10)
    infer_shapes(model)
    inner = View(graph, Constants(model), dict(graph.opset_imports), graph)
    numbering = Numbering(inner.constants, inner.schema, lambda value: inner.through(value)[0], beside=view.numbering)
    for formal, value in zip(formals, operands, strict=False):
        if value is not None:
            numbering.assume(formal, view.numbering.of(value))
    for node in graph:
        numbering.add(node)
    return [numbering.of(value) for value in graph.outputs[:results]]


def _stand_for(formal: ir.Value, value: ir.Value, view: View) -> None:
    """Let an input of a body be what an operand is."""
    formal.type = value.type
    if value.shape is not None:
        formal.shape = ir.Shape([_dimension(d) for d in value.shape])
    array = view.constants.array(value)
    if array is not None:
        formal.const_value = ir.Tensor(array, name=formal.name)
    elif SHAPE_DATA in value.meta:
        data = [d if isinstance(d, int) else _dimension(d).value for d in value.meta[SHAPE_DATA]]  # type: ignore[union-attr]
        formal.metadata_props[SYM_DATA_KEY] = json.dumps(data)


def _dimension(dim: int | ir.SymbolicDim) -> int | ir.SymbolicDim:
    return dim if isinstance(dim, int) or dim.value is None else ir.SymbolicDim(_ANONYMOUS.sub("_known_", dim.value))
