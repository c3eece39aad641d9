"""The symbols of a dimension, and whether two dimensions are equal for every size.

sympy's simplification can take minutes. So both expressions are first evaluated at a few points; expressions that differ at one
point are different, and most pairs end there. Equality is proved by expansion, or by simplification of short expressions.
"""

from __future__ import annotations

from functools import lru_cache

import onnx_ir as ir

_POINTS = (2, 3, 5, 7, 11, 17, 29, 64, 101, 255, 1024, 4099)
"""Sizes for the symbols; each point uses a different assignment."""
_TRIED = 4
_SIMPLIFIED = 60
"""Maximum number of operations in an expression to simplify. The time grows fast; dimensions of real models are shorter."""


def symbols(dim: int | ir.SymbolicDim) -> frozenset[str]:
    """The names in a dimension. A name that is not an expression is one symbol."""
    if isinstance(dim, int) or dim.value is None:
        return frozenset()
    if dim.value.isidentifier():
        return frozenset({dim.value})
    try:
        return frozenset(dim.free_symbols())
    except Exception:  # sympy's parser raises the errors of Python's
        return frozenset({dim.value})


def same_expression(a: ir.SymbolicDim, b: ir.SymbolicDim) -> bool:
    """Whether two dimensions with different texts are provably equal."""
    first, second = str(a.value), str(b.value)
    if first.isidentifier() and second.isidentifier():
        return False
    return _same(*sorted((first, second)))


@lru_cache(maxsize=65536)
def _same(first: str, second: str) -> bool:
    a, b = _parsed(first), _parsed(second)
    if a is None or b is None:  # A name that is not an expression ("batch size") is equal only to itself.
        return False
    names = tuple(sorted(a.free_symbols() | b.free_symbols()))
    if any(_at(first, names, start) != _at(second, names, start) for start in range(_TRIED)):
        return False
    return _is_proved(a, b)


@lru_cache(maxsize=65536)
def _parsed(text: str) -> ir.SymbolicDim | None:
    try:
        made = ir.SymbolicDim(text)
        made.free_symbols()
    except Exception:  # sympy's parser raises the errors of Python's
        return None
    return made


@lru_cache(maxsize=65536)
def _at(text: str, names: tuple[str, ...], start: int) -> str:
    """The value of an expression at point number `start`, as text."""
    dimension = _parsed(text)
    assert dimension is not None
    sizes = {name: _POINTS[(start * 5 + 3 * position) % len(_POINTS)] + position for position, name in enumerate(names)}
    try:
        return str(dimension.evaluate(sizes))
    except Exception:  # A division by zero at this point proves nothing.
        return ""


def _is_proved(a: ir.SymbolicDim, b: ir.SymbolicDim) -> bool:
    import sympy

    try:
        first, second = (sympy.sympify(d._expr) for d in (a, b))
        difference = sympy.expand(first - second)
        if difference == 0:
            return True
        short = sympy.count_ops(first) + sympy.count_ops(second) <= _SIMPLIFIED
        return short and bool(sympy.simplify(first) == sympy.simplify(second))
    except Exception:
        return False
