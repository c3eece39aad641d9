"""Make onnx-shape-inference use sympy only where dimensions are expressions, and once for each expression.

The library asks sympy for the names in every dimension and whether two are equal, although most dimensions are a number or a
single name. Importing sympy takes longer than fusing a small model. Many convolutions of a network have the same sizes, and sympy
prints each expression again.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext, _broadcast, _constraints, _engine, _symbolic_shapes
from onnx_shape_inference._ops import _conv

from onnx_subgraph.model.dimension_names import Dim
from onnx_subgraph.model.nested import within

if TYPE_CHECKING:
    import sympy


@cache
def install() -> None:
    """Replace functions of the library by the ones below, once per process."""
    broadcast_dim = _broadcast._broadcast_dim
    _broadcast._broadcast_dim = lambda a, b: a if a == b else broadcast_dim(a, b)
    _symbolic_shapes.parse_symbolic_expression = _parsed
    _conv._compute_conv_output_dim = lru_cache(maxsize=4096)(_conv._compute_conv_output_dim)
    _engine._constraints = _Constraints()


@lru_cache(maxsize=4096)
def _parsed(text: str) -> sympy.Expr | None:
    """A dimension as a sympy expression, cached. The library would parse the dimensions of every value again in each call."""
    return ir.SymbolicDim(text)._expr


class _Constraints:
    """Replaces the library's module `_constraints`; its engine calls these functions for every model."""

    def __getattr__(self, name: str) -> object:
        return getattr(_constraints, name)

    @staticmethod
    def collect_symbol_names(graph: ir.Graph) -> set[str]:
        """The names in all dimensions of a graph and its nested bodies."""
        names: set[str] = set()
        for one in within(graph):
            made = (value for node in one for value in node.outputs)
            for value in (*one.inputs, *one.outputs, *one.initializers.values(), *made):
                names.update(*map(_names, () if value.shape is None else value.shape.dims))
        return names

    @staticmethod
    def record_reshape_numel_equalities(context: ShapeInferenceContext, graph: ir.Graph) -> None:
        """Record for each Reshape that operand and result have the same number of elements."""
        if any(node.op_type == "Reshape" and not node.domain for one in within(graph) for node in one):
            _constraints.record_reshape_numel_equalities(context, graph)

    @staticmethod
    def propagate_symbolic_constraints(context: ShapeInferenceContext, graph: ir.Graph) -> bool:
        """Rename dimensions to the file's names that were found to be equal. Returns whether there were any."""
        return bool(context.symbolic_equalities) and _constraints.propagate_symbolic_constraints(context, graph)


def _names(dim: Dim) -> frozenset[str]:
    if isinstance(dim, int) or dim.value is None:
        return frozenset()
    return frozenset({dim.value}) if dim.value.isidentifier() else dim.free_symbols()
