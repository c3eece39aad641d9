"""Find types and shapes by running the model, for operators of a user's library that have no inference rule.

The model is run on the feeds of the reference, which gives the type and shape of each result. A dimension is identified with an
input dimension if it equals that one in every run. It is a constant if it is the same in runs of different sizes. Otherwise it
stays unknown. Rewrites that rely on this are verified like all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_subgraph.model.shapes import DECLARED, infer_shapes
from onnx_subgraph.operators.names import KNOWN_DOMAINS, OWN_DOMAIN
from onnx_subgraph.verification.capture import Capture
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.sessions import Failure

Dim = int | ir.SymbolicDim
LEAST = 2
"""The number of runs needed to determine a dimension."""


def of_unknown_operators(model: ir.Model) -> list[ir.Value]:
    """The results of unknown operators in the main graph whose type or rank is not known."""
    return [
        value
        for node in model.graph
        if node.domain not in KNOWN_DOMAINS and node.domain != OWN_DOMAIN and node.op_identifier() not in model.functions
        for value in node.outputs
        if value.name and (value.dtype is None or value.shape is None)
    ]


def find_shapes(model: ir.Model, source: Path, provider: str, cases: Sequence[Case] | Failure, *, declared: bool = False) -> None:
    """Give the results of unknown operators the types and shapes that they have in every run, and infer the rest from them.

    source: the file that the model was read from. cases: what it runs on; a Failure changes nothing. declared: also write types
    and ranks into files made from the model; sessions of its parts need them.
    """
    values = of_unknown_operators(model)
    if not values or isinstance(cases, Failure):
        return
    capture = Capture(model, source, provider)
    captured = list(capture([str(value.name) for value in values], [case.feeds for case in cases]))
    runs = [run for run in captured if not isinstance(run, Failure)]
    if not runs or len(runs) < len(captured):
        return
    known = _dimensions(model, cases)
    for value in values:
        arrays = [run[str(value.name)] for run in runs]
        if not all(isinstance(array, np.ndarray) for array in arrays) or len({(a.dtype, a.ndim) for a in arrays}) != 1:
            continue
        value.type = ir.TensorType(ir.DataType.from_numpy(arrays[0].dtype))
        value.shape = ir.Shape([_dimension(sizes, known) for sizes in zip(*(a.shape for a in arrays), strict=True)])
    values += [value for node in model.graph for value in node.outputs if value.dtype is None or value.shape is None]
    infer_shapes(model)
    for value in values if declared else ():
        if value.dtype is not None and value.shape is not None and not value.is_graph_output():  # outputs keep their declaration
            value.meta[DECLARED] = (value.type, ir.Shape([None] * len(value.shape)))


def _dimensions(model: ir.Model, cases: Sequence[Case]) -> dict[Dim, tuple[int, ...]]:
    """The symbolic dimensions of inputs → their sizes, one per run."""
    found: dict[Dim, tuple[int, ...]] = {}
    for value in model.graph.inputs:
        arrays: list[Any] = [case.feeds.get(str(value.name)) for case in cases]
        if value.shape is not None and all(isinstance(array, np.ndarray) for array in arrays):
            for axis, dim in enumerate(value.shape):
                if not isinstance(dim, int) and dim.value is not None:
                    found[dim] = tuple(array.shape[axis] for array in arrays)
    return found


def _dimension(sizes: tuple[int, ...], known: dict[Dim, tuple[int, ...]]) -> Dim:
    """The only dimension that has these sizes; or their number, if it is constant while every other dimension changes.

    One run is not enough, because the result's shape may depend on the values of the operands.
    """
    if len(sizes) < LEAST:
        return ir.SymbolicDim(None)
    same = [dim for dim, theirs in known.items() if theirs == sizes]
    changed = all(len(set(theirs)) > 1 for theirs in known.values())
    if len(set(sizes)) == 1:
        return sizes[0] if changed else ir.SymbolicDim(None)
    return same[0] if len(same) == 1 else ir.SymbolicDim(None)
