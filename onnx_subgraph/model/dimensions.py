"""The symbols of dimensions, and whether two are equal for every size, without the minutes that a simplification can take.

Two expressions that differ at one point are different; most pairs are told apart there. What agrees at every point tried is
proved by expansion, or by sympy's simplification where the expressions are short.
"""

from __future__ import annotations

from functools import lru_cache

import onnx_ir as ir

_POINTS = (2, 3, 5, 7, 11, 17, 29, 64, 101, 255, 1024, 4099)
"""Sizes that the symbols are given, in turn."""
_TRIED = 4
_SIMPLIFIED = 60
"""The most operations of an expression that is simplified: time grows fast, and dimensions of real models are shorter."""


def symbols(dim: int | ir.SymbolicDim) -> frozenset[str]:
    """The names in a dimension; a name that is no expression is one symbol."""
    if isinstance(dim, int) or dim.value is None:
        return frozenset()
    if dim.value.isidentifier():
        return frozenset({dim.value})
    try:
        return frozenset(dim.free_symbols())
    except Exception:  # sympy's parser raises what Python's does
        return frozenset({dim.value})


def same_expression(a: ir.SymbolicDim, b: ir.SymbolicDim) -> bool:
    """Whether two dimensions that are written differently are provably equal."""
    first, second = str(a.value), str(b.value)
    if first.isidentifier() and second.isidentifier():
        return False
    return _same(*sorted((first, second)))


@lru_cache(maxsize=65536)
def _same(first: str, second: str) -> bool:
    a, b = _parsed(first), _parsed(second)
    if a is None or b is None:  # a name that is no expression ("batch size") is equal to itself only
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
    except Exception:  # sympy's parser raises what Python's does
        return None
    return made


@lru_cache(maxsize=65536)
def _at(text: str, names: tuple[str, ...], start: int) -> str:
    """The value of an expression at the point numbered `start`."""
    dimension = _parsed(text)
    assert dimension is not None
    sizes = {name: _POINTS[(start * 5 + 3 * position) % len(_POINTS)] + position for position, name in enumerate(names)}
    try:
        return str(dimension.evaluate(sizes))
    except Exception:  # a division by zero at this point tells nothing
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
