"""Sizes that follow from what a model does with values, because no run could go on with others.

A model reads the first `length` rows of a table of 64: min(64, length) rows. Where it multiplies them with `length` rows, both
numbers are equal: broadcasting needs equal sizes, or a 1, and min(64, length) is 1 only where `length` is 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_subgraph.model.dimension_names import Dim

if TYPE_CHECKING:
    import sympy

_BROADCASTING = frozenset(
    {
        *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Where", "Max", "Min", "Sum", "Mean", "PRelu"),
        *("And", "Or", "Xor", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
    }
)
_LEAST = "Min("
"""The beginning of a size that is the least of others."""

Implied = dict["sympy.Expr", "sympy.Expr"]
"""The least of a number and a size → that size."""


def implied_sizes(graph: ir.Graph) -> Implied:
    """The sizes that are equal in every run of a graph. Its shapes must be inferred."""
    if not any(_has_least(value.shape) for node in graph if node.op_type == "Slice" for value in node.outputs):
        return {}
    found: Implied = {}
    for node in graph:
        if node.op_type in _BROADCASTING and not node.domain:
            shapes = [value.shape for value in node.inputs if value is not None and value.shape is not None]
            for one, other in itertools.permutations(shapes, 2):
                found.update(_implied(reversed(one.dims), reversed(other.dims)))
    return found


def replaced(implied: Implied, dim: Dim) -> Dim:
    """A size with what is implied."""
    if isinstance(dim, int) or _LEAST not in (dim.value or ""):
        return dim
    from onnx_subgraph.model.broadcasting import dim_of, expression_of

    expression = expression_of(dim)
    return dim if expression is None else dim_of(expression.xreplace(implied))


def _has_least(shape: ir.Shape | None) -> bool:
    return shape is not None and any(_LEAST in (dim.value or "") for dim in shape if isinstance(dim, ir.SymbolicDim))


def _implied(one: Iterable[Dim], other: Iterable[Dim]) -> Iterator[tuple[sympy.Expr, sympy.Expr]]:
    import sympy

    from onnx_subgraph.model.broadcasting import expression_of

    for dim, size in zip(one, other, strict=False):
        if isinstance(dim, ir.SymbolicDim) and (dim.value or "").startswith(_LEAST):
            least, whole = expression_of(dim), expression_of(size)
            if least is not None and whole is not None and isinstance(least, sympy.Min) and whole in least.args:
                number = sympy.Min(*(part for part in least.args if part != whole))
                if number.is_Integer and number > 1:
                    yield least, whole
