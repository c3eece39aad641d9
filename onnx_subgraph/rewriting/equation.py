"""The equation of an Einsum as a matrix product, and the Transposes and Reshapes around it.

einsum: https://numpy.org/doc/stable/reference/generated/numpy.einsum.html; Einsum of the standard, opset 12.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import prod
from typing import NamedTuple

import onnx_ir as ir

Letters = tuple[str, ...]
Dim = int | ir.SymbolicDim


class Product(NamedTuple):
    """An Einsum's equation as a matrix product. Each letter is an axis.

    first, second: the axes of the operands as given. swapped: whether the second operand is the left factor.
    batch: axes of both operands and the result. rows: of the left factor; columns: of the right one. inner: summed axes. The
    MatMul has them in this order.
    result: the axes of the result in order.
    """

    first: Letters
    second: Letters
    swapped: bool
    batch: Letters
    rows: Letters
    columns: Letters
    inner: Letters
    result: Letters

    def in_order_of_left(self) -> Product:
        """This product with the rows in the order of the left factor, so that the result is transposed and not that factor."""
        given = self.second if self.swapped else self.first
        return self._replace(rows=tuple(letter for letter in given if letter in self.rows))


class Step(NamedTuple):
    """A node beside the MatMul: "Transpose" with the permutation, "Reshape" with the shape, or "Unsqueeze" with the axes."""

    operator: str
    numbers: tuple[int, ...]


@lru_cache(maxsize=1 << 10)
def product_of(equation: str, first_rank: int, second_rank: int) -> Product | None:
    """The matrix product that an equation of two operands of these ranks says, or None where it is none.

    None where an axis is summed in one operand alone or occurs twice in an operand, and where a factor would be a vector.
    """
    sides = equation.replace(" ", "").split("->")
    operands = sides[0].split(",")
    if len(operands) != 2 or len(sides) > 2:
        return None
    first, second = (_letters(text, rank) for text, rank in zip(operands, (first_rank, second_rank), strict=True))
    if first is None or second is None:
        return None
    every = dict.fromkeys((*first, *second))
    if len(sides) == 2:
        spread = sum(letter.startswith(".") for letter in every)
        result = _letters(sides[1], len(sides[1].replace("...", "")) + (spread if "..." in sides[1] else 0))
    else:  # an equation without a result has the axes of the ellipsis, then the letters that occur once, in alphabetical order
        hidden = max(first, second, key=lambda letters: sum(letter.startswith(".") for letter in letters))
        once = sorted(letter for letter in every if not letter.startswith(".") and (letter in first) != (letter in second))
        result = (*(letter for letter in hidden if letter.startswith(".")), *once)
    return None if result is None else _product(first, second, result)


def _letters(text: str, rank: int) -> Letters | None:
    """The axes of an operand. Those of an ellipsis are `.n` to `.1`, numbered from the right, because they broadcast."""
    before, dots, after = text.partition("...")
    hidden = rank - len(before) - len(after)
    if hidden < 0 or (hidden and not dots) or (not (before + after).isalpha() and before + after):
        return None
    letters = (*before, *(f".{number}" for number in range(hidden, 0, -1)), *after)
    return letters if len(set(letters)) == len(letters) else None


def _product(first: Letters, second: Letters, result: Letters) -> Product | None:
    batch = tuple(letter for letter in result if letter in first and letter in second)
    inner = tuple(letter for letter in first if letter in second and letter not in result)
    own = tuple(letter for letter in result if letter in first and letter not in second)
    other = tuple(letter for letter in result if letter in second and letter not in first)
    if not (inner and own and other) or any(letter.startswith(".") for letter in inner):
        return None
    if {*batch, *inner, *own} != set(first) or {*batch, *inner, *other} != set(second) or {*batch, *own, *other} != set(result):
        return None
    swapped = result.index(other[0]) < result.index(own[0])
    rows, columns = (other, own) if swapped else (own, other)
    return Product(first, second, swapped, batch, rows, columns, inner, result)


class UnknownShapeError(Exception):
    """The shape of a Reshape can't be written: too many of its sizes are known only at run time."""


def dims_of(
    product: Product, first: Iterable[Dim], second: Iterable[Dim], result: Iterable[Dim] | None
) -> Mapping[str, Dim] | None:
    """The size of each axis; None where summed axes broadcast, which a MatMul can't. Axes of the batch have the result's size."""
    sizes, others = dict(zip(product.first, first, strict=True)), dict(zip(product.second, second, strict=True))
    if any(1 in (sizes[letter], others[letter]) and sizes[letter] != others[letter] for letter in product.inner):
        return None
    larger = {letter: size for letter, size in others.items() if size != 1}
    known = {} if result is None else dict(zip(product.result, result, strict=True))
    return {**others, **sizes, **larger, **known}


Groups = tuple[Letters, ...]
"""The axes of a value; one that was merged has several letters."""


def steps_of(
    product: Product, dims: Mapping[str, Dim]
) -> tuple[tuple[tuple[Step, ...], tuple[Step, ...]], list[Dim], tuple[Step, ...]]:
    """The steps before each factor of the MatMul, the sizes of its result, and the steps after it. Raises UnknownShapeError."""
    given = (product.second, product.first) if product.swapped else (product.first, product.second)
    batch, rows = _each(product.batch), _each(product.rows)
    left = (*batch, *rows, product.inner)
    right = (*batch, product.inner, product.columns)
    before = _ordered(given[0], left, dims), _ordered(given[1], right, dims)
    if batch and len(rows) > 1:  # the right factor broadcasts along all row axes but the last
        before = before[0], (*before[1], Step("Unsqueeze", tuple(range(len(batch), len(batch) + len(rows) - 1))))
    between = (*batch, *rows, product.columns)
    flat = tuple(letter for group in between for letter in group)
    after = (*_reshaped(between, _each(flat), dims), *_transposed(flat, product.result))
    return before, [_size(group, dims) for group in between], after


def _each(letters: Letters) -> Groups:
    return tuple((letter,) for letter in letters)


def _ordered(given: Letters, wanted: Groups, dims: Mapping[str, Dim]) -> tuple[Step, ...]:
    flat = tuple(letter for group in wanted for letter in group)
    return (*_transposed(given, flat), *_reshaped(_each(flat), wanted, dims))


def _transposed(given: Letters, wanted: Letters) -> tuple[Step, ...]:
    return () if given == wanted else (Step("Transpose", tuple(map(given.index, wanted))),)


def _reshaped(given: Groups, wanted: Groups, dims: Mapping[str, Dim]) -> tuple[Step, ...]:
    """A Reshape between groupings of the same axes. A size that is not known is copied (0), or else the remaining one (-1)."""
    if given == wanted:
        return ()
    shape: list[int] = []
    for index, group in enumerate(wanted):
        size = _size(group, dims)
        known = isinstance(size, int) and size > 0
        shape.append(int(size) if isinstance(size, int) and known else 0 if given[index : index + 1] == (group,) else -1)
    if shape.count(-1) > (0 if 0 in shape else 1):
        raise UnknownShapeError
    return (Step("Reshape", tuple(shape)),)


def _size(group: Letters, dims: Mapping[str, Dim]) -> Dim:
    sizes = [dims[letter] for letter in group]
    if len(sizes) == 1:
        return sizes[0]
    known = [size for size in sizes if isinstance(size, int)]
    return prod(known) if len(known) == len(sizes) else ir.SymbolicDim(None)
