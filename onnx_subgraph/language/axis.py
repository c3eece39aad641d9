"""Axis numbers: axis 2 of a value of rank 3 equals axis -1. If the rank is unknown, the two cannot be compared.

A captured axis counts from the back where the rank is known. So the last axis is -1 whatever the rank.
"""

from __future__ import annotations

from typing import Self


class Axis(int):
    """An axis number of a value of rank `rank`. It counts from the back; where the rank is None, it is as written."""

    rank: int | None

    def __new__(cls, number: int, rank: int | None) -> Self:
        made = super().__new__(cls, number)
        made.rank = rank
        return made


class AxisSet(tuple[int, ...]):
    """Axes whose order does not matter, as those of a reduction."""

    __slots__ = ()


def numbered(value: object, rank: int | None, *, ordered: bool) -> object:
    """Convert a captured axis or list of axes to `Axis` and `AxisSet`. Any other value is returned as it is.

    ordered: whether the order of the list matters, as it does for Slice.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return _counted(value, rank)
    if not isinstance(value, tuple) or not all(isinstance(a, int) for a in value):
        return value
    axes = tuple(_counted(a, rank) for a in value)
    return axes if ordered else AxisSet(sorted(axes))


def _counted(number: int, rank: int | None) -> int:
    if rank is None:
        return Axis(number, None)
    if not -rank <= number < rank:  # Flatten accepts an axis behind the last one
        return number
    return Axis(number - rank if number >= 0 else number, rank)


def same_axis(a: int, b: int) -> bool | None:
    """Whether two numbers are the same axis; None where this depends on an unknown rank.

    A plain number is taken as an axis of the same value as the other one.
    """
    ranks = [n.rank for n in (a, b) if isinstance(n, Axis)]
    known = next((r for r in ranks if r is not None), None)
    if None in ranks and known is None:
        return int(a) == int(b) if (a < 0) == (b < 0) else None
    one, other = (_from_the_back(n, known) for n in (a, b))
    return None if one is None or other is None else one == other


def _from_the_back(number: int, rank: int | None) -> int | None:
    if number < 0 or rank is None or (isinstance(number, Axis) and number.rank is not None):
        return int(number)
    if isinstance(number, Axis):  # counts from the front, and the rank is unknown
        return None
    return number - rank if number < rank else number


def same_axes(a: tuple[int, ...], b: tuple[int, ...]) -> bool | None:
    """Whether two lists are the same axes; in any order if one of them is a set."""
    if len(a) != len(b):
        return False
    if not isinstance(a, AxisSet) and not isinstance(b, AxisSet):
        return _all([same_axis(x, y) for x, y in zip(a, b, strict=True)])
    return _all([*(_any([same_axis(x, y) for y in b]) for x in a), *(_any([same_axis(x, y) for x in a]) for y in b)])


def _all(answers: list[bool | None]) -> bool | None:
    return False if False in answers else None if None in answers else True


def _any(answers: list[bool | None]) -> bool | None:
    return True if True in answers else None if None in answers else False
