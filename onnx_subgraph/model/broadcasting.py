"""Symbolic dimensions as sympy expressions, and the shape that shapes broadcast to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from weakref import WeakKeyDictionary

import onnx_ir as ir
import sympy
from onnx_shape_inference import ShapeInferenceContext

Dim = int | ir.SymbolicDim

_MOST_SYMBOLS = 2
"""Maximum number of symbols in a maximum; the cost of sympy's Max is quadratic in it."""
_MAXIMA: WeakKeyDictionary[ShapeInferenceContext, dict[frozenset[str], Dim]] = WeakKeyDictionary()
"""Per inference: the names of the two dimensions of a broadcast → the symbol for the result."""


def expression_of(dim: Dim) -> sympy.Expr | None:
    """A dimension as an expression; None where it is unknown or cannot be parsed."""
    return sympy.Integer(dim) if isinstance(dim, int) else None if dim.value is None else _parsed(dim.value)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> sympy.Expr | None:
    try:
        return (ir.SymbolicDim(text) + 0)._expr
    except Exception:
        return None


def dim_of(expression: sympy.Expr) -> Dim:
    """An expression as a dimension."""
    return int(expression) if expression.is_Integer else ir.SymbolicDim(expression)


def spelled_alike(dim: ir.SymbolicDim) -> Dim:
    """A size that a file declares, in the spelling that inference has for the expression: floor(n/20) for ((n//20))."""
    expression = None if str(dim.value).isidentifier() else expression_of(dim)
    return dim if expression is None else dim_of(expression)


@lru_cache(maxsize=4096)
def _maximum(left: sympy.Expr, right: sympy.Expr) -> Dim:
    return dim_of(sympy.Max(left, right))


def broadcast_dim(context: ShapeInferenceContext, a: Dim, b: Dim) -> Dim | None:
    """The size that two dimensions broadcast to; None where they cannot. Two different symbols give their maximum.

    A maximum of more symbols becomes a symbol, the same one each time; otherwise it would grow along a residual stream.
    """
    if isinstance(a, int) and isinstance(b, int):
        return a if b in (1, a) else b if a == 1 else None
    if isinstance(a, int) or isinstance(b, int):  # The symbol is 1 or equal to a larger number; otherwise no model could run.
        number, symbol = (a, b) if isinstance(a, int) else (b, a)
        return symbol if number == 1 else number
    if a == b:
        return a
    left, right = expression_of(a), expression_of(b)
    unknown: Dim = context.new_symbolic_dim()
    if left is None or right is None:
        return unknown
    if len(left.free_symbols | right.free_symbols) <= _MOST_SYMBOLS:
        return _maximum(left, right)
    maxima: dict[frozenset[str], Dim] = _MAXIMA.setdefault(context, {})
    return maxima.setdefault(frozenset({str(a), str(b)}), unknown)


def broadcast(context: ShapeInferenceContext, shapes: Sequence[Sequence[Dim]]) -> list[Dim] | None:
    """The shape that shapes broadcast to by numpy's rules; None where they cannot."""
    rank = max(map(len, shapes))
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, rank - len(shape)):
            size = broadcast_dim(context, result[axis], dim)
            if size is None:
                return None
            result[axis] = size
    return result


def after_broadcasting(context: ShapeInferenceContext, node: ir.Node) -> None:
    """The rule for an operator whose result has the shape that its operands broadcast to."""
    shapes = [value.shape for value in node.inputs if value is not None]
    known = [tuple(shape.dims) for shape in shapes if shape is not None]
    if shapes and len(known) == len(shapes):
        result = broadcast(context, known)
        node.outputs[0].shape = None if result is None else ir.Shape(result)
