"""Store what depends on constants alone, as onnxruntime computes it.

Simplification computes only what any evaluator gives to the last bit. Of the rest, such as tables of sines or a bias behind a
small network of weights, onnxruntime's kernels give the numbers that it would compute when it loads the model.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf, prod
from typing import Any

import onnx_ir as ir

from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.element_types import FLOATS
from onnx_subgraph.model.naming import name_apart
from onnx_subgraph.model.nested import has_bodies, within
from onnx_subgraph.model.surgery import as_initializers, remove, store
from onnx_subgraph.rewriting.cutting import cut
from onnx_subgraph.rewriting.outline import Outline

LARGEST = 1 << 16
"""A result up to this size in bytes may be larger than the constants it is computed from."""
_MOST_READ = 1 << 26
"""The most bytes of constants that are read."""
_QUANTIZING = frozenset(("DequantizeLinear", "QuantizeLinear", "DynamicQuantizeLinear"))
"""Operators whose results are not stored: a quantized weight is smaller, and providers look for these nodes."""
_NOT_RUN = frozenset(("GRU", "LSTM", "RNN", "InstanceNormalization"))
"""Operators that are not run here: for an empty operand they end the process."""
_REPEATING = frozenset(("ConstantOfShape", "Expand", "Tile"))
"""Operators whose own results are not stored: the number that they repeat is smaller."""


def compute_constants(model: ir.Model) -> int:
    """Store what nodes of the main graph and of bodies compute from constants alone. Changes `model`. Returns how many went."""
    old, constants = frozenset(model.graph.all_nodes()), Constants(model)
    gone = sum(_compute(graph, model, constants) for graph in within(model.graph))
    if gone:
        name_apart(model, old)
        as_initializers(model, old)
    return gone


def _compute(graph: ir.Graph, model: ir.Model, constants: Constants) -> int:
    """The same for the nodes of one graph. From outside they read weights and Constants."""
    known = _known(graph, constants)
    operands = [value for node in known for value in node.inputs if value is not None]
    leaves = {value: tensor for value in operands if (tensor := _tensor(value))}
    read = sum(tensor.nbytes for tensor in leaves.values())
    made = (value for node in known if node.op_type not in _REPEATING for value in node.outputs)
    wanted = [value for value in made if _is_read_by_others(value, known) and _nbytes(value) <= max(LARGEST, read)]
    if not wanted or read > _MOST_READ:
        return 0
    makers = (value.producer() for value in operands)
    around = dict.fromkeys(maker for maker in makers if maker is not None and maker.graph is not graph)
    piece = cut([*around, *graph], wanted, graph, Outline(model), _tensor)
    for value, array in zip(wanted, _run(piece), strict=False):
        if value.dtype is not None and value.dtype.numpy() == array.dtype:
            store(value, array)
    for node in reversed(list(known)):
        if node.graph is not None and not any(value.uses() or value.is_graph_output() for value in node.outputs):
            remove(node)
    return sum(node.graph is None for node in known)


def _known(graph: ir.Graph, constants: Constants) -> dict[ir.Node, None]:
    """The nodes that compute from constants alone, in order, if the reference evaluator computes them too: none fails."""
    known: dict[ir.Node, None] = {}
    for node in graph:
        if node.op_type in {"Constant"} | _QUANTIZING | _NOT_RUN or node.domain or has_bodies(node) or _divides_integers(node):
            continue
        reads_stored = all(_is_stored(value, known) for value in node.inputs)
        if reads_stored and node.outputs and all(constants.array(value) is not None for value in node.outputs):
            known[node] = None
    return known


def _divides_integers(node: ir.Node) -> bool:
    """Whether a quotient that is too large could end the process."""
    return node.op_type in ("Div", "Mod") and node.outputs[0].dtype not in FLOATS


def _is_stored(value: ir.Value | None, known: Collection[ir.Node]) -> bool:
    """Whether a constant operand is absent, a weight, or computed by one of these nodes."""
    node = None if value is None else value.producer()
    if node is not None:
        return node.op_type == "Constant" or node in known
    return value is None or value.is_initializer()


def _tensor(value: ir.Value) -> ir.TensorProtocol | None:
    """The weight that an initializer holds; None for other values."""
    return value.const_value if value.is_initializer() else None


def _nbytes(value: ir.Value) -> float:
    """The size of a value; infinite where it is not known."""
    if value.shape is None or value.dtype in (None, ir.DataType.STRING) or not value.shape.is_static():
        return inf
    return prod(value.shape.numpy()) * value.dtype.itemsize


def _is_read_by_others(value: ir.Value, known: Collection[ir.Node]) -> bool:
    return value.is_graph_output() or any(use.node not in known for use in value.uses())


def _run(piece: ir.Model) -> list[Any]:
    """The results; [] if onnxruntime does not run it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        proto = ir.to_proto(piece)
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return list(session.run(None, {}))
    except Exception:  # onnxruntime's exceptions have no common base but Exception
        return []
