"""Walk over large arrays in blocks that fit in the processor's cache.

A temporary array of ten million elements takes longer to map into memory than to compute, and several of them take more memory
than the model does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

BLOCK = 1 << 16
"""Elements of a block: half a megabyte in float64."""


def blocks(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """The blocks of arrays of one shape, each along one axis; arrays without an axis are in all of them."""
    flat = [array if array.ndim == 0 else array.reshape(-1) for array in arrays]
    size = max((array.size for array in flat if array.ndim), default=1)
    for start in range(0, size, BLOCK):
        yield tuple(array if array.ndim == 0 else array[start : start + BLOCK] for array in flat)


def elementwise(function: Callable[..., Array], *arrays: Array, dtype: npt.DTypeLike = np.float64) -> Array:
    """The results of an elementwise function, in an array of the shape of the first one."""
    result = np.empty(arrays[0].size, dtype)
    start = 0
    for parts in blocks(*arrays):
        block = function(*parts)
        result[start : start + BLOCK] = block
        start += BLOCK
    return result.reshape(arrays[0].shape)


def sum_of_squares(array: Array) -> float:
    """The sum of the squares of the elements; infinite if it overflows."""
    return sum(float(np.sum(np.square(block))) for (block,) in blocks(array))


def wide(array: Array) -> Array:
    """The array in float64 or complex128."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64, copy=False)


@dataclass(frozen=True, slots=True)
class Spread:
    """How the finite numbers of an array are spread; the two parts of complex ones count apart.

    squares: the sum of their squares. least, largest: the range; both 0 if there is no number. deviation: the standard deviation.
    """

    count: int
    squares: float
    least: float
    largest: float
    deviation: float

    @property
    def furthest(self) -> float:
        return self.largest - self.least


def spread_of(array: Array) -> Spread:
    """The spread of an array of floats. Moments of blocks are joined as in Chan, Golub & LeVeque 1979."""
    count, squares, mean, moment = 0, 0.0, 0.0, 0.0
    least, largest = np.inf, -np.inf
    for (block,) in blocks(array):
        numbers = wide(block)
        values = numbers[np.isfinite(numbers)].view(np.float64)
        if not values.size:
            continue
        squares += float(np.sum(np.square(values)))
        least, largest = min(least, float(values.min())), max(largest, float(values.max()))
        own, total = float(values.mean()), count + values.size
        moment += float(np.sum(np.square(values - own))) + (own - mean) ** 2 * count * values.size / total
        mean += (own - mean) * values.size / total
        count = total
    if not count:
        return Spread(0, 0.0, 0.0, 0.0, 0.0)
    return Spread(count, squares, least, largest, float(np.sqrt(moment / count)))
