"""Numbers of axes: axis 2 of a value of rank 3 is its axis -1, and of a value of unknown rank nobody knows which it is.

A captured axis counts from the back where the rank is known, so that the last is -1 whatever the rank.
"""

from __future__ import annotations

from typing import Self


class Axis(int):
    """The number of an axis of a value of `rank` axes: from the back, or as it was written where the rank is None."""

    rank: int | None

    def __new__(cls, number: int, rank: int | None) -> Self:
        made = super().__new__(cls, number)
        made.rank = rank
        return made


class AxisSet(tuple[int, ...]):
    """Axes of which the order says nothing, as those of a reduction."""

    __slots__ = ()


def numbered(value: object, rank: int | None, *, ordered: bool) -> object:
    """An axis or a list of axes as a pattern captures them; anything else as it is.

    ordered: whether the order of a list says something, as that of Slice does.
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
    if not -rank <= number < rank:  # Flatten may end behind the last axis
        return number
    return Axis(number - rank if number >= 0 else number, rank)


def same_axis(a: int, b: int) -> bool | None:
    """Whether two numbers are the same axis; None where that hangs on a rank that is not known.

    A number that is written out is taken to be of the other's value.
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
    if isinstance(number, Axis):  # from the front of a value of unknown rank
        return None
    return number - rank if number < rank else number


def same_axes(a: tuple[int, ...], b: tuple[int, ...]) -> bool | None:
    """Whether two lists are the same axes: in any order where one of them is a set."""
    if len(a) != len(b):
        return False
    if not isinstance(a, AxisSet) and not isinstance(b, AxisSet):
        return _all([same_axis(x, y) for x, y in zip(a, b, strict=True)])
    return _all([*(_any([same_axis(x, y) for y in b]) for x in a), *(_any([same_axis(x, y) for x in a]) for y in b)])


def _all(answers: list[bool | None]) -> bool | None:
    return False if False in answers else None if None in answers else True


def _any(answers: list[bool | None]) -> bool | None:
    return True if True in answers else None if None in answers else False
