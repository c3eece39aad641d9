"""The `example` of a pattern that is written: small shapes in which all that belongs together still does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from math import prod

import onnx_ir as ir

from onnx_subgraph.language.term import Static
from onnx_subgraph.matching.sizes import ONE, Size, sizes
from onnx_subgraph.mining.atom import Atom, Call, Items, Layout, Parts
from onnx_subgraph.mining.formula import Formula, Slot
from onnx_subgraph.model.element_types import FLOATS, numpy_name
from onnx_subgraph.operators import is_elementwise

_SYMBOLS = (2, 3, 5, 7)
"""What symbolic axes become, one after the other."""
_SMALL = (16, 8, 4)
"""The largest axis that stays as it is, in turn: larger ones are divided by one number."""
POSITIVE = "in [0.5, 1.5]"
"""The range in which no logarithm, root or quotient is undefined."""


def examples(
    formula: Formula, atoms: Sequence[Atom], numbers: Mapping[Slot, float], constants: Sequence[str]
) -> Iterator[dict[str, Static]]:
    """Examples for the formula of `atoms`, the smallest first, to be tried in turn.

    numbers: what its named numbers are in the first place. constants: the names of values that are constant there.
    """
    known = {name: extent for name, value in formula.values.items() if (extent := sizes(value)) is not None}
    whole = [
        size for atom in atoms for value in (*(o.value for o in atom.operands), *atom.results) for size in sizes(value) or ()
    ]
    every = [*whole, *formula.axes.values()]
    symbols = list(dict.fromkeys(s for size in every for s in size.symbols))
    chosen = {symbol: _SYMBOLS[i % len(_SYMBOLS)] for i, symbol in enumerate(symbols)}
    equal = _equal(atoms)
    for symbol, least in _reflected(atoms):
        while symbol in equal and len(equal[symbol].symbols) == 1:
            (symbol,) = equal[symbol].symbols
        chosen[symbol] = max(chosen.get(symbol, 0), least)
    large = max((size.number for size in every), default=1)
    for scale in dict.fromkeys((_smallest([size.number for size in every], atoms), Scale(large, 1))):

        def small(size: Size, scale: Scale = scale) -> int:
            return scale(size.number) * prod(small(equal[s]) if s in equal else chosen[s] for s in size.symbols)

        floats = {value.dtype for atom in atoms for value in (*(o.value for o in atom.operands), *atom.results)} & FLOATS
        for limits in ("", POSITIVE):
            texts: dict[str, Static] = {}
            for name, extent in known.items():
                rest = f"constant {limits}" if name in constants else limits
                dtype = _dtype(formula.values[name], one_float=len(floats) == 1)
                texts[name] = f"{dtype}[{', '.join(str(small(size)) for size in extent)}] {rest}".strip()
            texts |= {name: numbers[slot] for name, slot in formula.numbers.items()}
            texts |= {name: small(size) for name, size in formula.axes.items()}
            yield texts


def _reflected(atoms: Sequence[Atom]) -> Iterator[tuple[str, int]]:
    """Symbols of axes that a Pad reflects, and the least that they can be: an axis is longer than what is added to it."""
    for atom in atoms:
        match atom.form:
            case Call(operator="Pad", domain="", keywords=keywords) if dict(keywords).get("mode") == "reflect":
                pads = dict(keywords).get("pads", ())
                extent = sizes(atom.operands[0].value) or ()
                if isinstance(pads, tuple) and len(pads) == 2 * len(extent):
                    for size, before, after in zip(extent, pads[: len(extent)], pads[len(extent) :], strict=True):
                        yield from ((symbol, 1 + max(int(str(before)), int(str(after)))) for symbol in size.symbols)


def _equal(atoms: Sequence[Atom]) -> dict[str, Size]:
    """Symbol → the size that it is required to be, in other symbols."""
    equal: dict[str, Size] = {}

    def symbol(size: Size) -> str:
        return size.symbols[0] if size.number == 1 and len(size.symbols) == 1 else ""

    def known(size: Size) -> Size:
        return known(equal[symbol(size)]) if symbol(size) in equal else size

    def has(size: Size, name: str) -> bool:
        return any(s == name or (s in equal and has(equal[s], name)) for s in size.symbols)

    for atom in atoms:
        for pair in _same(atom):
            first, second = sorted(map(known, pair), key=lambda size: not symbol(size))
            if symbol(first) and not has(second, symbol(first)):
                equal[symbol(first)] = second
    return equal


def _same(atom: Atom) -> Iterator[tuple[Size, Size]]:
    """Pairs of sizes that an atom requires to be equal: in elementwise operators, inside products, and beside a Concat."""
    operands, results = ([sizes(value) or () for value in values] for values in ([o.value for o in atom.operands], atom.results))
    match atom.form:
        case Call(operator="MatMul", domain="") if all(operands):
            yield operands[0][-1], operands[1][-2:][0]
        case Call(operator="Gemm", domain="", keywords=keywords):
            across, down = (bool(dict(keywords).get(name)) for name in ("transA", "transB"))
            yield from zip(operands[0][not across : 2 - across], operands[1][down : 1 + down], strict=False)
            yield from _aligned([*operands[2:], *results])
        case Call(operator="Concat", domain="", keywords=keywords):
            axis = int(str(dict(keywords).get("axis", 0)))
            yield from _aligned(
                [[ONE if i - len(extent) == axis else size for i, size in enumerate(extent)] for extent in operands]
            )
        case Items():
            yield from _aligned([*operands, *results])
        case Call(operator=operator, domain=domain) if is_elementwise(operator, domain):
            yield from _aligned([*operands, *results])


def _aligned(extents: Sequence[Sequence[Size]]) -> Iterator[tuple[Size, Size]]:
    for aligned in zip_longest(*map(reversed, extents), fillvalue=ONE):
        yield from pairwise(size for size in aligned if size != ONE)


@dataclass(frozen=True, slots=True)
class Scale:
    """What an axis becomes: what is larger than `most` is divided."""

    most: int
    divisor: int

    def __call__(self, number: int) -> int:
        return number // self.divisor if number > self.most else number


def _smallest(numbers: Sequence[int], atoms: Sequence[Atom]) -> Scale:
    """The scale with the smallest axes in which products and sums of axes still are what they were, and no axis becomes 1."""
    found = Scale(max(numbers, default=1), 1)
    for most in _SMALL:
        large = [n for n in numbers if n > most]
        divisor = 2
        while large and all(n % divisor == 0 and n // divisor > 1 for n in large):
            scale = Scale(most, divisor)
            if _fits(scale, atoms) and sum(map(scale, numbers)) < sum(map(found, numbers)):
                found = scale
            divisor *= 2
    return found


def _fits(scale: Scale, atoms: Sequence[Atom]) -> bool:
    """Whether axes that are made of others are made of these in this scale, too."""
    for atom in atoms:
        match atom.form:
            case Layout(before=before, after=after, sizes=parts):
                for axis in (*before, *after):
                    own = [parts[i].number for i in axis]
                    if scale(prod(own)) != prod(map(scale, own)):
                        return False
            case Parts(sizes=cut) as form:
                if scale(sum(cut)) != sum(map(scale, cut)) or (not form.is_even and tuple(map(scale, cut)) != cut):
                    return False
            case _:
                pass
    return True


def _dtype(value: ir.Value, *, one_float: bool) -> str:
    """The dtype of an input; float32, which stands for any float, if all floats have one dtype."""
    return numpy_name(ir.DataType.FLOAT if value.dtype is None or (one_float and value.dtype in FLOATS) else value.dtype)
