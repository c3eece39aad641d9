"""Sizes of axes as products of numbers and symbols, to follow Reshapes of symbolic shapes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import onnx_ir as ir


@dataclass(frozen=True, slots=True)
class Size:
    """The size of an axis: number * Π symbols, a monomial in symbolic dimensions."""

    number: int
    symbols: tuple[str, ...] = ()

    def __mul__(self, other: Size) -> Size:
        return Size(self.number * other.number, tuple(sorted(self.symbols + other.symbols)))

    def over(self, other: Size) -> Size | None:
        """The quotient if it is a monomial, else None."""
        if other.number == 0 or self.number % other.number:
            return None
        left = list(self.symbols)
        for symbol in other.symbols:
            if symbol not in left:
                return None
            left.remove(symbol)
        return Size(self.number // other.number, tuple(left))

    def __str__(self) -> str:
        return "*".join([*(() if self.number == 1 and self.symbols else (str(self.number),)), *self.symbols])


ONE = Size(1)


def sizes(value: ir.Value) -> tuple[Size, ...] | None:
    """The size of each axis of `value`; None where its rank is unknown. An unknown size equals only itself."""
    if value.shape is None:
        return None
    dims = (d if isinstance(d, int) else d.value for d in value.shape)
    return tuple([Size(1, (f"?{id(value)}.{i}",)) if d is None else _size(d) for i, d in enumerate(dims)])


@lru_cache(maxsize=1 << 12)
def _size(dim: int | str) -> Size:
    """The size of an axis that has a number or a name."""
    if isinstance(dim, int):
        return Size(dim)
    return Size(1, (dim,)) if dim.isidentifier() else _factored(dim)


def _factored(text: str) -> Size:
    """An expression as a monomial: `64*past + 64*seq` is 64 times the symbol `past + seq`."""
    import sympy

    try:
        expression = ir.SymbolicDim(text) + 0
        factors = sympy.factor_terms(sympy.sympify(expression._expr)).as_ordered_factors()
        number, symbols = 1, []
        for factor in factors:
            base, power = factor.as_base_exp()
            if base.is_Integer and power == 1:
                number *= int(base)
            elif power.is_Integer and power > 0:
                symbols += [str(base)] * int(power)
            else:
                return Size(1, (text,))
    except Exception:  # a name that is not an expression is one symbol
        return Size(1, (text,))
    return Size(number, tuple(sorted(symbols)))


def shape_words(sizes: Iterable[Size]) -> str:
    """Sizes as text for users, with `?` for an unknown one."""
    return f"[{', '.join(map(word_of, sizes))}]"


def word_of(size: Size) -> str:
    """A size as text for users, `?` if it is unknown."""
    # Inference names unknown dimensions _d0, _d1, …
    return "?" if any(symbol.startswith(("?", "_d")) for symbol in size.symbols) else str(size)


def as_size(bound: Any) -> Size:
    """The binding of an axis, as a size."""
    if isinstance(bound, int):
        return Size(bound)
    return Size(1, ("?",)) if bound.value is None else _size(bound.value)


def as_dim(size: Size) -> int | ir.SymbolicDim:
    """A size as a dimension: a number, or a symbol."""
    return size.number if not size.symbols else ir.SymbolicDim(str(size))
