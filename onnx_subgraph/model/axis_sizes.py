"""Simplify the sizes of axes, so that two computations of one size give the same expression.

An encoder of audio shortens a signal by several strides (floors within floors), and counts the frames again with Range or Slice,
whose size is a maximum with 0.
"""

from __future__ import annotations

from functools import cache
from weakref import WeakKeyDictionary

import onnx_ir as ir
import sympy
from onnx_shape_inference import ShapeInferenceContext

from onnx_subgraph.model.broadcasting import Dim, dim_of, expression_of

_SIZES: WeakKeyDictionary[ShapeInferenceContext, dict[ir.Graph | None, set[sympy.Expr]]] = WeakKeyDictionary()
"""Per inference and graph: the expressions that are the size of an axis there. In any run of the graph they are not negative."""


def simplify_sizes(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Simplify every size in the shapes of a node's results; plain numbers (`SymbolicDim("3")`) become numbers."""
    for output in node.outputs:
        if output.shape is not None and any(map(_is_compound, output.shape)):
            sizes = _sizes_read(context, node)
            output.shape = ir.Shape([_simplified(dim, sizes) for dim in output.shape])
            sizes.update(_compounds(output.shape))


def _sizes_read(context: ShapeInferenceContext, node: ir.Node) -> set[sympy.Expr]:
    """The known sizes of axes in the graph of a node, those of its operands included."""
    graph = node.graph if isinstance(node.graph, ir.Graph) else None
    sizes = _SIZES.setdefault(context, {}).setdefault(graph, set())
    for value in node.inputs:
        if value is not None and value.shape is not None:
            sizes.update(_compounds(value.shape))
    return sizes


def _compounds(shape: ir.Shape) -> list[sympy.Expr]:
    found = [expression_of(dim) for dim in shape if _is_compound(dim)]
    return [expression for expression in found if expression is not None]


def _is_compound(dim: Dim) -> bool:
    """Whether a size is neither a number nor one name."""
    return not isinstance(dim, int) and not (dim.value or "x").isidentifier()


def _simplified(dim: Dim, sizes: set[sympy.Expr]) -> Dim:
    text = None if isinstance(dim, int) else dim.value
    if text is None:
        return dim
    if text.isdecimal():
        return int(text)
    if "floor(" in text:
        dim = _floored(text)
    return _without_zero(dim, sizes) if str(dim).startswith("Max(0,") else dim


def _without_zero(dim: Dim, sizes: set[sympy.Expr]) -> Dim:
    """Max(0, n) = n, where n is also the size of an axis."""
    expression = expression_of(dim)
    if expression is None or expression.func is not sympy.Max:
        return dim
    others = [term for term in expression.args if term != 0]
    return dim_of(sympy.Max(*others)) if any(term in sizes for term in others) else dim


@cache
def _floored(text: str) -> Dim:
    """Cancel exact quotients: floor(12*batch*seq/seq) = 12*batch. Join floors: floor((floor(n/5) - 1)/2) = floor((n - 5)/10)."""
    dim = ir.SymbolicDim(text)
    expression = expression_of(dim)
    if expression is None:
        return dim
    return dim_of(expression.replace(lambda part: part.func is sympy.floor, lambda part: _joined(part.args[0])))


def _joined(inside: sympy.Expr) -> sympy.Expr:
    """floor(inside). For integers m and n > 0, floor((floor(x) + m) / n) = floor((x + m) / n)."""
    quotient = sympy.cancel(inside)
    if quotient.is_integer:
        return quotient
    for term in sympy.Add.make_args(sympy.expand(inside)):
        share, floor = term.as_coeff_Mul()
        if floor.func is sympy.floor and share.is_Rational and share.p == 1 and ((inside - term) / share).expand().is_integer:
            return sympy.floor((share * floor.args[0] + inside - term).expand())
    return sympy.floor(inside)
