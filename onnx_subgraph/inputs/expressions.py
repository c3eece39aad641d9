"""Compute the sizes that the names of dimensions express, such as `past + 1` and `Max(a, b)`."""

from __future__ import annotations

import ast
import math
from fractions import Fraction


def integer(tree: ast.expr) -> int | None:
    """The value of an expression of sizes: of arithmetic, each quotient rounded down, of minima and maxima; else None.

    What is not known of a maximum is ignored: it is the size of a broadcast, so the unknown size is 1 or the same.
    """
    match tree:
        case ast.Constant(value=int() as number):
            return number
        case ast.BinOp(left=left, op=operator, right=right):
            a, b = integer(left), integer(right)
            found = None if a is None or b is None else computed(a, operator, b)
            return None if found is None else math.floor(found)
        case ast.Call(func=ast.Name(id=function), args=arguments):
            each = [integer(argument) for argument in arguments]
            known = [size for size in each if size is not None]
            if function == "Max":
                return max(known, default=None)
            return min(known) if function == "Min" and known == each else None
    return None


def computed(a: Fraction | int, operator: ast.operator, b: Fraction | int) -> Fraction | int | None:
    """The exact value of `a operator b`; None for another operator, or where it has no value."""
    match operator:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.Div() if b:
            return Fraction(a) / b
        case ast.FloorDiv() if b:
            return a // b
        case ast.Mod() if b:
            return a % b
        case ast.Pow() if b == int(b) and 0 <= b <= 4:
            return Fraction(a) ** int(b)
    return None
