"""What is not mined: what a pattern covers, and the products with weights that units end at."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from onnx_subgraph.language.library import Library
from onnx_subgraph.matching.find import find, searched_graphs
from onnx_subgraph.matching.view import View
from onnx_subgraph.model.constants import Constants

PRODUCTS = frozenset({"MatMul", "Gemm", "FusedMatMul", "FusedGemm", "Einsum"})
OTHERS = frozenset({"Conv", "ConvTranspose", "FusedConv", "Gather", "LSTM", "GRU", "RNN"})
"""What a unit ends at where an operand is constant."""
MOST = 16
"""The largest axis of a constant that a product may have and still be a step of a unit: it mixes a few heads, not features."""
_QUANTIZED = ("QLinear", "MatMulInteger", "ConvInteger", "DynamicQuantize", "QuantizeLinear", "DequantizeLinear")
BESIDE = frozenset({"structure", "linear", "region"})
"""Groups of patterns that cover nothing: they move data, or end at a product that no unit takes in."""


def is_border(node: ir.Node, constants: Constants) -> bool:
    """Whether a unit ends here: a product with a weight, or an operator on quantized values."""
    if node.op_type.startswith(_QUANTIZED):
        return True
    if node.op_type not in PRODUCTS | OTHERS:
        return False
    most = MOST if node.op_type in PRODUCTS else 0
    return any(v is not None and _largest(v) > most and constants.is_constant(v) for v in node.inputs)


def covered(model: ir.Model, library: Library, constants: Constants) -> set[ir.Node]:
    """The nodes of the matches of all patterns, whether they would be replaced or not, but of those `BESIDE`."""
    patterns = [p for p in library.patterns if p.group not in BESIDE and p.grow is None]
    matches = find(model, patterns, constants=constants, parts=False).matches
    return {node for match in matches if not match.is_renamed for node in match.nodes}


def views(model: ir.Model, library: Library) -> list[tuple[View, Callable[[ir.Node], bool]]]:
    """Each graph of a model with inferred shapes, and whether one of its nodes may be mined."""
    constants = Constants(model)
    known = covered(model, library, constants)
    found = []
    for graph, owner, opsets in searched_graphs(model):
        view = View(graph, constants, opsets, owner)
        borders = {node for node in view.nodes if is_border(node, constants)}
        biases = {n for node in borders for v in node.outputs for n in view.consumers(v) if _is_bias(view, n)}
        taken = known | borders | biases
        found.append((view, lambda node, taken=taken: node not in taken))
    return found  # type: ignore[return-value]


def _is_bias(view: View, node: ir.Node) -> bool:
    """Whether a node adds a constant to what it reads."""
    return node.op_type == "Add" and not node.domain and any(v is not None and view.constants.is_constant(v) for v in node.inputs)


def _largest(value: ir.Value) -> int:
    """The largest axis of a constant, 0 where it is not known."""
    return max((d for d in value.shape or () if isinstance(d, int)), default=0)
