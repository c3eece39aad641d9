"""The `example` of a pattern that is written: small shapes in which all that belongs together still does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd, prod

import onnx_ir as ir

from onnx_subgraph.language.term import Static
from onnx_subgraph.matching.sizes import Size, sizes
from onnx_subgraph.mining.formula import Formula, Slot

_SYMBOLS = (2, 3, 5, 7)
"""What symbolic axes become, one after the other."""
_SMALL = 16
"""The largest axis that stays as it is."""
_DTYPES = {"FLOAT": "float32", "DOUBLE": "float64"}
POSITIVE = "in [0.5, 1.5]"
"""The range in which no logarithm, root or quotient is undefined."""


def examples(formula: Formula, numbers: dict[Slot, float], constants: Sequence[str]) -> Iterator[dict[str, Static]]:
    """Examples for a formula, the smallest first, to be tried in turn.

    numbers: what its named numbers are in the first place. constants: the names of values that are constant there.
    """
    known = {name: extent for name, value in formula.values.items() if (extent := sizes(value)) is not None}
    every = [*(size for extent in known.values() for size in extent), *formula.axes.values()]
    symbols = list(dict.fromkeys(s for size in every for s in size.symbols))
    chosen = {symbol: _SYMBOLS[i % len(_SYMBOLS)] for i, symbol in enumerate(symbols)}
    tried: list[dict[str, Static]] = []
    for divisor in dict.fromkeys((_divisor(size.number for size in every), 1)):
        for limits in ("", POSITIVE):
            said = {name: _shape(formula.values[name], extent, chosen, divisor) for name, extent in known.items()}
            texts: dict[str, Static] = {
                name: " ".join(filter(None, (text, "constant" if name in constants else limits))) for name, text in said.items()
            }
            texts |= {name: numbers[slot] for name, slot in formula.numbers.items()}
            texts |= {name: _size(size, chosen, divisor) for name, size in formula.axes.items()}
            if texts not in tried:
                tried.append(texts)
                yield texts


def _divisor(numbers: Iterator[int]) -> int:
    """By what large axes can be divided so that what was their quotient still is, and the smallest is 2 or more."""
    large = [n for n in numbers if n > _SMALL]
    common = gcd(*large) if large else 1
    divisor = 1
    while common % (2 * divisor) == 0 and min(large) // (2 * divisor) >= 2:
        divisor *= 2
    return divisor


def _size(size: Size, chosen: dict[str, int], divisor: int) -> int:
    number = size.number // divisor if size.number > _SMALL else size.number
    return number * prod(chosen[s] for s in size.symbols)


def _shape(value: ir.Value, extent: Sequence[Size], chosen: dict[str, int], divisor: int) -> str:
    name = value.dtype.name if value.dtype is not None else "FLOAT"
    return f"{_DTYPES.get(name, name.lower())}[{', '.join(str(_size(size, chosen, divisor)) for size in extent)}]"
