"""Simplifications that come before patterns, because fewer operators are in their way then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import onnx_ir as ir

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.naming import name_apart
from onnx_subgraph.model.nested import within
from onnx_subgraph.model.shapes import infer_shapes, proved_only
from onnx_subgraph.model.surgery import as_initializers
from onnx_subgraph.simplification.assignments import writes_all
from onnx_subgraph.simplification.rows import narrow, reads_one_row
from onnx_subgraph.simplification.simplify import NOTHING, Pass, Simplified, number_of_nodes
from onnx_subgraph.simplification.unrolled import is_unrolled
from onnx_subgraph.simplification.zero_addends import has_scales, leave_out_zero_addends
from onnx_subgraph.simplification.zero_states import has_states, leave_out_zero_states


def simplify_first(model: ir.Model) -> Simplified:
    """Make all of these simplifications. Changes `model`, whose shapes must be inferred."""
    return leave_out_sums(model) + join_parts(model) + compute_read_rows(model) + leave_out_zeros(model)


def leave_out_sums(model: ir.Model) -> Simplified:
    """Leave out sums of a product and the number 0. Changes `model`, whose shapes must be inferred.

    Patterns would take one for a bias or a mask, and their operators may tell -0 from 0.
    """
    found, change = has_scales(model, Constants(model)), partial(leave_out_zero_addends, scales=True)
    return _changed(model, lambda: Counter(passed=change(model, Constants(model)))) if found else NOTHING


def join_parts(model: ir.Model) -> Simplified:
    """Write assignments to slices as the Concats that they are, and unrolled loops over parts as what is done to the whole.

    Changes `model`, whose shapes must be inferred. A Transpose of the result can become a part of another operator, and the
    operators of each part, too.
    """
    constants, nodes = Constants(model), (node for graph in within(model.graph) for node in graph)
    found = any(writes_all(constants, node) or is_unrolled(constants, node) for node in nodes)
    return _changed(model, lambda: Counter(simpler=Pass(model).join())) if found else NOTHING


def compute_read_rows(model: ir.Model) -> Simplified:
    """Compute only the row that is read of values. Changes `model`, whose shapes must be inferred.

    Patterns match one row as they match many.
    """
    found = reads_one_row(model, Constants(model))
    return _changed(model, lambda: Counter(narrowed=narrow(model, Constants(model)))) if found else NOTHING


def leave_out_zeros(model: ir.Model) -> Simplified:
    """Leave out initial states that are zero. Changes `model`, whose shapes must be inferred.

    The zeros are often parts of a larger value, and patterns would find the parts.
    """
    found = has_states(model)
    return _changed(model, lambda: Counter(passed=leave_out_zero_states(model, Constants(model)))) if found else NOTHING


def _changed(model: ir.Model, change: Callable[[], Counter[str]]) -> Simplified:
    """What a change of the model simplified, which returns how often it did what."""
    before = number_of_nodes(model)
    old = frozenset(node for graph in model.graphs() for node in graph)
    with proved_only(model):
        counts = change()
    if not any(counts.values()):
        return NOTHING
    infer_shapes(model)
    name_apart(model, old)
    as_initializers(model, old)
    return Simplified(**counts, removed=before - number_of_nodes(model))
